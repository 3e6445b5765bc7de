package command

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/config"
)

const (
	// listedDestinations is how many closed destinations are shown unless more are asked for, and mostListed how many may be.
	listedDestinations, mostListed = 100, 10_000
)

// closedDestination is one line of `sink destinations`.
type closedDestination struct {
	Destination string     `json:"destination"`
	Gate        string     `json:"gate"` // closed, or half-open: the next job tries it
	Cause       string     `json:"cause"`
	Since       *time.Time `json:"since,omitempty"`
	Until       *time.Time `json:"until,omitempty"` // nothing is sent before
}

func (c *cli) sinkDestinations() *cobra.Command {
	limit := listedDestinations
	cmd := &cobra.Command{
		Use: "destinations SINK", Short: "List the destinations of a sink whose own gates are closed", Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > mostListed {
				return config.Usagef("--limit %d is out of range; use 1 to %d", limit, mostListed)
			}
			return c.listClosedDestinations(cmd.Context(), args[0], limit)
		},
		Example: "  pacer sink destinations shops",
	}
	cmd.Flags().IntVar(&limit, "limit", limit, "how many are listed at most")
	return c.withJSON(cmd)
}

func (c *cli) listClosedDestinations(ctx context.Context, name string, limit int) error {
	list, all := []closedDestination{}, 0
	var unknown error
	err := c.withGates(ctx, func(ctx context.Context, store *sinkStore) error {
		if _, ok := store.config.Sinks[name]; !ok {
			unknown = noSink(name, slices.Sorted(maps.Keys(store.config.Sinks)))
			return nil
		}
		shut, err := app.ClosedDestinations(ctx, store.Engine)
		all = len(shut[name])
		for _, g := range shut[name][:min(limit, all)] {
			v := newSinkView(name, 0, &g.Gate, time.Now())
			list = append(list, closedDestination{Destination: g.Destination, Gate: v.Gate, Cause: v.Cause, Since: v.Since, Until: v.Until})
		}
		return err
	})
	if err = cmp.Or(err, unknown); err != nil {
		return err
	}
	if all > limit {
		c.warn("%d destinations of sink %s are closed; %d are listed, use --limit for more", all, name, limit)
	}
	return c.printTable(list, func(p *printer) {
		p.line("DESTINATION\tGATE\tCAUSE\tSINCE\tUNTIL")
		for i := range list {
			v := &list[i]
			p.line("%s\t%s\t%s\t%s\t%s", v.Destination, v.Gate, v.Cause, instant(v.Since, time.RFC3339), instant(v.Until, time.RFC3339))
		}
	})
}

// destinationOpened is the JSON output of `sink open --destination`.
type destinationOpened struct {
	Sink        string `json:"sink"`
	Destination string `json:"destination"`
	Opened      bool   `json:"opened"` // false: it was open
	Cause       string `json:"cause,omitempty"`
	By          string `json:"by"`
}

func (c *cli) openDestination(ctx context.Context, name, destination string) error {
	if strings.TrimSpace(destination) == "" {
		return config.Usagef("--destination: names none; pacer sink destinations %s lists those that are closed", name)
	}
	v := destinationOpened{Sink: name, Destination: destination, By: operator()}
	var unknown error
	err := c.withGates(ctx, func(ctx context.Context, store *sinkStore) error {
		if _, ok := store.config.Sinks[name]; !ok {
			unknown = noSink(name, slices.Sorted(maps.Keys(store.config.Sinks)))
			return nil
		}
		shut, err := app.ClosedDestinations(ctx, store.Engine)
		if err != nil {
			return err
		}
		for i := range shut[name] {
			if g := &shut[name][i]; g.Destination == destination {
				v.Opened, v.Cause = true, g.Cause.String()
			}
		}
		if !v.Opened {
			return nil
		}
		store.config.Log.Logger(c.Stderr).Info("gate of a destination opened by hand", "sink", name, "destination", destination, "by", v.By, "cause", v.Cause)
		return store.ClearDestination(ctx, name, destination)
	})
	if err = cmp.Or(err, unknown); err != nil {
		return err
	}
	return c.print(v, func(p *printer) {
		if !v.Opened {
			p.line("destination %s of sink %s was open", destination, name)
			return
		}
		p.line("opened destination %s of sink %s, which was closed (%s)", destination, name, v.Cause)
	})
}
