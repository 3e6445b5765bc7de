package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/record"
	"github.com/pacer/pacer/internal/retry"
)

// survey measures, every Options.PositionInterval, what waits in the partitions that are held, whether they are being
// read or not. One goroutine runs it.
type survey struct {
	opt     *Options
	metrics *metrics
	sources func() []*source
	ends    map[partition]int64 // of ingress and timers, as the brokers last said
	open    map[partition]opened
}

// opened is the oldest open job of a partition of ingress or of a timer, and when it was first seen as that.
type opened struct {
	offset int64
	since  time.Time
}

// run measures until ctx ends; after that, nothing waits here.
func (s *survey) run(ctx context.Context) {
	retry.Every(ctx, s.opt.PositionInterval, func(time.Time) { s.measure(ctx) })
	s.metrics.waiting.nothing(s.opt)
}

// measure measures once.
func (s *survey) measure(ctx context.Context) {
	s.askEnds(ctx)
	backlog, dates, now := map[string]int64{}, 0, time.Now()
	var oldest, open [len(placeNames)]time.Duration
	opens := map[partition]opened{}
	for _, at := range s.sources() {
		w := at.waits()
		end, known := s.ends[at.partition]
		if !known {
			end = at.edge.Load()
		}
		backlog[at.Topic] += max(0, end-w.first)
		if w.first < w.next && at.from != delivery.FromLane {
			is := s.open[at.partition]
			if is.since.IsZero() || is.offset != w.first {
				is = opened{w.first, now}
			}
			opens[at.partition] = is
			open[at.from] = max(open[at.from], now.Sub(is.since))
		}
		if w.first < w.next && w.since.IsZero() && dates < datesAtOnce {
			dates++
			w.since = s.date(ctx, at, w.first)
		}
		if !w.since.IsZero() {
			oldest[at.from] = max(oldest[at.from], now.Sub(w.since))
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.open = opens
	s.metrics.waiting.show(s.opt, backlog, oldest, open)
}

// askEnds asks where the logs of ingress and timers end: a reader that holds jobs back does not look. Where there is no
// answer, the last one counts.
func (s *survey) askEnds(ctx context.Context) {
	var partitions []partition
	for _, at := range s.sources() {
		if at.from != delivery.FromLane {
			partitions = append(partitions, at.partition)
		}
	}
	if len(partitions) == 0 {
		return
	}
	found, err := s.opt.Client.Offsets(ctx, broker.Latest, partitions...)
	if err != nil {
		s.opt.Logger.Debug("the ends of logs are not known", "error", err)
	}
	for at, end := range found {
		s.ends[at] = end
	}
}

// datesAtOnce bounds the jobs that are read for their time by one measurement.
const datesAtOnce = 8

// date reads the time of the job at an offset, which was read by an earlier generation: the lane goes on beyond it. It
// returns zero if that fails.
func (s *survey) date(ctx context.Context, p *source, offset int64) (since time.Time) {
	_, err := s.opt.Client.Fetch(ctx, broker.FetchRequest{
		Partition: p.partition, Offset: offset, MaxBytes: 1, MaxWait: shortPoll,
	}, func(rec *broker.Raw) error {
		r := rec.Record()
		since = sinceOf(rec, record.Decode(&r, p.from, s.opt.limits(), time.Now()))
		return errEnough
	})
	if err != nil && !errors.Is(err, errEnough) {
		s.opt.Logger.Debug("the age of the oldest job is not known", "partition", p.String(), "error", err)
		return time.Time{}
	}
	p.dated(offset, since)
	return since
}

// sinceOf returns since when a job waits: since it was published, or, when pacer has moved it, since it was first read.
func sinceOf(rec *broker.Raw, j *delivery.Job) time.Time {
	if at := rec.Time(); j.From == delivery.FromIngress && at.Unix() > 0 { // not every producer says when
		return at
	}
	return j.FirstRead
}
