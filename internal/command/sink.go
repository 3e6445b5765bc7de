package command

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"os/user"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/progress"
)

func (c *cli) sink() *cobra.Command {
	var destination string
	open := &cobra.Command{
		Use: "open SINK", Short: "Open the gate of a sink, or of one of its destinations, for all daemons, whatever closed it", Args: oneID,
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.server.address != "" {
				return c.openRemote(cmd.Context(), args[0], destination)
			}
			if err := c.noToken(); err != nil {
				return err
			}
			if cmd.Flags().Changed("destination") {
				return c.openDestination(cmd.Context(), args[0], destination)
			}
			return c.openSink(cmd.Context(), args[0])
		},
		Long: `Opens the gate of a sink that a destination or its failures have closed, for all daemons: those that wait go on within
a few seconds. If the destination still does not work, the gate closes again.`,
		Example: "  pacer sink open receiver\n  pacer sink open shops --destination https://shop-7.example:443",
	}
	open.Flags().StringVar(&destination, "destination", "", "the destination whose gate is opened, as sink destinations names it; that of the sink stays as it is")
	return group("sink", "Sinks: whether their gates are open",
		c.withServer(c.plain("list", "List all sinks, with what has closed their gates", c.listSinks)), c.withServer(c.withJSON(open)), c.sinkDestinations(), c.sinkTest())
}

// sinkView is one sink of `sink list`.
type sinkView struct {
	Sink  string     `json:"sink"`
	Gate  string     `json:"gate"` // open, closed, or half-open: one job a second is tried
	Cause string     `json:"cause,omitempty"`
	Since *time.Time `json:"since,omitempty"`
	Until *time.Time `json:"until,omitempty"` // nothing is sent before
	Calls int        `json:"max_in_flight"`   // of one daemon
	// Destinations is how many destinations of the sink are closed or half-open.
	Destinations int `json:"destinations_closed"`
	// Figures are what all daemons tell; nil where none does.
	Figures *view.SinkFigures `json:"figures,omitempty"`
}

func newSinkView(name string, calls int, g *delivery.Gate, now time.Time) sinkView {
	v := sinkView{Sink: name, Gate: "open", Calls: calls}
	if g == nil {
		return v
	}
	v.Gate, v.Cause, v.Since = "half-open", g.Cause.String(), whole(g.Since)
	if g.Until.After(now) {
		v.Gate, v.Until = "closed", whole(notation.Until(g.Until))
	}
	return v
}

// sinkStore is what Redis knows of sinks: their gates, and what daemons tell of them.
type sinkStore struct {
	*limits.Engine
	exchange *progress.RedisExchange
	config   *config.Config
}

// withGates passes what is known of sinks to what looks at it.
func (c *cli) withGates(ctx context.Context, look func(context.Context, *sinkStore) error) error {
	s, err := c.services(config.NeedRedis)
	if err != nil {
		return err
	}
	if len(s.Config.Sinks) == 0 {
		return config.Usagef("sinks: none is configured here; use the configuration of the daemons")
	}
	engine, shards, err := openLimits(s)
	if err != nil {
		return err
	}
	defer func() { _ = shards.Close() }() // what is written is answered
	ctx, cancel := context.WithTimeout(ctx, 5*peekTimeout)
	defer cancel()
	exchange := progress.NewRedisExchange(shards.Master(0), s.Config.Redis.KeyPrefix)
	if err := look(ctx, &sinkStore{engine, exchange, s.Config}); err != nil {
		return fmt.Errorf("redis.addrs: %w", err)
	}
	return nil
}

// sinkViews are all sinks, as the database of this configuration or the server knows them.
func (c *cli) sinkViews(ctx context.Context) ([]sinkView, error) {
	if c.server.address != "" {
		r, err := c.remote()
		if err != nil {
			return nil, err
		}
		return r.sinkViews(ctx)
	}
	if err := c.noToken(); err != nil {
		return nil, err
	}
	views := []sinkView{}
	err := c.withGates(ctx, func(ctx context.Context, store *sinkStore) error {
		names := slices.Sorted(maps.Keys(store.config.Sinks))
		closed, err := store.Gates(ctx, names)
		now := time.Now()
		for _, name := range names {
			var gate *delivery.Gate
			if i := slices.IndexFunc(closed, func(g delivery.Gate) bool { return g.Sink == name }); i >= 0 {
				gate = &closed[i]
			}
			views = append(views, newSinkView(name, store.config.Sinks[name].Entry().MaxInFlight, gate, now))
		}
		if err != nil {
			return err
		}
		shut, err := app.ClosedDestinations(ctx, store.Engine)
		if err != nil {
			return err
		}
		board, err := progress.ReadBoard(ctx, store.exchange)
		if err != nil {
			return err
		}
		figures := app.SinkFigures(board)
		for i := range views {
			views[i].Destinations, views[i].Figures = len(shut[views[i].Sink]), figures[views[i].Sink]
		}
		return nil
	})
	return views, err
}

func (c *cli) listSinks(ctx context.Context) error {
	views, err := c.sinkViews(ctx)
	if err != nil {
		return err
	}
	return c.printTable(views, func(p *printer) {
		p.line("SINK\tGATE\tCAUSE\tSINCE\tUNTIL\tMAX IN FLIGHT\tDESTINATIONS CLOSED\tIN FLIGHT\tANSWERS/S\tP50\tP99\tLAST FAILURE")
		for i := range views {
			v := &views[i]
			p.line("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s", v.Sink, v.Gate, cmp.Or(v.Cause, "-"), instant(v.Since, time.RFC3339), instant(v.Until, time.RFC3339), v.Calls, v.Destinations, answersOf(v.Figures))
		}
	})
}

// answersOf are the last columns of `sink list`: what all daemons have in flight, and what was answered in the last minute.
func answersOf(f *view.SinkFigures) string {
	if f == nil {
		return "-\t-\t-\t-\t-"
	}
	all := make([]string, 0, len(f.Answers))
	for _, class := range delivery.ResultClasses {
		if n := f.Answers[class.String()]; n > 0 {
			all = append(all, fmt.Sprintf("%.1f %s", n, class))
		}
	}
	last := "-"
	if f.LastFailureAt != nil {
		last = instant(f.LastFailureAt, time.RFC3339) + " " + f.LastFailure
	}
	return fmt.Sprintf("%d\t%s\t%s\t%s\t%s", f.InFlight, cmp.Or(strings.Join(all, ", "), "-"), milliseconds(f.P50), milliseconds(f.P99), last)
}

func milliseconds(seconds *float64) string {
	if seconds == nil {
		return "-"
	}
	return fmt.Sprintf("%.1fms", 1000**seconds)
}

// sinkOpened is the JSON output of `sink open`.
type sinkOpened struct {
	Sink   string    `json:"sink"`
	Opened bool      `json:"opened"` // false: it was open
	Was    *sinkView `json:"was,omitempty"`
	By     string    `json:"by"`
}

func (c *cli) openSink(ctx context.Context, name string) error {
	v := sinkOpened{Sink: name, By: operator()}
	var unknown error
	err := c.withGates(ctx, func(ctx context.Context, store *sinkStore) error {
		s, ok := store.config.Sinks[name]
		if !ok {
			unknown = noSink(name, slices.Sorted(maps.Keys(store.config.Sinks)))
			return nil
		}
		closed, err := store.Gates(ctx, []string{name})
		if err != nil {
			return err
		}
		if len(closed) > 0 {
			was := newSinkView(name, s.Entry().MaxInFlight, &closed[0], time.Now())
			v.Was = &was
		}
		// Also if it is open: a daemon may be about to find out that it was closed.
		if err := store.ClearGate(ctx, name, v.By); err != nil {
			return err
		}
		if v.Opened = len(closed) > 0; v.Opened {
			store.config.Log.Logger(c.Stderr).Info("gate opened by hand", "sink", name, "by", v.By, "cause", v.Was.Cause)
		}
		return nil
	})
	if err = cmp.Or(err, unknown); err != nil {
		return err
	}
	return c.print(v, func(p *printer) {
		switch {
		case !v.Opened:
			p.line("the gate of sink %s was open", name)
		case v.Was.Until != nil:
			p.line("opened the gate of sink %s, which was closed (%s) until %s", name, v.Was.Cause, v.Was.Until.Format(time.RFC3339))
		default:
			p.line("opened the gate of sink %s, which was %s (%s)", name, v.Was.Gate, v.Was.Cause)
		}
	})
}

func noSink(name string, names []string) error {
	return config.Usagef("the configuration has no sink %s; it has %s", name, strings.Join(names, ", "))
}

// operator is who runs the command, as far as this machine knows.
func operator() string {
	name, host := "unknown", "unknown"
	if u, err := user.Current(); err == nil {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil {
		host = h
	}
	return name + "@" + host
}
