package consumer

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// survey measures, every Options.PositionInterval, what waits in the partitions that are held, whether they are being
// read or not. One goroutine runs it.
type survey struct {
	opt     *Options
	metrics *metrics
	sources func() []*source
}

// run measures until ctx ends; after that, nothing waits here.
func (s *survey) run(ctx context.Context) {
	retry.Every(ctx, s.opt.PositionInterval, func(time.Time) { s.measure(ctx) })
	s.metrics.waiting.nothing(s.opt)
}

// measure measures once.
func (s *survey) measure(ctx context.Context) {
	s.askEnds(ctx)
	backlog, now := map[string]int64{}, time.Now()
	var oldest, open [len(placeNames)]time.Duration
	for _, at := range s.sources() {
		first, next, since := at.oldest()
		backlog[at.Topic] += max(0, at.edge.Load()-first)
		if first == next {
			continue
		}
		if at.firstSince.IsZero() || at.seenFirst != first {
			at.seenFirst, at.firstSince = first, now
		}
		open[at.from] = max(open[at.from], now.Sub(at.firstSince))
		if !since.IsZero() {
			oldest[at.from] = max(oldest[at.from], now.Sub(since))
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.metrics.waiting.show(s.opt, backlog, oldest, open)
}

// askEnds asks where the logs of ingress and timers end: a reader that holds jobs back does not look. Where there is no
// answer, the last one counts.
func (s *survey) askEnds(ctx context.Context) {
	of := map[partition]*source{}
	for _, at := range s.sources() {
		if at.from != delivery.FromLane {
			of[at.partition] = at
		}
	}
	if len(of) == 0 {
		return
	}
	found, err := s.opt.Client.Offsets(ctx, broker.Latest, slices.Collect(maps.Keys(of))...)
	if err != nil {
		s.opt.Logger.Debug("the ends of logs are not known", "error", err)
	}
	for at, end := range found {
		of[at].edge.Store(end)
	}
}

// sinceOf returns since when a job waits: since it was published, or, when pacer has moved it, since it was first read.
func sinceOf(rec *delivery.Record, j *delivery.Job) time.Time {
	if at := rec.Time; j.From == delivery.FromIngress && at.Unix() > 0 { // not every producer says when
		return at
	}
	return j.FirstRead
}
