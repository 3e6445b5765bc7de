package app

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	gatesEvery  = time.Second
	gatesWithin = time.Second
	// gatesShown is how long a state is shown that cannot be read again.
	gatesShown = 10 * time.Second
	// maxPages bounds the replies about destinations that are read in one second.
	maxPages = 10
)

// gates reads every second which gates are closed for all daemons, shows those of sinks as metrics, and passes all on to the pacer. While they
// cannot be read, this daemon goes by its own breakers.
type gates struct {
	sinks []string
	store interface {
		Gates(ctx context.Context, sinks []string) ([]delivery.Gate, error)
		DestinationsSince(ctx context.Context, after int64) (gates []delivery.Gate, next int64, more bool, err error)
	}
	pacer interface {
		SeeGates(closed []delivery.Gate)
		SeeDestinations(gates []delivery.Gate)
	}
	until *prometheus.GaugeVec
	log   *slog.Logger

	closed atomic.Pointer[[]delivery.Gate] // of sinks; nil: not known
	readAt time.Time
	after  int64 // until when changes of destinations have been read, in the store's time
}

func newGateGauge(r prometheus.Registerer) *prometheus.GaugeVec {
	return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_gate_closed_until_timestamp_seconds",
		Help: "Until when a sink's gate is closed, by what closed it; a second from now at least while it is probed. 0: it is open.",
	}, []string{"sink", "cause"})
}

// Run reads the gates until ctx ends.
func (g *gates) Run(ctx context.Context) error {
	g.update(ctx)
	retry.Every(ctx, gatesEvery, func(time.Time) { g.update(ctx) })
	return nil
}

func (g *gates) update(ctx context.Context) {
	for _, read := range []func(context.Context) error{g.readSinks, g.readDestinations} {
		call, cancel := context.WithTimeout(ctx, gatesWithin)
		if err := read(call); err != nil {
			g.log.Debug("gates cannot be read", "error", err)
		}
		cancel()
	}
}

func (g *gates) readDestinations(ctx context.Context) error {
	for more, page := true, 0; more && page < maxPages; page++ {
		list, next, further, err := g.store.DestinationsSince(ctx, g.after)
		if err != nil {
			return err
		}
		g.after, more = next, further
		g.pacer.SeeDestinations(list)
	}
	return nil
}

func (g *gates) readSinks(ctx context.Context) error {
	closed, err := g.store.Gates(ctx, g.sinks)
	now := time.Now()
	if err != nil {
		if now.Sub(g.readAt) > gatesShown {
			g.until.Reset()
			g.closed.Store(nil)
		}
		return err
	}
	g.readAt = now
	for _, sink := range g.sinks {
		for _, cause := range delivery.GateCauses {
			g.until.WithLabelValues(sink, cause.String()).Set(0)
		}
	}
	for _, gate := range closed {
		until := gate.Until
		if next := now.Add(gatesEvery); until.Before(next) {
			until = next
		}
		g.until.WithLabelValues(gate.Sink, gate.Cause.String()).Set(float64(until.UnixMicro()) / 1e6)
	}
	g.closed.Store(&closed)
	g.pacer.SeeGates(closed)
	return nil
}

// latest returns the gates of sinks that are closed, as they were read last; none while they are not known.
func (g *gates) latest() (closed []delivery.Gate) {
	if list := g.closed.Load(); list != nil {
		closed = *list
	}
	return closed
}
