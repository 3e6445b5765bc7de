package limits

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/semaphore"
)

const (
	// scriptSlots is how many scripts that change something may be under way at once, per shard.
	scriptSlots = 64
	// shunFor is how long a shard that did not answer is left alone before it is tried again, and probeTimeout how long
	// that trial may take. It is less than slots are worth, since the other shards' grants wait for it.
	shunFor      = 500 * time.Millisecond
	probeTimeout = 50 * time.Millisecond
)

// errShunned is the error of what was not sent to a shard that does not answer.
var errShunned = errors.New("the shard did not answer lately")

// errClosed is the error of what was not sent to a shard whose data is not known to be in force.
var errClosed = errors.New("the shard's data is being looked for or rebuilt")

// shard is one of the engine's shards: its keys, its servers, and what it last said.
type shard struct {
	index   int
	keys    keys
	master  runner
	replica *runner // nil: none
	// shun lets a shard that does not answer be left alone for a while. An only shard is always asked: nobody waits
	// for it in vain.
	shun  bool
	clock shardClock
	// incarnation is that of the shard's data as far as this engine knows, 0 where it is not watched.
	incarnation atomic.Int64
	guard       *guard

	sem  *semaphore.Weighted
	mu   sync.Mutex
	free []*scriptSlot // used first come, first served, so that replies stay as long as possible; under mu
	kept kept          // under mu
	bad  time.Time     // until when the shard is left alone; under mu
}

type scriptSlot struct {
	index int
	seq   int64 // of the latest script; written by whoever holds the slot
}

func newShards(o *Options) []*shard {
	list := make([]*shard, o.Shards.Count())
	for i := range list {
		s := &shard{
			index: i, keys: newKeys(o.KeyPrefix, i), shun: len(list) > 1, sem: semaphore.NewWeighted(scriptSlots),
		}
		s.master = runner{
			client: o.Shards.Master(i), timeout: o.Timeout, clock: &s.clock, override: o.now, incarnation: s.incarnation.Load,
		}
		if c := o.Shards.Replica(i); c != nil {
			s.replica = &runner{
				client: c, timeout: o.Timeout, replica: true, override: o.now, incarnation: s.incarnation.Load,
			}
		}
		for k := range scriptSlots {
			s.free = append(s.free, &scriptSlot{index: k})
		}
		list[i] = s
	}
	return list
}

// run sends calls to the shard's master in one pipeline and leaves reply or error in each.
func (s *shard) run(ctx context.Context, script *script, calls []*call) {
	err := s.probe(ctx)
	if incarnation, open := s.guard.incarnation(s.index); open {
		s.incarnation.Store(incarnation)
	} else if err == nil {
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
		if errors.Is(c.err, errIncarnation) {
			s.guard.lost(s.index, c.head.incarnation)
		}
	}
	if lost && ctx.Err() == nil {
		s.mu.Lock()
		s.bad = time.Now().Add(shunFor)
		s.mu.Unlock()
	}
}

// probe says whether the shard is worth asking. While it is bad it is tried now and then, by one caller and briefly.
func (s *shard) probe(ctx context.Context) error {
	if !s.shun {
		return nil
	}
	s.mu.Lock()
	bad, now := s.bad, time.Now()
	due := !bad.IsZero() && !now.Before(bad)
	if due {
		s.bad = now.Add(shunFor)
	}
	s.mu.Unlock()
	if bad.IsZero() {
		return nil
	}
	if !due {
		return errShunned
	}
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	if err := s.master.client.Exists(ctx, s.keys.clock()).Err(); err != nil {
		return fmt.Errorf("%w: %w", errShunned, err)
	}
	s.mu.Lock()
	s.bad = time.Time{}
	s.mu.Unlock()
	return nil
}

// now is about what the shard's clock reads.
func (s *shard) now() int64 { return storeTime(&s.clock, s.master.override) }

// acquire takes n script slots and moves each to its next sequence number.
func (s *shard) acquire(ctx context.Context, n int) ([]*scriptSlot, error) {
	if err := s.sem.Acquire(ctx, int64(n)); err != nil {
		return nil, fmt.Errorf("wait for a script slot: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	slots := append([]*scriptSlot(nil), s.free[:n]...)
	s.free = s.free[n:]
	for _, slot := range slots {
		slot.seq++
	}
	return slots, nil
}

func (s *shard) release(slots []*scriptSlot) {
	s.mu.Lock()
	s.free = append(s.free, slots...)
	s.mu.Unlock()
	s.sem.Release(int64(len(slots)))
}

// each does f for shards, all at once, and joins the errors, which it marks with the shard where there are several.
func (e *Engine) each(shards []*shard, f func(*shard) error) error {
	errs := make([]error, len(shards))
	do := func(i int, s *shard) {
		if err := f(s); err != nil {
			errs[i] = err
			if len(e.shards) > 1 {
				errs[i] = fmt.Errorf("shard %d: %w", s.index, err)
			}
		}
	}
	if len(shards) == 1 {
		do(0, shards[0])
		return errs[0]
	}
	var wg sync.WaitGroup
	for i, s := range shards {
		wg.Go(func() { do(i, s) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// masters are the distinct clients of the shards' masters.
func (e *Engine) masters() []redis.UniversalClient {
	var list []redis.UniversalClient
	seen := map[redis.UniversalClient]bool{}
	for _, s := range e.shards {
		if c := s.master.client; !seen[c] {
			seen[c] = true
			list = append(list, c)
		}
	}
	return list
}
