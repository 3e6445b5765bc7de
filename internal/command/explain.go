package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/progress"
)

func (c *cli) explain() *cobra.Command {
	cmd := c.ofID("explain", "Why a campaign sends nothing, and what to do", c.explainCampaign)
	cmd.Long = `Says in one sentence what holds a campaign, since when, until when, and what to do about it. It asks PostgreSQL for the
campaign, and Redis for gates, quotas and what the daemons report; or with --server a console for what it shows.`
	cmd.Example = "  pacer explain spring"
	return c.withServer(cmd)
}

// explanation is the JSON output of `explain`.
type explanation struct {
	Campaign string `json:"campaign"`
	IsHeld   bool   `json:"held"`
	Sentence string `json:"sentence"`
	*view.Held
	Waiting *int64            `json:"waiting,omitempty"`      // jobs; nil if not known
	Lanes   []int             `json:"lanes,omitempty"`        // where its backlog waits
	Senders []progress.Sender `json:"senders,omitempty"`      // the daemons that send it
	Failure string            `json:"last_failure,omitempty"` // of its sink, with a job of any campaign
	Note    string            `json:"note,omitempty"`
}

func (c *cli) explainCampaign(ctx context.Context, id string) error {
	api, err := c.client(config.NeedPostgres)
	if err != nil {
		return err
	}
	var state view.State
	if err := api.get(ctx, "/status", nil, &state); err != nil {
		return err
	}
	a, err := api.campaign(ctx, id)
	if err != nil {
		return err
	}
	v := explanation{
		Campaign: id, IsHeld: a.Held != nil, Held: a.Held, Waiting: a.Waiting, Lanes: a.Lanes, Senders: a.Senders, Failure: a.LastFailure,
		Note: faults(&state),
	}
	var why, remedy string
	if v.IsHeld {
		why, remedy = v.Why, v.Remedy
	}
	var waiting int64
	if v.Waiting != nil {
		waiting = *v.Waiting
	}
	v.Sentence = hold.Sentence(id, waiting, why, remedy)
	return c.print(v, func(p *printer) {
		p.line("%s", v.Sentence)
		p.table(func(p *printer) {
			if v.IsHeld {
				p.line("since\t%s", agoOrAhead(v.Since))
				p.line("until\t%s", agoOrAhead(v.Until))
			}
			if v.Waiting != nil {
				p.line("waiting\t%s", counted(*v.Waiting, "job"))
			}
			showFailure(p, v.Failure)
			showLanes(p, v.Lanes)
			showSenders(p, v.Senders)
		})
		if v.Note != "" {
			p.line("not known: %s", v.Note)
		}
	})
}
