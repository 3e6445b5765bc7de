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

const (
	// glanceEvery is how often the gauges are brought up to date.
	glanceEvery = time.Second
	// showFor is how long a value is shown that cannot be brought up to date.
	showFor = 10 * time.Second
)

// Glancer reads windows for show; *Engine is one. With an error, the windows that could be read are returned.
type Glancer interface {
	Glance(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, error)
}

// Gauges exports the state of every quota. The values are the cluster's, not this daemon's: every daemon exports the
// same, and they are aggregated with max. Run does the work; nothing else is safe to call while it runs.
type Gauges struct {
	glancer                 Glancer
	snapshot                func() *delivery.Snapshot
	log                     *slog.Logger
	remaining, limit, reset *prometheus.GaugeVec
	shown                   map[series]time.Time // the exported series and when they were last brought up to date
	failing                 bool
}

// series are the labels of what is exported of a window.
type series struct{ quota, window string }

// NewGauges makes Gauges over the catalog that snapshot returns (nil: not loaded yet).
func NewGauges(r Glancer, snapshot func() *delivery.Snapshot, log *slog.Logger, reg prometheus.Registerer) (*Gauges, error) {
	if r == nil || snapshot == nil || reg == nil {
		return nil, errors.New("limits: gauges need a glancer, a snapshot and a registerer")
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	vec := func(name, help string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"quota", "window"})
	}
	g := &Gauges{
		glancer: r, snapshot: snapshot, log: log, shown: map[series]time.Time{},
		remaining: vec("pacer_quota_remaining", "Units of a quota window that could be granted now."),
		limit:     vec("pacer_quota_limit", "Units a quota window holds."),
		reset:     vec("pacer_quota_reset_timestamp_seconds", "When a quota window would be full again if nothing more were sent."),
	}
	for _, c := range g.vecs() {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("register gauges of limits: %w", err)
		}
	}
	return g, nil
}

func (g *Gauges) vecs() []*prometheus.GaugeVec {
	return []*prometheus.GaugeVec{g.remaining, g.limit, g.reset}
}

// Run brings the gauges up to date every second until ctx ends. The last values of a shard that does not answer stand
// for ten seconds.
func (g *Gauges) Run(ctx context.Context) error {
	tick := time.NewTicker(glanceEvery)
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
	current := map[series]bool{}
	for _, q := range s.Quotas {
		if counts(q) && Validate(q) == nil {
			quotas = append(quotas, q)
			for _, w := range q.Windows {
				current[series{q.ID, FormatSpan(w.Span)}] = true
			}
		}
	}
	sort.Slice(quotas, func(i, j int) bool { return quotas[i].ID < quotas[j].ID })
	states, err := g.glancer.Glance(ctx, quotas)
	if err != nil && !g.failing && ctx.Err() == nil {
		g.log.Warn("quota gauges are not up to date", "error", err)
	}
	g.failing = err != nil
	now := time.Now()
	for _, w := range states {
		g.show(s.Quotas[w.Quota], w, now)
	}
	for labels, at := range g.shown {
		if !current[labels] || now.Sub(at) > showFor {
			g.hide(labels)
		}
	}
}

func (g *Gauges) show(q *delivery.Quota, w delivery.WindowState, now time.Time) {
	window := q.Windows[w.Window]
	labels := series{q.ID, FormatSpan(window.Span)}
	g.shown[labels] = now
	g.remaining.WithLabelValues(labels.quota, labels.window).Set(float64(w.Remaining))
	g.limit.WithLabelValues(labels.quota, labels.window).Set(float64(window.Limit))
	g.reset.WithLabelValues(labels.quota, labels.window).Set(float64(w.ResetAt) / 1e6)
}

func (g *Gauges) hide(labels series) {
	delete(g.shown, labels)
	for _, vec := range g.vecs() {
		vec.DeleteLabelValues(labels.quota, labels.window)
	}
}
