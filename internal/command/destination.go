package command

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
)

func (c *cli) destination() *cobra.Command {
	var reason string
	disable := c.ofID("disable", "Disable a destination: its jobs wait", func(ctx context.Context, id string) error {
		return c.askDestination(ctx, http.MethodPost, destinationPath(id)+"/disable", map[string]string{"reason": reason})
	})
	disable.Flags().StringVar(&reason, "reason", "by hand", "why, for whoever looks at it later")
	return group("destination", "Destinations: where jobs are sent that name one",
		c.withServer(c.plain("list", "List all destinations", c.listDestinations)),
		c.withServer(c.ofID("show", "Show one destination", func(ctx context.Context, id string) error {
			return c.askDestination(ctx, http.MethodGet, destinationPath(id), nil)
		})),
		c.withServer(c.destinationChange("create", "Create a destination")),
		c.withServer(c.destinationChange("set", "Change a destination; what is not given stays")),
		c.withServer(disable),
		c.withServer(c.ofID("enable", "Enable a destination: its jobs are sent", func(ctx context.Context, id string) error {
			return c.askDestination(ctx, http.MethodPost, destinationPath(id)+"/enable", struct{}{})
		})),
		deletion(c, "destination", "Delete a destination; jobs that name it become dead letters after unknown_grace", url.Values{},
			func(*catalog.DestinationRow) string { return "" }))
}

func destinationPath(id string) string { return pathOf("destinations", id) }

func (c *cli) destinationChange(name, short string) *cobra.Command {
	change := view.Values{}
	cmd := c.ofID(name, short, func(ctx context.Context, id string) error {
		if name == "set" && len(change) == 0 {
			return config.Usagef("destination set %s: nothing to set; give at least one flag, such as --url", id)
		}
		if name == "set" {
			return c.askDestination(ctx, http.MethodPatch, destinationPath(id), change)
		}
		change["id"] = id
		return c.askDestination(ctx, http.MethodPost, "/destinations", change)
	})
	cmd.Example = "  pacer destination " + name + " shop-7 --url https://hooks.shop-7.example/orders --secret file:shop-7\n" +
		"  pacer destination " + name + " shop-8 --url https://shop-8.example/hook --header authorization=env:DESTINATION_SHOP_8"
	settingFlags(cmd.Flags(), view.DestinationForm, change)
	headers := map[string]string{}
	cmd.Flags().Var(&flagValue{kind: "string", set: func(text string) error {
		change["headers"] = headers
		key, value, ok := strings.Cut(text, "=")
		if text == "" {
			return nil
		}
		if !ok || key == "" {
			return errors.New("must be name=value")
		}
		headers[key] = value
		return nil
	}}, "header", "header of its requests, as name=value, once for each of all of them; a value may be file:NAME or env:DESTINATION_NAME; \"\" for none")
	return cmd
}

func (c *cli) listDestinations(ctx context.Context) error {
	views := []*catalog.DestinationRow{}
	if err := pages(ctx, c, "destinations", url.Values{}, func(v *catalog.DestinationRow) { views = append(views, v) }); err != nil {
		return err
	}
	slices.SortFunc(views, func(a, b *catalog.DestinationRow) int { return cmp.Compare(a.ID, b.ID) })
	return c.printTable(views, func(p *printer) {
		p.line("ID\tSTATE\tSINCE\tSINK\tDELIVERED\tFAILED\tWAITING\tURL\tREASON")
		for _, v := range views {
			since := v.DisabledAt
			if since == nil {
				since = v.FailingSince
			}
			p.line("%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s", v.ID, v.State, instant(since, time.RFC3339), cmp.Or(v.Sink, "-"),
				v.Progress.Delivered, v.Progress.Failed(), v.Progress.Waiting, v.URL, cmp.Or(v.DisabledReason, "-"))
		}
	})
}

func calls(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// askDestination reads or changes a destination, and shows what it is then.
func (c *cli) askDestination(ctx context.Context, method, path string, body any) error {
	var v catalog.DestinationRow
	if err := c.call(ctx, method, path, nil, body, &v); err != nil {
		return err
	}
	if v.Fault != "" {
		c.warn("nothing is sent to destination %s: %s", v.ID, v.Fault)
	}
	return c.printTable(v, func(p *printer) {
		p.line("id\t%s", v.ID)
		p.line("state\t%s", v.State)
		if v.DisabledAt != nil {
			p.line("disabled at\t%s", instant(v.DisabledAt, time.RFC3339))
			p.line("reason\t%s", cmp.Or(v.DisabledReason, "-"))
		}
		if v.FailingSince != nil {
			p.line("failing since\t%s", instant(v.FailingSince, time.RFC3339))
		}
		p.line("delivered\t%d", v.Progress.Delivered)
		p.line("failed\t%d (%d dead, %d expired, %d rejected)", v.Progress.Failed(), v.Progress.Dead, v.Progress.Expired, v.Progress.Rejected)
		p.line("waiting\t%d", v.Progress.Waiting)
		p.line("url\t%s", v.URL)
		p.line("sink\t%s", cmp.Or(v.Sink, "-"))
		for _, name := range slices.Sorted(maps.Keys(v.Headers)) {
			p.line("header %s\t%s", name, v.Headers[name])
		}
		p.line("secrets\t%s", cmp.Or(strings.Join(v.Secrets, ", "), "-"))
		p.line("max in flight\t%s", calls(v.MaxInFlight))
		p.line("created at\t%s", v.CreatedAt.UTC().Format(time.RFC3339))
		p.line("updated at\t%s", v.UpdatedAt.UTC().Format(time.RFC3339))
		for _, a := range v.Progress.Answers {
			p.line("answer\t%s  %s  job %s  %s", a.At.UTC().Format(time.RFC3339), cmp.Or(calls(int64(a.Status)), "-")+" "+a.Class, a.Job, cmp.Or(a.Answer, a.Detail))
		}
	})
}
