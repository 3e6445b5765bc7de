package main

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
)

func (c *cli) quota() *cobra.Command {
	list := c.withJSON(&cobra.Command{
		Use: "list", Short: "List all quotas", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.QuotaList(cmd.Context(), c.invocation(cmd)) },
	})
	show := c.withJSON(&cobra.Command{
		Use: "show ID", Short: "Show one quota, what is left of its windows and who uses it", Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.QuotaShow(cmd.Context(), c.invocation(cmd), args[0])
		},
	})
	return group("quota", "Quotas: limits shared by campaigns", list, show, c.quotaSet(), c.quotaUsage())
}

func (c *cli) quotaSet() *cobra.Command {
	var windows []string
	var onStoreFailure, mode, spend, unit string
	var rollout int64
	cmd := &cobra.Command{
		Use: "set ID", Short: "Create a quota or change it; what is not given stays", Args: oneID,
		Example: `  pacer quota set provider --window 300/1m --window 15750/1h
  pacer quota set provider --window 300000/1d:fixed:day@Europe/Moscow --mode shadow`,
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.QuotaSet(cmd.Context(), c.invocation(cmd), args[0], &app.QuotaFlags{
				Windows:        cmp.Or(given(cmd, "window", &windows), given(cmd, "windows", &windows)),
				OnStoreFailure: given(cmd, "on-store-failure", &onStoreFailure), Mode: given(cmd, "mode", &mode),
				Spend: given(cmd, "spend", &spend), Rollout: given(cmd, "rollout", &rollout), Unit: given(cmd, "unit", &unit),
			})
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&windows, "window", nil, "a `WINDOW` LIMIT/SPAN[:ALGORITHM[:ANCHOR]], or several with commas between; may be repeated and\n"+
		"replaces all windows; \"\" for none, which does not bind. 300/1m slides, 20/10s:log is exact, 5000/1d:fixed\n"+
		"begins at its first use, 5000/1d:fixed:day@Europe/Moscow with the minute, hour, day, week or month")
	f.Var(f.Lookup("window").Value, "windows", "the same as --window")
	f.StringVar(&onStoreFailure, "on-store-failure", "", "when Redis fails: closed (wait), local-share (each daemon its share) or open")
	f.StringVar(&mode, "mode", "", "strict (exact), shadow (evaluated and reported, does not bind) or eventual (approximate)")
	f.StringVar(&spend, "spend", "", "how it is spent: greedy (as fast as asked for) or even (over the span)")
	f.Int64Var(&rollout, "rollout", 100, "`PERCENT` of the units that the quota counts and limits")
	f.StringVar(&unit, "unit", "", "what is counted: units (weights of jobs) or bytes (of payloads; mode eventual only)")
	return c.withJSON(cmd)
}

func (c *cli) quotaUsage() *cobra.Command {
	flags := &app.QuotaUsageFlags{}
	cmd := &cobra.Command{
		Use: "usage ID", Short: "What was used of a quota, and what was left", Args: oneID,
		Example: "  pacer quota usage provider --last 7d --step 1h",
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.QuotaUsage(cmd.Context(), c.invocation(cmd), args[0], flags)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.Last, "last", "7d", "how far back, such as 36h or 7d")
	f.StringVar(&flags.Step, "step", "1h", "how much time per line, in whole minutes")
	return c.withJSON(cmd)
}
