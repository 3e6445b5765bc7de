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
)

// gateGauges reads which gates are closed, for all daemons alike: it shows them as metrics and passes them on.
type gateGauges struct {
	read  func(ctx context.Context) ([]delivery.Gate, []delivery.Opening, error)
	sinks []string
	see   func(closed []delivery.Gate)
	until *prometheus.GaugeVec
	log   *slog.Logger

	readAt time.Time
	told   map[string]time.Time // of each sink, when the opening was that was logged last
}

func newGateGauge(r prometheus.Registerer) *prometheus.GaugeVec {
	return promauto.With(r).NewGaugeVec(prometheus.GaugeOpts{
		Name: "pacer_gate_closed_until_timestamp_seconds",
		Help: "Until when a sink's gate is closed, by what closed it; a second from now at least while it is probed. 0: it is open.",
	}, []string{"sink", "cause"})
}

// Run reads the gates every second until ctx ends.
func (g *gateGauges) Run(ctx context.Context) error {
	g.update(ctx)
	retry.Every(ctx, gatesEvery, func(time.Time) { g.update(ctx) })
	return nil
}

func (g *gateGauges) update(ctx context.Context) {
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
		if o.At.Sub(g.told[o.Sink]) > gatesEvery { // the clocks differ a little each time
			g.told[o.Sink] = o.At
			g.log.Info("a gate was opened by hand", "sink", o.Sink, "by", o.By)
		}
	}
}

func (g *gateGauges) show(closed []delivery.Gate, now time.Time) {
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
