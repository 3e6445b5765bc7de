package command

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/config"
)

const (
	// listedDestinations is how many closed destinations are shown unless more are asked for, and mostListed how many may be.
	listedDestinations, mostListed = 100, 10_000
)

func (c *cli) sinkDestinations() *cobra.Command {
	limit := listedDestinations
	cmd := c.ofSink("destinations", "List the destinations of a sink whose own gates are closed", func(ctx context.Context, name string) error {
		if limit < 1 || limit > mostListed {
			return config.Usagef("--limit %d is out of range; use 1 to %d", limit, mostListed)
		}
		return c.listClosedDestinations(ctx, name, limit)
	})
	cmd.Example = "  pacer sink destinations shops"
	cmd.Flags().IntVar(&limit, "limit", limit, "how many are listed at most")
	return c.withServer(cmd, config.NeedRedis)
}

func (c *cli) listClosedDestinations(ctx context.Context, name string, limit int) error {
	all, err := c.sinks(ctx, limit)
	if err != nil {
		return err
	}
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name
	}
	i := slices.Index(names, name)
	if i < 0 {
		return noSink(name, names)
	}
	s := &all[i]
	if n := s.Closed(); n > limit {
		c.warn("%d destinations of sink %s are closed; %d are listed, use --limit for more", n, name, limit)
	}
	return c.printTable(s.Destinations, func(p *printer) {
		p.line("DESTINATION\tGATE\tCAUSE\tSINCE\tUNTIL")
		for _, d := range s.Destinations {
			state, until := gateOf(d.Cause, d.Until)
			p.line("%s\t%s\t%s\t%s\t%s", d.Destination, state, d.Cause, instant(d.Since, time.RFC3339), instant(until, time.RFC3339))
		}
	})
}
