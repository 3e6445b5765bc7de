package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
)

func (c *cli) dead() *cobra.Command {
	return group("dead", "Dead letters: jobs that could not be delivered", c.deadList(), c.deadShow(), c.deadReplay())
}

func (c *cli) deadList() *cobra.Command {
	var flags app.DeadListFlags
	cmd := &cobra.Command{
		Use: "list", Short: "List dead letters, oldest first, and count them", Args: noArgs,
		Example: "  pacer dead list --campaign spring --since 2h\n  pacer dead list --count",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.DeadList(cmd.Context(), c.invocation(cmd), &flags)
		},
	}
	deadFilters(cmd, &flags.DeadFilters)
	cmd.Flags().IntVar(&flags.Limit, "limit", 0, "at most so many; 0 for all")
	cmd.Flags().BoolVar(&flags.Count, "count", false, "only the counts, by campaign and reason")
	return c.withJSON(cmd)
}

func (c *cli) deadShow() *cobra.Command {
	var payload bool
	cmd := &cobra.Command{
		Use:     "show PLACE|JOB-ID",
		Short:   "Show one dead letter: the one at partition/offset, or the newest of a job",
		Example: "  pacer dead show 3/17\n  pacer dead show u-42 --payload >payload.json",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 1 {
				return fmt.Errorf("%s needs the place (3/17, as list prints it) or the job id of one dead letter, got %d arguments",
					cmd.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.DeadShow(cmd.Context(), c.invocation(cmd), args[0], payload)
		},
	}
	cmd.Flags().BoolVar(&payload, "payload", false, "print the payload's bytes and nothing else")
	return c.withJSON(cmd)
}

func (c *cli) deadReplay() *cobra.Command {
	var flags app.DeadReplayFlags
	cmd := &cobra.Command{
		Use: "replay", Short: "Publish dead letters as jobs again, each once; they stay listed", Args: noArgs,
		Example: "  pacer dead replay --campaign spring --dry-run\n  pacer dead replay --campaign spring --rate 500",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.DeadReplay(cmd.Context(), c.invocation(cmd), &flags)
		},
	}
	deadFilters(cmd, &flags.DeadFilters)
	f := cmd.Flags()
	f.IntVar(&flags.Limit, "limit", 0, "replay at most so many; 0 for all")
	f.BoolVar(&flags.DryRun, "dry-run", false, "only say what would be replayed")
	f.StringVar(&flags.Rate, "rate", "", "so many a second, evenly, such as 500, 150/m or 1/h; as fast as Kafka takes them if not given")
	f.StringVar(&flags.ToTopic, "to-topic", "", "ingress topic; the one that each job came from if not given")
	f.BoolVar(&flags.Again, "again", false, "those that have been replayed before, too")
	f.BoolVar(&flags.DropExpiry, "drop-expiry", false, "those that have expired, too, without their expiry")
	return c.withJSON(cmd)
}

// deadFilters adds the flags that select dead letters.
func deadFilters(cmd *cobra.Command, filters *app.DeadFilters) {
	f := cmd.Flags()
	f.StringVar(&filters.Campaign, "campaign", "", "only those of this campaign")
	f.StringVar(&filters.Reason, "reason", "", "only those with this reason")
	f.StringVar(&filters.JobID, "job-id", "", "only those of this job")
	f.StringVar(&filters.Since, "since", "", "only those written then or later: an instant (2026-12-01T09:00:00Z) or an age (2h, 7d)")
	f.StringVar(&filters.Until, "until", "", "only those written before: an instant or an age")
}
