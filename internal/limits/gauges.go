package limits

import (
	"context"
	"log/slog"
	"maps"
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
	// sweepTurns is in how many updates all quotas are read. Quotas that change are read in each.
	sweepTurns = 4
	// stillAfter is after how many readings without a change a quota counts as idle.
	stillAfter = 5
	// showFor is how long a value is shown that cannot be updated.
	showFor = 10 * time.Second
	// latestFor is how old windows may be for a forecast.
	latestFor = 5 * time.Second
)

// Peeker reads windows; *Engine is one. With an error, the windows that could be read are returned.
type Peeker interface {
	Peek(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, error)
}

// Gauges exports the state of every quota. The values are the cluster's, so the daemon that leads exports them, and no other. For seconds
// after a change of the lead two daemons do, or none. They are aggregated with max. Run does the work; only Latest is safe to call while
// it runs.
type Gauges struct {
	peeker                  Peeker
	snapshot                func() *delivery.Snapshot
	leads                   func() bool
	log                     *slog.Logger
	remaining, limit, reset *prometheus.GaugeVec
	span                    *prometheus.GaugeVec
	shown                   map[string]*delivery.Quota // whose series are exported, by id
	turn                    int
	learnt                  map[string]learnt // by quota
	outage                  retry.Outage
	latest                  atomic.Pointer[reading]
}

// learnt is what was read of a quota last.
type learnt struct {
	reading
	revision int64
	still    int // readings without a change
}

// reading is what was read of windows.
type reading struct {
	windows []delivery.WindowState
	at      time.Time
}

// Latest returns the windows as they were read last; nil if that is long ago, or if this daemon does not lead.
func (g *Gauges) Latest() []delivery.WindowState {
	if last := g.latest.Load(); last != nil && time.Since(last.at) < latestFor {
		return last.windows
	}
	return nil
}

// NewGauges makes Gauges over the catalog that snapshot returns (nil: not loaded yet), for a daemon that leads or not.
func NewGauges(p Peeker, snapshot func() *delivery.Snapshot, leads func() bool, log *slog.Logger, reg prometheus.Registerer) *Gauges {
	vec := func(name, help string) *prometheus.GaugeVec {
		return promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{"quota", "window"})
	}
	return &Gauges{
		peeker: p, snapshot: snapshot, leads: leads, log: log, learnt: map[string]learnt{},
		remaining: vec("pacer_quota_remaining", "Units of a quota window that could be granted now."),
		limit:     vec("pacer_quota_limit", "Units a quota window holds."),
		reset:     vec("pacer_quota_reset_timestamp_seconds", "When a quota window would be full again if nothing more were sent."),
		span: promauto.With(reg).NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_quota_window_seconds", Help: "Length of a quota window, by its algorithm.",
		}, []string{"quota", "window", "algorithm"}),
	}
}

// Run updates the gauges every second until ctx ends. If a shard does not answer, its last values are kept for ten seconds.
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
	if !g.leads() {
		g.latest.Store(nil)
		clear(g.learnt)
		g.export(nil)
		return
	}
	var quotas []*delivery.Quota
	for _, q := range s.Shared() {
		if q.Stored() && Validate(q) == nil {
			quotas = append(quotas, q)
		}
	}
	slices.SortFunc(quotas, func(a, b *delivery.Quota) int { return strings.Compare(a.ID, b.ID) })
	states, err := g.peeker.Peek(ctx, g.due(quotas))
	if err == nil {
		g.outage.Worked()
	} else if ctx.Err() == nil && g.outage.Failed() {
		g.log.Warn("quota gauges are not up to date", "error", err)
	}
	now := time.Now()
	g.learn(s, states, now)
	all := &reading{at: now}
	known := map[string]*delivery.Quota{}
	for _, q := range quotas {
		if l := g.learnt[q.ID]; l.revision == q.Revision && now.Sub(l.at) <= showFor {
			known[q.ID], all.windows = q, append(all.windows, l.windows...)
		}
	}
	g.latest.Store(all)
	g.export(known)
}

// due returns the quotas to be read in this turn: those that have changed lately, and a part of the others.
func (g *Gauges) due(quotas []*delivery.Quota) (list []*delivery.Quota) {
	g.turn++
	for i, q := range quotas {
		if l, known := g.learnt[q.ID]; !known || l.revision != q.Revision || l.still < stillAfter || (i+g.turn)%sweepTurns == 0 {
			list = append(list, q)
		}
	}
	return list
}

// learn notes the windows that were read, and forgets quotas that are gone.
func (g *Gauges) learn(s *delivery.Snapshot, states []delivery.WindowState, now time.Time) {
	for len(states) > 0 {
		q, n := s.Quotas[states[0].Quota], 1
		for n < len(states) && states[n].Quota == q.ID {
			n++
		}
		l := g.learnt[q.ID]
		l.still++
		if l.revision != q.Revision || !slices.EqualFunc(l.windows, states[:n], alike(q)) {
			l.still = 0
		}
		l.reading, l.revision = reading{states[:n], now}, q.Revision
		g.learnt[q.ID], states = l, states[n:]
	}
	maps.DeleteFunc(g.learnt, func(id string, _ learnt) bool { return s.Quotas[id] == nil })
}

// alike compares two readings of a window of a quota. The reset of a full window is the time of the reading.
func alike(q *delivery.Quota) func(before, now delivery.WindowState) bool {
	return func(before, now delivery.WindowState) bool {
		if now.Remaining == q.Windows[now.Window].Limit {
			before.ResetAt = now.ResetAt
		}
		return before == now
	}
}

// export sets the series of quotas, by id, and removes those of others and of earlier definitions.
func (g *Gauges) export(quotas map[string]*delivery.Quota) {
	for id, q := range g.shown {
		if quotas[id] != q {
			for _, vec := range []*prometheus.GaugeVec{g.remaining, g.limit, g.reset, g.span} {
				vec.DeletePartialMatch(prometheus.Labels{"quota": id})
			}
		}
	}
	g.shown = quotas
	for id, q := range quotas {
		for _, state := range g.learnt[id].windows {
			w := q.Windows[state.Window]
			span := notation.FormatSpan(w.Span)
			g.remaining.WithLabelValues(id, span).Set(float64(state.Remaining))
			g.limit.WithLabelValues(id, span).Set(float64(w.Limit))
			g.reset.WithLabelValues(id, span).Set(float64(state.ResetAt) / 1e6)
			g.span.WithLabelValues(id, span, w.Algorithm).Set(w.Span.Seconds())
		}
	}
}
