package command

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

func (c *cli) destination() *cobra.Command {
	var reason string
	disable := c.ofID("disable", "Disable a destination: its jobs wait", func(ctx context.Context, id string) error {
		return c.changeDestination(func(s destinationStore) (*destinationRow, error) {
			return s.switchDestination(ctx, id, true, reason)
		})
	})
	disable.Flags().StringVar(&reason, "reason", "by hand", "why, for whoever looks at it later")
	return group("destination", "Destinations: where jobs are sent that name one",
		c.withServer(c.plain("list", "List all destinations", c.listDestinations)),
		c.withServer(c.ofID("show", "Show one destination", func(ctx context.Context, id string) error {
			return c.changeDestination(func(s destinationStore) (*destinationRow, error) { return s.showDestination(ctx, id) })
		})),
		c.withServer(c.destinationChange("create", "Create a destination")),
		c.withServer(c.destinationChange("set", "Change a destination; what is not given stays")),
		c.withServer(disable),
		c.withServer(c.ofID("enable", "Enable a destination: its jobs are sent", func(ctx context.Context, id string) error {
			return c.changeDestination(func(s destinationStore) (*destinationRow, error) {
				return s.switchDestination(ctx, id, false, "")
			})
		})),
		c.deleteDestination(), c.destinationTest())
}

func (c *cli) destinationChange(name, short string) *cobra.Command {
	var change catalog.DestinationChange
	cmd := c.ofID(name, short, func(ctx context.Context, id string) error {
		if name == "set" && change == (catalog.DestinationChange{}) {
			return config.Usagef("destination set %s: nothing to set; give at least one flag, such as --url", id)
		}
		return c.changeDestination(func(s destinationStore) (*destinationRow, error) {
			return s.setDestination(ctx, id, name == "create", change)
		})
	})
	cmd.Example = "  pacer destination " + name + " shop-7 --url https://hooks.shop-7.example/orders --secret file:shop-7\n" +
		"  pacer destination " + name + " shop-8 --url https://shop-8.example/hook --header authorization=env:DESTINATION_SHOP_8"
	f := cmd.Flags()
	optional(f, &change.URL, "url", "", text, "where its jobs are sent")
	optional(f, &change.Sink, "sink", "", text, "the sink that sends to it; \"\" for any with destinations")
	optionalList(f, &change.Secrets, "secret", allOf, "references to the secrets that sign requests, all of them, the newest first: file:NAME or env:DESTINATION_NAME; \"\" for none")
	optional(f, &change.MaxInFlight, "max-in-flight", "", wholeNumber, "most jobs in flight per daemon; 0 for as many as the sink has")
	headers := map[string]string{}
	f.Var(&flagValue{kind: "string", set: func(text string) error {
		change.Headers = &headers
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

func (c *cli) deleteDestination() *cobra.Command {
	var yes bool
	cmd := c.ofID("delete", "Delete a destination; jobs that name it become dead letters after unknown_grace", func(ctx context.Context, id string) error {
		if err := c.confirm(ctx, yes, "delete destination "+id); err != nil {
			return err
		}
		store, err := c.destinationStore()
		if err != nil {
			return err
		}
		row, err := store.deleteDestination(ctx, id)
		if err != nil {
			return err
		}
		return c.print(newDestinationView(row), func(p *printer) { p.line("deleted destination %s", id) })
	})
	yesFlag(cmd, &yes)
	return c.withServer(cmd)
}

// destinationView is a destination as it is printed, without what may be a secret in its address.
type destinationView struct {
	destinationRow
	State string `json:"state"`
}

func newDestinationView(row *destinationRow) destinationView {
	v := destinationView{*row, row.State()}
	v.URL = sinkhttp.Redacted(v.URL)
	return v
}

func (c *cli) listDestinations(ctx context.Context) error {
	store, err := c.destinationStore()
	if err != nil {
		return err
	}
	rows, err := store.listDestinations(ctx)
	if err != nil {
		return err
	}
	views := make([]destinationView, 0, len(rows))
	for i := range rows {
		views = append(views, newDestinationView(&destinationRow{DestinationRow: rows[i]}))
	}
	return c.printTable(views, func(p *printer) {
		p.line("ID\tSTATE\tSINCE\tSINK\tMAX IN FLIGHT\tURL\tREASON")
		for i := range views {
			v := &views[i]
			since := v.DisabledAt
			if since == nil {
				since = v.FailingSince
			}
			p.line("%s\t%s\t%s\t%s\t%s\t%s\t%s", v.ID, v.State, instant(since, time.RFC3339), cmp.Or(v.Sink, "-"), calls(v.MaxInFlight), v.URL, cmp.Or(v.DisabledReason, "-"))
		}
	})
}

func calls(n int64) string {
	if n == 0 {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// changeDestination reads or changes a destination, and shows what it is then.
func (c *cli) changeDestination(apply func(destinationStore) (*destinationRow, error)) error {
	store, err := c.destinationStore()
	if err != nil {
		return err
	}
	row, err := apply(store)
	if err != nil {
		return err
	}
	if row.Fault != "" {
		c.warn("nothing is sent to destination %s: %s", row.ID, row.Fault)
	}
	v := newDestinationView(row)
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
		p.line("url\t%s", v.URL)
		p.line("sink\t%s", cmp.Or(v.Sink, "-"))
		for _, name := range slices.Sorted(maps.Keys(v.Headers)) {
			p.line("header %s\t%s", name, v.Headers[name])
		}
		p.line("secrets\t%s", cmp.Or(strings.Join(v.Secrets, ", "), "-"))
		p.line("max in flight\t%s", calls(v.MaxInFlight))
		p.line("created at\t%s", v.CreatedAt.UTC().Format(time.RFC3339))
		p.line("updated at\t%s", v.UpdatedAt.UTC().Format(time.RFC3339))
	})
}

// destinationTest is `sink test` for a destination: the row is read, and one job is sent to it with the secrets of this machine.
func (c *cli) destinationTest() *cobra.Command {
	var t trial
	cmd := c.ofID("test", "Send one job to a destination, and show the request and the answer without secrets", func(ctx context.Context, id string) error {
		row, err := ask(c, func(a *catalog.Admin) (catalog.DestinationRow, error) { return a.GetDestination(ctx, id) })
		if err != nil {
			return err
		}
		cfg, _, err := config.LoadFor(c.source())
		if err != nil {
			return err
		}
		if t.sink = cmp.Or(t.sink, row.Sink); t.sink == "" {
			var tables []string
			for name, sc := range cfg.Sinks {
				if h, ok := sc.(*sinkhttp.Config); ok && h.Destinations {
					tables = append(tables, name)
				}
			}
			if len(tables) != 1 {
				return config.Usagef("destination test %s: %d sinks have destinations; name one with --sink", id, len(tables))
			}
			t.sink = tables[0]
		}
		e := row.Destination()
		e.DisabledAt = 0 // to find out whether it may be enabled
		t.destination, t.endpoints = id, func(string) *delivery.Destination { return e }
		return c.testSink(ctx, &t)
	})
	f := cmd.Flags()
	f.StringVar(&t.sink, "sink", "", "the sink to send with, if several have destinations")
	t.flags(f)
	return cmd
}
