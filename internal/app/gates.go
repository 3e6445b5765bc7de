package app

import (
	"context"
	"log/slog"
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

// gates reads every second which gates are closed, for all daemons alike: it shows those of sinks as metrics and passes all on. While they
// cannot be read, this daemon goes by what it finds itself.
type gates struct {
	read  func(ctx context.Context) ([]delivery.Gate, []delivery.Opening, error)
	sinks []string
	see   func(closed []delivery.Gate)
	until *prometheus.GaugeVec
	log   *slog.Logger

	readAt time.Time
	logged map[string]time.Time // of each sink, when the opening was that was logged last

	// Those of destinations, and since when the changes are read, in the store's time.
	readDestinations func(ctx context.Context, after int64) (gates []delivery.DestinationGate, next int64, more bool, err error)
	seeDestinations  func([]delivery.DestinationGate)
	after            int64
}

func newGateGauge(r prometheus.Registerer) *prometheus.GaugeVec {
	return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_gate_closed_until_timestamp_seconds",
		Help: "Until when a sink's gate is closed, by what closed it; a second from now at least while it is probed. 0: it is open.",
	}, []string{"sink", "cause"})
}

// Run reads the gates until ctx ends.
func (g *gates) Run(ctx context.Context) error {
	update := func(time.Time) {
		g.update(ctx)
		g.updateDestinations(ctx)
	}
	update(time.Time{})
	retry.Every(ctx, gatesEvery, update)
	return nil
}

func (g *gates) updateDestinations(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, gatesWithin)
	defer cancel()
	for more, page := true, 0; more && page < maxPages; page++ {
		var list []delivery.DestinationGate
		var next int64
		var err error
		if list, next, more, err = g.readDestinations(call, g.after); err != nil {
			g.log.Debug("which destinations are closed is not known", "error", err)
			return
		}
		g.after = next
		g.seeDestinations(list)
	}
}

func (g *gates) update(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, gatesWithin)
	defer cancel()
	closed, opened, err := g.read(call)
	now := time.Now()
	if err != nil {
		g.log.Debug("which gates are closed is not known", "error", err)
		if now.Sub(g.readAt) > gatesShown {
			g.until.Reset()
		}
		return
	}
	g.readAt = now
	g.show(closed, now)
	g.see(closed)
	for _, o := range opened {
		if o.At.Sub(g.logged[o.Sink]) > gatesEvery { // the clocks differ a little each time
			g.logged[o.Sink] = o.At
			g.log.Info("a gate was opened by hand", "sink", o.Sink, "by", o.By)
		}
	}
}

func (g *gates) show(closed []delivery.Gate, now time.Time) {
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
}
