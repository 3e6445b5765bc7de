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

const (
	countEvery = time.Second
	countBytes = 16 << 20 // that one round reads
	countRests = time.Minute
	countAhead = 3 // rounds: what a reader will have read by then is not counted, but read once
)

// counting counts, once a second, what lies beyond the readers of ingress and timers that wait: jobs of a timer until they are due, or jobs
// of a campaign that stay in ingress. One goroutine runs it.
type counting struct {
	*assignment
	memory  fetchMemory
	decoder record.Decoder
	from    int       // the source that the next round begins with
	rests   time.Time // until then nothing is read ahead, since the broker throttles
}

// run counts until ctx ends.
func (c *counting) run(ctx context.Context) {
	retry.Every(ctx, countEvery, func(now time.Time) {
		if now.After(c.rests) {
			c.round(ctx)
		}
	})
}

// round reads every log to its end, or what one round may read. The next one begins with the log where this one has ended.
func (c *counting) round(ctx context.Context) {
	left, all := int64(countBytes), c.sources()
	for range all {
		s := all[c.from%len(all)]
		more := s.window != nil
		if more { // a reader that soon is at the end counts what it reads
			next := s.next()
			more = s.edge.Load()-next >= countAhead*(next-s.counted)
			s.counted = next
		}
		for more && s.stands.Load() {
			if left <= 0 || ctx.Err() != nil {
				return
			}
			read, err := c.read(ctx, s)
			if large, ok := errors.AsType[*broker.LargeAnswer](err); ok && large.Bytes > c.memory.answer && c.memory.answer < c.budget.limit/largestClaim {
				c.memory.last = large.Bytes
				read, err = c.read(ctx, s)
			}
			if left -= read.Answer; err != nil {
				c.opt.Logger.Debug("what waits in a partition is not counted to its end", "partition", s.String(), "error", err)
				break
			}
			more = read.Records > 0
		}
		c.from++
	}
}

var errNoRoom = errors.New("there is no memory for it")

// read counts what one fetch brings.
func (c *counting) read(ctx context.Context, s *source) (out broker.Fetched, err error) {
	s.mu.Lock()
	from, m, now := s.tally.Next(), &c.memory, time.Now()
	s.mu.Unlock()
	m.answer = max(maxFetchBytes, min(m.last, c.budget.limit/largestClaim))
	if !s.budget.try(m.answer) {
		return out, errNoRoom
	}
	defer s.budget.charge(-m.answer)
	room, end := m.room(s.budget)
	defer end()
	out, err = c.opt.Client.Fetch(ctx, broker.FetchRequest{
		Partition: s.partition, Offset: from, MaxBytes: maxFetchBytes, Claimed: m.answer, Room: room, Aside: true,
		Yields: true, Throttled: func() { c.rests = time.Now().Add(countRests) },
	}, func(rec *delivery.Record) error {
		is := seen(c.decoder.Peek(rec, s.from, c.opt.limits(), now))
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.window.Restored(is.Offset) {
			s.tally.Pass(is.Offset + 1)
		} else {
			s.tally.Ahead(is)
		}
		return nil
	})
	if m.last = max(out.Answer, m.last/4); err == nil {
		s.mu.Lock()
		s.tally.Pass(out.Next)
		s.mu.Unlock()
	}
	return out, err
}
