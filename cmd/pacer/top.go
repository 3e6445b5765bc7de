package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
)

func (c *cli) top() *cobra.Command {
	var options app.TopOptions
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch a running daemon: rates, backlogs, quotas",
		Long: `Asks a daemon's /metrics again and again and shows who sends how fast, what waits, what is left of the quotas
and how the daemon is. Only what goes through this daemon counts as sent by it; rates, backlogs and quotas are those of
all daemons. Where stdout is no terminal, one picture is printed.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			options.Terminal = isTerminal(c.stdout)
			return app.Top(cmd.Context(), c.invocation(cmd), options)
		},
	}
	cmd.Flags().StringVar(&options.Addr, "addr", "", "host:port of the daemon; http.listen of the configuration unless given")
	cmd.Flags().DurationVar(&options.Interval, "interval", time.Second, "time between two looks")
	cmd.Flags().BoolVar(&options.Once, "once", false, "print one picture and end")
	cmd.Flags().StringVar(&options.Sort, "sort", "sent", "order of the campaigns: "+strings.Join(app.TopOrders(), ", "))
	cmd.Flags().StringVar(&options.Campaign, "campaign", "", "only campaigns whose id contains this")
	cmd.Flags().IntVar(&options.Limit, "limit", 0, "campaigns to list; 0 for what fits the terminal, or 20")
	return c.withJSON(cmd)
}
