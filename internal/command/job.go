package command

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/dedupe"
	"github.com/pacer/pacer/internal/jobs"
	"github.com/pacer/pacer/internal/notation"
)

func (c *cli) job() *cobra.Command {
	last := 24 * time.Hour
	find := c.ofID("find", "Say where a job is: in which topic it waits, whether it died, what became of it", func(ctx context.Context, id string) error {
		return c.findJob(ctx, id, last)
	})
	find.Example = "  pacer job find u-42\n  pacer job find u-42 --last 7d"
	spanVar(find.Flags(), &last, "last", last, "how far back its events and dead letters are looked for")
	campaign, reason := "", ""
	cancel := &cobra.Command{
		Use: "cancel ID...", Short: "Cancel jobs that wait, if dedupe is on: they settle as cancelled at their turn",
		Example: "  pacer job cancel u-42 u-43\n  pacer job cancel u-42 --campaign spring --reason \"ticket 4711\"",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > jobs.MaxCancelled {
				return fmt.Errorf("%s needs the ids of 1 to %d jobs, got %d", cmd.CommandPath(), jobs.MaxCancelled, len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.cancelJobs(cmd.Context(), map[string]any{"ids": args, "campaign": campaign, "reason": reason})
		},
	}
	cancel.Flags().StringVar(&campaign, "campaign", "", "theirs: cancel them without a search, as where too much waits to be read")
	cancel.Flags().StringVar(&reason, "reason", "", "why, for pacer.campaign_changes")
	return group("job", "Single jobs", c.withServer(find, config.NeedKafka), c.withServer(c.withJSON(cancel), config.NeedKafka, config.NeedPostgres, config.NeedRedis))
}

func (c *cli) cancelJobs(ctx context.Context, which map[string]any) error {
	var done jobs.Cancelled
	if err := c.call(ctx, http.MethodPost, "/jobs/cancel", nil, which, &done); err != nil {
		return err
	}
	left := 0
	if err := c.printTable(done, func(p *printer) {
		for _, j := range done.Jobs {
			p.line("%s\t%s\t%s", field(j.ID), field(j.Campaign), stateWords[j.State])
		}
		for _, why := range done.Unread {
			if which["campaign"] == "" {
				why += "; --campaign cancels without a search"
			}
			p.line("not looked at\t\t%s", why)
		}
	}); err != nil {
		return err
	}
	for _, j := range done.Jobs {
		if j.State != string(dedupe.Cancelled) {
			left++
		}
	}
	if left > 0 {
		return fmt.Errorf("%d of %d jobs are not cancelled", left, len(done.Jobs))
	}
	return nil
}

// stateWords are the states of jobs that were to be cancelled, in words.
var stateWords = map[string]string{
	string(dedupe.Cancelled): "cancelled", string(dedupe.Delivered): "was delivered",
	string(dedupe.InFlight): "in flight: it is being sent, or was a moment ago; if it fails, cancel it again",
	jobs.NotFound:           "not found waiting: it is settled, or was never published; pacer job find says more",
}

func (c *cli) findJob(ctx context.Context, id string, last time.Duration) error {
	var f view.FoundJob
	if err := c.get(ctx, pathOf("jobs", id), url.Values{"last": {notation.FormatSpan(last)}}, &f); err != nil {
		return err
	}
	if err := c.printTable(f, func(p *printer) { printJob(p, &f) }); err != nil {
		return err
	}
	if len(f.Waiting)+len(f.Dead)+len(f.Results) == 0 {
		return fmt.Errorf("job %s: nothing is known of it; a delivered job is known only with kafka.results: true, for --last", id)
	}
	return nil
}

func printJob(p *printer, f *view.FoundJob) {
	for _, w := range f.Waiting {
		words := []string{"campaign " + w.Campaign, counted(int64(w.Attempts), "attempt"), "written " + agoOrAhead(&w.WrittenAt)}
		if w.Reason != "" {
			words = append(words, w.Reason)
		}
		if w.NotBefore != nil {
			words = append(words, "not before "+w.NotBefore.Format(time.RFC3339))
		}
		if w.Mark != "" {
			words = append(words, strings.ReplaceAll(string(w.Mark), "_", " "))
		}
		p.line("waits, or is being sent\t%s\t%s", w.Place, strings.Join(words, ", "))
	}
	for _, d := range f.Dead {
		p.line("dead letter\t%s\tcampaign %s, %s, %s: %s", d.Place, d.Campaign, agoOrAhead(&d.At), d.Reason, whyDead(&d))
	}
	for _, text := range f.Results {
		var e struct {
			Campaign, Outcome, Reason, Quota string
			Status, Attempts                 int
			SettledAt                        time.Time  `json:"settled_at"`
			FreeAt                           *time.Time `json:"free_at"`
		}
		_ = json.Unmarshal(text, &e) // what is missing is empty
		words := []string{"campaign " + e.Campaign, counted(int64(e.Attempts), "attempt"), agoOrAhead(&e.SettledAt)}
		if e.Status > 0 {
			words = append(words, fmt.Sprint("status ", e.Status))
		}
		if e.FreeAt != nil {
			words = append(words, "quota "+e.Quota+" allows one at "+instant(e.FreeAt, time.RFC3339))
		}
		p.line("%s\t\t%s", e.Outcome, strings.Join(words, ", "))
	}
	for _, why := range f.Unread {
		p.line("not looked at\t\t%s", why)
	}
}
