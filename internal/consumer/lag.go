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
// read or not. After ctx has ended, nothing waits here.
func (t *assignment) survey(ctx context.Context) {
	retry.Every(ctx, t.opt.PositionInterval, func(time.Time) { t.measure(ctx) })
	t.metrics.waiting.nothing(&t.opt)
}

// measure measures once.
func (t *assignment) measure(ctx context.Context) {
	t.askEnds(ctx)
	backlog, now := map[string]int64{}, time.Now()
	var oldest, open [len(placeNames)]time.Duration
	for _, at := range t.sources() {
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
	t.metrics.waiting.show(&t.opt, backlog, oldest, open)
}

// askEnds asks where the logs of ingress and timers end: a reader that holds jobs back does not look. Where there is no
// answer, the last one counts.
func (t *assignment) askEnds(ctx context.Context) {
	of := map[partition]*source{}
	for _, at := range t.sources() {
		if at.from != delivery.FromLane {
			of[at.partition] = at
		}
	}
	if len(of) == 0 {
		return
	}
	found, err := t.opt.Client.Offsets(ctx, broker.Latest, slices.Collect(maps.Keys(of))...)
	if err != nil {
		t.opt.Logger.Debug("the ends of logs are not known", "error", err)
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
