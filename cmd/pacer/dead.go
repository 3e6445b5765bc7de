package main

import (
	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
)

func (c *cli) dead() *cobra.Command {
	var flags app.DeadFlags
	filters := func(cmd *cobra.Command) *cobra.Command {
		cmd.Flags().StringVar(&flags.Campaign, "campaign", "", "only those of this campaign")
		cmd.Flags().StringVar(&flags.Reason, "reason", "", "only those with this reason")
		cmd.Flags().IntVar(&flags.Limit, "limit", 0, "at most so many; 0 for all")
		return c.withJSON(cmd)
	}
	list := filters(&cobra.Command{
		Use: "list", Short: "List dead letters, oldest first", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.DeadList(cmd.Context(), c.invocation(cmd), &flags)
		},
	})
	replay := filters(&cobra.Command{
		Use: "replay", Short: "Publish dead letters as jobs again; they stay listed", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return app.DeadReplay(cmd.Context(), c.invocation(cmd), &flags)
		},
	})
	replay.Flags().BoolVar(&flags.DryRun, "dry-run", false, "only count")
	replay.Flags().BoolVar(&flags.DropExpiry, "drop-expiry", false, "send those that have expired, too")
	return group("dead", "Dead letters: jobs that could not be delivered", list, replay)
}
