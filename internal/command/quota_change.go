package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/notation"
)

func (c *cli) quotaDelete() *cobra.Command {
	var yes, unlink bool
	cmd := c.ofID("delete", "Delete a quota, its counts and its history", func(ctx context.Context, id string) error {
		if err := c.confirm(ctx, yes, "delete quota "+id); err != nil {
			return err
		}
		store, err := c.quotaStore()
		if err != nil {
			return err
		}
		row, err := store.deleteQuota(ctx, id, unlink)
		if err != nil {
			return err
		}
		return c.print(row, func(p *printer) {
			p.line("deleted quota %s, which limited %s", id, counted(len(row.Campaigns), "campaign"))
		})
	})
	cmd.Flags().BoolVar(&unlink, "unlink", false, "also take its campaigns out of it; those without another are limited by their rate alone")
	yesFlag(cmd, &yes)
	return c.withServer(cmd)
}

func (c *cli) quotaAdjust() *cobra.Command {
	var used int64
	var lower bool
	var reason string
	cmd := c.withServer(c.withJSON(&cobra.Command{
		Use: "adjust ID SPAN", Short: "Set how many units a window of a quota has counted",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 || !cmd.Flags().Changed("used") || reason == "" {
				return fmt.Errorf("%s needs an id, the span of a window, --used and --reason", cmd.CommandPath())
			}
			return nil
		},
		Example: `  pacer quota adjust provider 31d --used 120000 --reason "the contract began on the 1st"
  pacer quota adjust provider 1d --used 0 --lower --reason "credit, ticket 4711"`,
		RunE: func(cmd *cobra.Command, args []string) error {
			span, err := notation.ParseSpan(args[1])
			if err != nil {
				return config.Usagef("quota adjust: %s", err)
			}
			if used < 0 || used > app.MaxAdjusted {
				return config.Usagef("quota adjust: --used must lie between 0 and %d", int64(app.MaxAdjusted))
			}
			return c.adjustQuota(cmd.Context(), app.QuotaAdjustment{Quota: args[0], Span: span, Reason: reason, Used: used, Lower: lower})
		},
	}))
	f := cmd.Flags()
	f.Int64Var(&used, "used", 0, "the units that the window has counted from now on")
	f.BoolVar(&lower, "lower", false, "also where that is less than it has counted, which makes room")
	f.StringVar(&reason, "reason", "", "why, for pacer.campaign_changes")
	return cmd
}

func (c *cli) adjustQuota(ctx context.Context, a app.QuotaAdjustment) error {
	store, err := c.quotaStore()
	if err != nil {
		return err
	}
	done, err := store.adjustQuota(ctx, a)
	if err != nil {
		return err
	}
	return c.print(done, func(p *printer) {
		p.line("window %s of quota %s has counted %d of %d units, and %d before", done.Window, a.Quota, done.Used, done.Limit, done.Before)
		if done.Used < done.Before {
			p.line("pacer quota usage still shows the others, and so does the window if Redis loses its data and it is rebuilt")
		}
	})
}

// changeQuota makes one change and prints the quota as it is then.
func (c *cli) changeQuota(ctx context.Context, id string, change *catalog.QuotaChange) error {
	store, err := c.quotaStore()
	if err != nil {
		return err
	}
	q, err := store.changeQuota(ctx, id, change)
	if err != nil {
		return err
	}
	if quota, err := q.Quota(); err == nil {
		if idle, by, found := model.Idle(quota.Windows); found {
			c.warn("the window %s of quota %s never decides: %s lets through no more", notation.FormatWindow(idle), id, notation.FormatWindow(by))
		}
	}
	return c.printTable(q, func(p *printer) { printQuota(p, &q) })
}
