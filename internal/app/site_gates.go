package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/notation"
)

// halfOpenFor is how long after its time a destination is shown as half-open: it may have no jobs any more.
const halfOpenFor = 10 * time.Minute

// closedDestinations returns the destinations that are closed or half-open, by sink, those that were changed last first.
func closedDestinations(ctx context.Context, engine *limits.Engine) (map[string][]delivery.DestinationGate, error) {
	shut := map[string][]delivery.DestinationGate{}
	for after, more := int64(0), true; more; {
		gates, next, further, err := engine.DestinationsSince(ctx, after)
		if err != nil {
			return nil, err
		}
		now := time.Now()
		for i := range gates {
			g := &gates[i]
			if g.Until.After(now) || !g.Until.IsZero() && now.Sub(g.Until) < halfOpenFor {
				shut[g.Sink] = append(shut[g.Sink], *g)
			}
		}
		after, more = next, further
	}
	for _, list := range shut {
		slices.Reverse(list)
	}
	return shut, nil
}

// showGates makes the console show the gates of destinations, and open gates.
func showGates(sources *view.Sources, engine *limits.Engine, log *slog.Logger) {
	sources.Closed = func(ctx context.Context) (map[string][]delivery.DestinationGate, error) {
		return closedDestinations(ctx, engine)
	}
	configured := sources.Sinks
	sources.Open = func(ctx context.Context, sink, destination string) (closed bool, err error) {
		by := catalog.ActorOf(ctx)
		if !slices.ContainsFunc(configured, func(s view.Sink) bool { return s.Name == sink }) {
			return false, view.Fault(catalog.ErrNotFound, "there is no sink %s in the configuration of this process", notation.Shorten(sink))
		}
		if destination != "" {
			closed, err = openDestination(ctx, engine, sink, destination)
		} else {
			closed, err = openSink(ctx, engine, sink, by.Name)
		}
		if err != nil {
			return false, fmt.Errorf("redis does not answer: %w", err)
		}
		log.Info("gate opened by hand", "sink", sink, "destination", destination, "was_closed", closed, "by", by.Name, "reason", by.Reason, "request", by.RequestID)
		return closed, nil
	}
}

func openSink(ctx context.Context, engine *limits.Engine, sink, by string) (closed bool, err error) {
	gates, err := engine.Gates(ctx, []string{sink})
	if err != nil {
		return false, err
	}
	return len(gates) > 0, engine.ClearGate(ctx, sink, by) // also if it is open: a daemon may be about to find out that it was closed
}

func openDestination(ctx context.Context, engine *limits.Engine, sink, destination string) (closed bool, err error) {
	shut, err := closedDestinations(ctx, engine)
	if err != nil || !slices.ContainsFunc(shut[sink], func(g delivery.DestinationGate) bool { return g.Destination == destination }) {
		return false, err
	}
	return true, engine.ClearDestination(ctx, sink, destination)
}
