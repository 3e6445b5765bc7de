package limits

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// gaugesEvery is how often the gauges are updated.
	gaugesEvery = time.Second
	// showFor is how long a value is shown that cannot be updated.
	showFor = 10 * time.Second
	// latestFor is how old windows may be for a forecast.
	latestFor = 5 * time.Second
)

// Peeker reads windows; *Engine is one. With an error, the windows that could be read are returned.
type Peeker interface {
	Peek(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, error)
}

// Gauges exports the state of every quota. The values are the cluster's, not this daemon's: every daemon exports the
// same, and they are aggregated with max. Run does the work; only Latest is safe to call while it runs.
type Gauges struct {
	peeker                  Peeker
	snapshot                func() *delivery.Snapshot
	log                     *slog.Logger
	remaining, limit, reset *prometheus.GaugeVec
	span                    *prometheus.GaugeVec
	shown                   map[series]time.Time // the exported series and when they were last brought up to date
	algorithms              map[series]string    // of these
	outage                  retry.Outage
	latest                  atomic.Pointer[reading]
}

// reading is what was read of all windows.
type reading struct {
	windows []delivery.WindowState
	at      time.Time
}

// Latest returns the windows as they were read last; nil if that is long ago.
func (g *Gauges) Latest() []delivery.WindowState {
	if last := g.latest.Load(); last != nil && time.Since(last.at) < latestFor {
		return last.windows
	}
	return nil
}

// series are the labels of a window's metrics.
type series struct{ quota, window string }

// labels are those of all metrics of the window.
func (s series) labels() prometheus.Labels {
	return prometheus.Labels{"quota": s.quota, "window": s.window}
}

// NewGauges makes Gauges over the catalog that snapshot returns (nil: not loaded yet).
func NewGauges(p Peeker, snapshot func() *delivery.Snapshot, log *slog.Logger, reg prometheus.Registerer) *Gauges {
	vec := func(name, help string) *prometheus.GaugeVec {
		return promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"quota", "window"})
	}
	return &Gauges{
		peeker: p, snapshot: snapshot, log: log, shown: map[series]time.Time{}, algorithms: map[series]string{},
		remaining: vec("pacer_quota_remaining", "Units of a quota window that could be granted now."),
		limit:     vec("pacer_quota_limit", "Units a quota window holds."),
		reset:     vec("pacer_quota_reset_timestamp_seconds", "When a quota window would be full again if nothing more were sent."),
		span: promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_quota_window_seconds", Help: "Length of a quota window, by its algorithm.",
		}, []string{"quota", "window", "algorithm"}),
	}
}

// Run updates the gauges every second until ctx ends. If a shard does not answer, its last values are kept for ten seconds after
// SharedWindows drops them.
func (g *Gauges) Run(ctx context.Context) error {
	for {
		g.update(ctx)
		if retry.Sleep(ctx, gaugesEvery) != nil {
			return nil
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
		if q.Per == "" && counts(q) && Validate(q) == nil {
			quotas = append(quotas, q)
			for _, w := range q.Windows {
				current[series{q.ID, notation.FormatSpan(w.Span)}] = true
			}
		}
	}
	slices.SortFunc(quotas, func(a, b *delivery.Quota) int { return strings.Compare(a.ID, b.ID) })
	states, err := g.peeker.Peek(ctx, quotas)
	if err == nil {
		g.outage.Worked()
	} else if ctx.Err() == nil && g.outage.Failed() {
		g.log.Warn("quota gauges are not up to date", "error", err)
	}
	now := time.Now()
	g.latest.Store(&reading{states, now})
	for _, w := range states {
		g.show(s.Quotas[w.Quota], w, now)
	}
	for labels, at := range g.shown {
		if !current[labels] || now.Sub(at) > showFor {
			delete(g.shown, labels)
			delete(g.algorithms, labels)
			for _, vec := range []*prometheus.GaugeVec{g.remaining, g.limit, g.reset, g.span} {
				vec.DeletePartialMatch(labels.labels())
			}
		}
	}
}

func (g *Gauges) show(q *delivery.Quota, w delivery.WindowState, now time.Time) {
	window := q.Windows[w.Window]
	labels := series{q.ID, notation.FormatSpan(window.Span)}
	if g.algorithms[labels] != window.Algorithm {
		g.algorithms[labels] = window.Algorithm
		g.span.DeletePartialMatch(labels.labels())
		g.span.WithLabelValues(labels.quota, labels.window, window.Algorithm).Set(window.Span.Seconds())
	}
	g.shown[labels] = now
	g.remaining.WithLabelValues(labels.quota, labels.window).Set(float64(w.Remaining))
	g.limit.WithLabelValues(labels.quota, labels.window).Set(float64(window.Limit))
	g.reset.WithLabelValues(labels.quota, labels.window).Set(float64(w.ResetAt) / 1e6)
}
