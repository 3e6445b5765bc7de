package command

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/notation"
)

func (c *cli) quotaDelete() *cobra.Command {
	how := url.Values{}
	cmd := deletion(c, "quota", "Delete a quota, its counts and its history", how, func(was *view.Quota) string {
		return ", which limited " + counted(was.CampaignCount, "campaign")
	})
	cmd.Flags().BoolFunc("unlink", "also take its campaigns out of it; those without another are limited by their rate alone", func(text string) error {
		how.Set("unlink", text)
		return nil
	})
	return cmd
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
			return c.adjustQuota(cmd.Context(), args[0], args[1], map[string]any{"used": used, "lower": lower, "reason": reason})
		},
	}), config.NeedPostgres, config.NeedRedis)
	f := cmd.Flags()
	f.Int64Var(&used, "used", 0, "the units that the window has counted from now on")
	f.BoolVar(&lower, "lower", false, "also where that is less than it has counted, which makes room")
	f.StringVar(&reason, "reason", "", "why, for pacer.campaign_changes")
	return cmd
}

func (c *cli) adjustQuota(ctx context.Context, id, span string, change map[string]any) error {
	return ask(ctx, c, http.MethodPost, pathOf("quotas", id, "windows", span, "adjust"), nil, change, func(p *printer, done *view.Adjusted) {
		p.line("window %s of quota %s has counted %d of %d units, and %d before", done.Window, id, done.Used, done.Limit, done.Before)
		if done.Used < done.Before {
			p.line("pacer quota usage still shows the others, and so does the window if Redis loses its data and it is rebuilt")
		}
	})
}

// changeQuota changes a quota, or creates it if there is none, and prints it as it is then.
func (c *cli) changeQuota(ctx context.Context, id string, change view.Values) error {
	if len(change) == 0 {
		return config.Usagef("quota set %s: nothing to set; give its windows, such as --window 300/1m --window 15750/1h", id)
	}
	var s catalog.QuotaRow
	err := c.call(ctx, http.MethodPatch, quotaPath(id), nil, change, &s)
	if refusedAs(err, "not-found") {
		change["id"] = id
		err = c.call(ctx, http.MethodPost, "/quotas", nil, change, &s)
	}
	if err != nil {
		return err
	}
	windows, _ := notation.ParseWindows(strings.Join(s.Windows, ",")) // a console has written them
	if idle, by, found := model.Idle(windows); found {
		c.warn("the window %s of quota %s never decides: %s lets through no more", notation.FormatWindow(idle), id, notation.FormatWindow(by))
	}
	return c.printTable(&s, func(p *printer) { printQuota(p, &s) })
}
