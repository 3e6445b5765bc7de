package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sort"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// peekEvery is how often the gauges are brought up to date.
const peekEvery = time.Second

// Peeker reads windows without changing them; *Engine is one.
type Peeker interface {
	Peek(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, []delivery.ShardClock, error)
}

// Gauges exports the state of every quota. The values are the cluster's, not this daemon's: every daemon exports the
// same, and they are aggregated with max. Run does the work; nothing else is safe to call while it runs.
type Gauges struct {
	peeker                  Peeker
	snapshot                func() *delivery.Snapshot
	log                     *slog.Logger
	remaining, limit, reset *prometheus.GaugeVec
	shown                   map[[2]string]bool // quota and window of every exported series
	failing                 bool
}

// NewGauges makes Gauges over the catalog that snapshot returns (nil: not loaded yet).
func NewGauges(p Peeker, snapshot func() *delivery.Snapshot, log *slog.Logger, r prometheus.Registerer) (*Gauges, error) {
	if p == nil || snapshot == nil || r == nil {
		return nil, errors.New("limits: gauges need a peeker, a snapshot and a registerer")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	vec := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"quota", "window"})
	}
	g := &Gauges{
		peeker: p, snapshot: snapshot, log: log, shown: map[[2]string]bool{},
		remaining: vec("pacer_quota_remaining", "Units of a quota window that could be granted now."),
		limit:     vec("pacer_quota_limit", "Units a quota window holds."),
		reset:     vec("pacer_quota_reset_timestamp_seconds", "When a quota window would be full again if nothing more were sent."),
	}
	for _, c := range []prometheus.Collector{g.remaining, g.limit, g.reset} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register gauges of limits: %w", err)
		}
	}
	return g, nil
}

// Run brings the gauges up to date every second until ctx ends. A store that does not answer leaves the last values
// standing.
func (g *Gauges) Run(ctx context.Context) error {
	tick := time.NewTicker(peekEvery)
	defer tick.Stop()
	for {
		g.update(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (g *Gauges) update(ctx context.Context) {
	s := g.snapshot()
	if s == nil {
		return
	}
	var quotas []*delivery.Quota
	for _, q := range s.Quotas {
		if len(q.Windows) > 0 && Validate(q) == nil {
			quotas = append(quotas, q)
		}
	}
	sort.Slice(quotas, func(i, j int) bool { return quotas[i].ID < quotas[j].ID })
	states, _, err := g.peeker.Peek(ctx, quotas)
	if err != nil {
		if !g.failing && ctx.Err() == nil {
			g.log.Warn("quota gauges are not up to date", "error", err)
		}
		g.failing = true
		return
	}
	g.failing = false
	shown := map[[2]string]bool{}
	for _, w := range states {
		window := s.Quotas[w.Quota].Windows[w.Window]
		labels := [2]string{w.Quota, FormatSpan(window.Span)}
		shown[labels] = true
		g.remaining.WithLabelValues(labels[:]...).Set(float64(w.Remaining))
		g.limit.WithLabelValues(labels[:]...).Set(float64(window.Limit))
		g.reset.WithLabelValues(labels[:]...).Set(float64(w.ResetAt) / 1e6)
	}
	for labels := range g.shown {
		if !shown[labels] {
			for _, vec := range []*prometheus.GaugeVec{g.remaining, g.limit, g.reset} {
				vec.DeleteLabelValues(labels[:]...)
			}
		}
	}
	g.shown = shown
}
