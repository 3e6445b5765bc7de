package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
)

func (c *cli) quota() *cobra.Command {
	list := c.withJSON(&cobra.Command{
		Use: "list", Short: "List all quotas", Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return app.QuotaList(cmd.Context(), c.invocation(cmd)) },
	})
	show := c.withJSON(&cobra.Command{
		Use: "show ID", Short: "Show one quota", Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			return app.QuotaShow(cmd.Context(), c.invocation(cmd), args[0])
		},
	})
	return group("quota", "Quotas: limits shared by campaigns", list, show, c.quotaSet())
}

func (c *cli) quotaSet() *cobra.Command {
	var windows []string
	var onStoreFailure, spend string
	cmd := &cobra.Command{
		Use: "set ID", Short: "Create a quota or change it; what is not given stays", Args: oneID,
		Example: "  pacer quota set provider --windows 300/1m,15750/1h\n  pacer quota set provider --window 300/1m --window 15750/1h",
		RunE: func(cmd *cobra.Command, args []string) error {
			flags := &app.QuotaFlags{
				Windows: given(cmd, "windows", &windows), OnStoreFailure: given(cmd, "on-store-failure", &onStoreFailure),
				Spend: given(cmd, "spend", &spend),
			}
			if one := given(cmd, "window", &windows); one != nil {
				if flags.Windows != nil {
					return app.UsageError{Err: errors.New("--windows and --window exclude each other; give all windows by one of them")}
				}
				flags.Windows = one
			}
			return app.QuotaSet(cmd.Context(), c.invocation(cmd), args[0], flags)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&windows, "windows", nil, "all windows: 300/1m,15750/1h; \"\" for none, which does not bind")
	f.StringSliceVar(&windows, "window", nil, "one window; may be repeated")
	f.StringVar(&onStoreFailure, "on-store-failure", "", "when Redis fails: closed (wait)")
	f.StringVar(&spend, "spend", "", "how it is spent: greedy (as fast as asked for)")
	return c.withJSON(cmd)
}
