package view

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/keyed"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/notation"
)

const (
	// halfOpenFor is how long after its time a destination is shown as half-open: it may have no jobs any more.
	halfOpenFor = 10 * time.Minute
	// maxAdjusted bounds what a window is told that it has counted.
	maxAdjusted = 10_000_000_000
	// adjustWithin bounds the wait for the store, during which writers of quotas wait.
	adjustWithin = 5 * time.Second
)

// quotaStore reads and changes the quota store.
type quotaStore struct {
	engine  *limits.Engine
	keys    keyed.Desk
	sinks   []string // that are configured
	catalog Catalog  // nil: counts and keys cannot be changed
	log     *slog.Logger
}

// AddStore has the quota store read and changed. The catalog and the sinks must be set before.
func (s *Sources) AddStore(engine *limits.Engine, keys keyed.Desk, log *slog.Logger) {
	q := &quotaStore{engine: engine, keys: keys, catalog: s.Catalog, log: log}
	for i := range s.Sinks {
		q.sinks = append(q.sinks, s.Sinks[i].Name)
	}
	s.Windows, s.Closed, s.Open = engine.Peek, q.closed, q.open
	s.Gates = func(ctx context.Context) ([]delivery.Gate, error) { return engine.Gates(ctx, q.sinks) }
	if s.Catalog != nil {
		s.Adjust, s.Key, s.SetKey = q.adjust, q.key, q.setKey
	}
}

func (s *quotaStore) open(ctx context.Context, sink, destination string) (closed bool, err error) {
	if !slices.Contains(s.sinks, sink) {
		return false, catalog.Fault(catalog.ErrNotFound, "the configuration has no sink %s; it has %s", notation.Shorten(sink), strings.Join(s.sinks, ", "))
	}
	if closed, err = s.openGate(ctx, sink, destination); err != nil {
		return false, fmt.Errorf("redis does not answer: %w", err)
	}
	by := catalog.ActorOf(ctx)
	s.log.Info("gate opened by hand", "sink", sink, "destination", destination, "was_closed", closed, "by", by.Name, "reason", by.Reason, "request", by.RequestID)
	return closed, nil
}

// closed implements Sources.Closed: it returns the destinations that are closed or half-open.
func (s *quotaStore) closed(ctx context.Context) (map[string][]delivery.Gate, error) {
	shut := map[string][]delivery.Gate{}
	for after, more := int64(0), true; more; {
		gates, next, further, err := s.engine.DestinationsSince(ctx, after)
		if err != nil {
			return nil, err
		}
		for _, g := range gates {
			if !g.Until.IsZero() && time.Since(g.Until) < halfOpenFor {
				shut[g.Sink] = append(shut[g.Sink], g)
			}
		}
		after, more = next, further
	}
	for _, list := range shut {
		slices.Reverse(list)
	}
	return shut, nil
}

// openGate opens the gate of a sink, or of one of its destinations, and returns whether it was closed.
func (s *quotaStore) openGate(ctx context.Context, sink, destination string) (closed bool, err error) {
	if destination == "" {
		gates, err := s.engine.Gates(ctx, []string{sink})
		if err != nil {
			return false, err
		}
		closed = len(gates) > 0 // it is opened anyway: a daemon may be about to find out that it was closed
	} else {
		shut, err := s.closed(ctx)
		if err != nil || !slices.ContainsFunc(shut[sink], func(g delivery.Gate) bool { return g.Destination == destination }) {
			return false, err
		}
		closed = true
	}
	_, err = s.engine.MoveGates(ctx, []delivery.Gate{{Sink: sink, Destination: destination}})
	return closed, err
}

// adjust implements Sources.Adjust. It records the correction in the catalog for the reason of the actor.
func (s *quotaStore) adjust(ctx context.Context, quota string, a Adjustment) (done Adjusted, err error) {
	span, err := notation.ParseSpan(a.Span)
	if err != nil {
		return done, catalog.Fault(catalog.ErrInvalid, "span: %s", err)
	}
	if a.Used < 0 || a.Used > maxAdjusted {
		return done, catalog.Fault(catalog.ErrInvalid, "used must lie between 0 and %d", int64(maxAdjusted))
	}
	_, err = s.catalog.AdjustQuota(ctx, quota, span, func(q *delivery.Quota, window int) (before, after, minute int64, err error) {
		switch {
		case q.Mode == delivery.ModeEventual:
			return 0, 0, 0, catalog.Fault(catalog.ErrInvalid, "quota %s is of mode eventual: the daemons count by themselves", quota)
		case q.Per != "":
			return 0, 0, 0, catalog.Fault(catalog.ErrInvalid, "quota %s counts each %s by itself, so it has no one count; pacer key show prints that of one value",
				quota, q.Per)
		}
		done = Adjusted{Quota: quota, Window: notation.FormatSpan(span), Limit: q.Windows[window].Limit}
		if a.Used > done.Limit {
			return 0, 0, 0, catalog.Fault(catalog.ErrInvalid, "used: %d is more than window %s of quota %s allows, which is full with %d; raise its limit before",
				a.Used, done.Window, quota, done.Limit)
		}
		ctx, cancel := context.WithTimeout(ctx, adjustWithin)
		defer cancel()
		is, err := s.engine.Adjust(ctx, limits.Adjustment{Quota: q, Window: window, Used: a.Used, Lower: a.Lower})
		if err != nil {
			return 0, 0, 0, fmt.Errorf("redis.addrs: the quota store does not answer: %w", err)
		}
		if is.Used > a.Used {
			return 0, 0, 0, catalog.Fault(catalog.ErrInvalid, "used: window %s of quota %s has counted %d units, and %d would make room for %d more; give lower to allow it",
				done.Window, quota, is.Before, a.Used, is.Before-a.Used)
		}
		done.Before, done.Used = is.Before, is.Used
		return is.Before, is.Used, is.At / time.Minute.Microseconds(), nil
	})
	return done, err
}
