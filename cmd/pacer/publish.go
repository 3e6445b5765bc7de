package main

import (
	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
)

func (c *cli) publish() *cobra.Command {
	var flags app.PublishFlags
	cmd := &cobra.Command{
		Use: "publish", Short: "Publish jobs: one a line, or so many numbered ones", Args: noArgs,
		Example: "  pacer publish --campaign spring --file jobs.jsonl\n  pacer publish --campaign spring --count 1000\n" +
			"  pacer publish --campaign spring --file jobs.jsonl --direct",
		RunE: func(cmd *cobra.Command, _ []string) error {
			flags.CountSet = cmd.Flags().Changed("count")
			return app.Publish(cmd.Context(), c.invocation(cmd), &flags)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.Campaign, "campaign", "", "whose jobs these are")
	f.StringVar(&flags.Topic, "topic", "", "ingress topic; the first configured one if not given")
	f.BoolVar(&flags.Direct, "direct", false, "write into the campaign's lane instead, which saves a hop for a backlog")
	f.StringVar(&flags.File, "file", "", "one job a line, empty lines left out; - for stdin")
	f.Int64Var(&flags.Count, "count", 0, "so many jobs {\"n\":1}, {\"n\":2}, …")
	return c.withJSON(cmd)
}
