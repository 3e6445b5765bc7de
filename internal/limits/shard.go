package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/pacer/pacer/internal/limits/contention"
	"github.com/pacer/pacer/internal/limits/ledger"
	"github.com/pacer/pacer/internal/shards"
)

const (
	// scriptSlots is how many scripts that change something may be in flight at once, per shard.
	scriptSlots = 64
	// lookEvery is the pause between two attempts to reach such a shard, and lookFor how long attempts continue after
	// the last request for the shard.
	lookEvery = 50 * time.Millisecond
	lookFor   = 5 * time.Second
)

// errSilent is the error of calls that were not sent because the shard does not answer.
var errSilent = errors.New("the shard did not answer lately")

// errClosed is the error of calls that were not sent because the shard's data is not known to be in
// force.
var errClosed = errors.New("the shard's data is being looked for or rebuilt")

// shard is one of the engine's shards: its keys, its server, and its latest state.
type shard struct {
	index      int
	keys       keys
	master     runner
	clock      shardClock
	fence      *ledger.Fence
	contended  contention.Quotas
	clockKnown atomic.Bool  // whether callers have heard of the clock, without which a time of this shard means nothing
	jumped     atomic.Int64 // by how much the clock has jumped, in all

	sem  *semaphore.Weighted
	mu   sync.Mutex
	free []*scriptSlot // used first come, first served, so that replies stay as long as possible; under mu

	ended    <-chan struct{} // closed when attempts to reach it must end
	lookouts sync.WaitGroup

	silent  bool      // it does not answer; under mu
	probing bool      // a goroutine is trying to reach it; under mu
	asked   time.Time // of the last request for it while it did not answer; under mu
}

type scriptSlot struct {
	index int
	seq   int64 // of the latest script; written by the holder of the slot
}

func newShards(o *Options) []*shard {
	list := make([]*shard, o.Shards.Count())
	for i := range list {
		s := &shard{
			index: i, keys: newKeys(o.KeyPrefix, i), sem: semaphore.NewWeighted(scriptSlots),
		}
		s.master = runner{
			client: o.Shards.Master(i), timeout: o.Timeout, clock: &s.clock, override: o.now,
			epoch: func() int64 { epoch, _ := s.fence.Epoch(i); return epoch },
		}
		if o.now == nil {
			s.master.uptime = uptime
		}
		for k := range scriptSlots {
			s.free = append(s.free, &scriptSlot{index: k})
		}
		list[i] = s
	}
	return list
}

// run sends calls to the shard's master in one pipeline and leaves reply or error in each.
func (s *shard) run(ctx context.Context, script *shards.Script, calls []*call) {
	err := s.refuseSilent(ctx)
	if _, open := s.fence.Epoch(s.index); err == nil && !open {
		err = errClosed
	}
	if err != nil {
		for _, c := range calls {
			c.err = err
		}
		return
	}
	s.master.run(ctx, script, calls)
	lost := false
	for _, c := range calls {
		lost = lost || c.err != nil && !answered(c.err)
		if errors.Is(c.err, ledger.ErrEpoch) {
			s.fence.Lost(s.index, c.head.epoch, errors.Is(c.err, ledger.ErrClock))
		}
	}
	if lost && ctx.Err() == nil {
		s.mu.Lock()
		s.silent = true
		s.mu.Unlock()
	}
}

// refuseSilent returns an error if the shard does not answer. While there are requests for it, a background goroutine tries to reach it, so that
// callers need not try themselves.
func (s *shard) refuseSilent(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.silent {
		return nil
	}
	s.asked = time.Now()
	if !s.probing {
		s.probing = true
		s.lookouts.Go(func() { s.probe(context.WithoutCancel(ctx)) })
	}
	return errSilent
}

// probe tries the shard until it answers, there are no more requests for it, or the engine ends, which
// waits for look.
func (s *shard) probe(ctx context.Context) {
	for {
		try, cancel := context.WithTimeout(ctx, s.master.timeout)
		err := s.master.client.Exists(try, s.keys.clock()).Err()
		cancel()
		s.mu.Lock()
		found := err == nil || answered(err)
		stop := found || time.Since(s.asked) > lookFor
		s.silent, s.probing = !found, !stop
		s.mu.Unlock()
		if stop {
			return
		}
		select {
		case <-time.After(lookEvery):
		case <-s.ended:
			s.mu.Lock()
			s.probing = false
			s.mu.Unlock()
			return
		}
	}
}

// time is about what the shard's clock reads; false: nothing is known of it yet, and the time is the local clock's.
func (s *shard) time() (now int64, known bool) {
	if s.master.override != nil {
		return s.master.override(), true
	}
	return s.clock.at(s.master.now())
}

// now is time for calendars, which need not be exact.
func (s *shard) now() int64 {
	now, _ := s.time()
	return now
}

// acquire takes n script slots and moves each to its next sequence number.
func (s *shard) acquire(ctx context.Context, n int) ([]*scriptSlot, error) {
	if err := s.sem.Acquire(ctx, int64(n)); err != nil {
		return nil, fmt.Errorf("wait for a script slot: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slots := slices.Clone(s.free[:n])
	s.free = s.free[n:]
	for _, slot := range slots {
		slot.seq++
	}
	return slots, nil
}

// once runs a script in a script slot.
func (s *shard) once(ctx context.Context, script *shards.Script, encode func(*scriptSlot) *call) error {
	slots, err := s.acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer s.releaseSlots(slots)
	c := encode(slots[0])
	s.run(ctx, script, []*call{c})
	return c.err
}

func (s *shard) releaseSlots(slots []*scriptSlot) {
	s.mu.Lock()
	s.free = append(s.free, slots...)
	s.mu.Unlock()
	s.sem.Release(int64(len(slots)))
}

// forEachShard does f for the shards that have a part in something, all at once, and joins the errors.
func forEachShard[T any](e *Engine, parts [][]T, f func(s *shard, part []T) error) error {
	var concerned []*shard
	for i, part := range parts {
		if len(part) > 0 {
			concerned = append(concerned, e.shards[i])
		}
	}
	return e.each(concerned, func(s *shard) error { return f(s, parts[s.index]) })
}

// each does f for shards, all at once, and joins the errors, which it marks with the shard where there are several.
func (e *Engine) each(list []*shard, f func(*shard) error) error {
	errs := make([]error, len(list))
	do := func(i int, s *shard) {
		if err := f(s); err != nil {
			errs[i] = err
			if len(e.shards) > 1 {
				errs[i] = fmt.Errorf("shard %d: %w", s.index, err)
			}
		}
	}
	if len(list) == 1 {
		do(0, list[0])
		return errs[0]
	}
	var wg sync.WaitGroup
	for i, s := range list {
		wg.Go(func() { do(i, s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
