package command

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

func (c *cli) explain() *cobra.Command {
	cmd := c.ofID("explain", "Why a campaign sends nothing, and what to do", c.explainCampaign)
	cmd.Long = `Says in one sentence what holds a campaign, since when, until when, and what to do about it. It asks PostgreSQL for the
campaign, and Redis for gates, quotas and what the daemons report; or with --server a console for what it shows.`
	cmd.Example = "  pacer explain spring"
	return c.withServer(cmd)
}

// explanation is the JSON output of `explain`: the campaign as the API shows it, and what that means.
type explanation struct {
	*view.Campaign
	Sentence string `json:"sentence"`
	Unknown  string `json:"unknown,omitempty"` // what could not be asked
}

func (c *cli) explainCampaign(ctx context.Context, id string) error {
	var state view.State
	if err := c.get(ctx, "/status", nil, &state); err != nil {
		return err
	}
	v := explanation{Unknown: faults(&state)}
	var err error
	if v.Campaign, err = c.oneCampaign(ctx, id); err != nil {
		return err
	}
	closed, err := c.closedDestinations(ctx, v.Sink)
	if err != nil {
		return err
	}
	if err := c.busyKeys(ctx, v.Keys); err != nil {
		return err
	}
	var why, remedy string
	if v.Held != nil {
		why, remedy = v.Held.Why, v.Held.Remedy
	}
	var waiting int64
	if v.Backlog != nil {
		waiting = *v.Backlog
	}
	v.Sentence = hold.Sentence(id, waiting, why, remedy)
	return c.print(v, func(p *printer) {
		p.line("%s", v.Sentence)
		if v.Late != "" {
			p.line("%s", v.Late)
		}
		p.table(func(p *printer) {
			if v.Held != nil {
				p.line("since\t%s", agoOrAhead(v.Held.Since))
				p.line("until\t%s", agoOrAhead(v.Held.Until))
			}
			if v.States != nil {
				p.line("backlog\t%s", formatBacklog(*v.States))
			}
			if v.TimeZone == delivery.ZoneRecipient && v.ActiveHours != "" {
				p.line("active hours\t%s", hoursOf(v.Campaign))
			}
			if closed > 0 {
				p.line("closed gates\t%s of its sink, of any campaign: pacer sink destinations %s", counted(closed, "destination"), v.Sink)
			}
			showKeys(p, v.Keys)
			showFailure(p, v.LastFailure)
			showLanes(p, v.Lanes)
			showSenders(p, v.Senders)
		})
		if v.Unknown != "" {
			p.line("not known: %s", v.Unknown)
		}
	})
}

// closedDestinations returns how many destinations of a sink have closed gates, as far as that is known.
func (c *cli) closedDestinations(ctx context.Context, sink string) (n int64, err error) {
	var found struct{ Sinks []view.Sink }
	err = c.get(ctx, "/sinks", nil, &found)
	for i := range found.Sinks {
		if s := &found.Sinks[i]; s.Name == sink {
			n = int64(s.Closed())
		}
	}
	return n, err
}
