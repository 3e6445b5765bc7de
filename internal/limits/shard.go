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
	// silentWait is how long callers wait for a shard that has just begun not to answer. Other shards' grants, and those
	// that are made without the store, wait for it.
	silentWait = 50 * time.Millisecond
	// lookEvery is the pause between two looks whether such a shard is back, and lookFor for how long that goes on when
	// nobody asks for the shard any more.
	lookEvery = 50 * time.Millisecond
	lookFor   = 5 * time.Second
)

// errSilent is the error of what was not sent to a shard that does not answer.
var errSilent = errors.New("the shard did not answer lately")

// errClosed is the error of what was not sent to a shard whose data is not known to be in force.
var errClosed = errors.New("the shard's data is being looked for or rebuilt")

// shard is one of the engine's shards: its keys, its servers, and what it last said.
type shard struct {
	index   int
	keys    keys
	master  runner
	replica *runner // nil: none
	clock   shardClock
	// incarnation is that of the shard's data as far as this engine knows, 0 where it is not watched.
	incarnation atomic.Int64
	guard       *guard
	told        atomic.Bool // whether callers have heard of the clock, without which a time of this shard means nothing

	sem  *semaphore.Weighted
	mu   sync.Mutex
	free []*scriptSlot // used first come, first served, so that replies stay as long as possible; under mu
	kept kept          // under mu

	ended    <-chan struct{} // closed when nobody is to look for it any more
	lookouts sync.WaitGroup

	back    chan struct{} // closed when the shard answers again; nil while it does; under mu
	since   time.Time     // when it began not to answer; under mu
	looking bool          // somebody is looking for it; under mu
	asked   time.Time     // when somebody last wanted it while it was away; under mu
}

type scriptSlot struct {
	index int
	seq   int64 // of the latest script; written by whoever holds the slot
}

func newShards(o *Options) []*shard {
	list := make([]*shard, o.Shards.Count())
	for i := range list {
		s := &shard{
			index: i, keys: newKeys(o.KeyPrefix, i), sem: semaphore.NewWeighted(scriptSlots),
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
	err := s.await(ctx)
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
		if s.back == nil {
			s.back, s.since = make(chan struct{}), time.Now()
		}
		s.mu.Unlock()
	}
}

// await waits a little for a shard that does not answer. While it is wanted, somebody looks for it in the background, so
// that callers need not try themselves whether it is back.
func (s *shard) await(ctx context.Context) error {
	s.mu.Lock()
	back, wait := s.back, silentWait-time.Since(s.since)
	if back != nil {
		s.asked = time.Now()
		if !s.looking {
			s.looking = true
			s.lookouts.Go(func() { s.look(context.WithoutCancel(ctx), back) })
		}
	}
	s.mu.Unlock()
	if back == nil {
		return nil
	}
	timer := time.NewTimer(max(0, wait))
	defer timer.Stop()
	select {
	case <-back:
		return nil
	case <-timer.C:
		return errSilent
	case <-ctx.Done():
		return fmt.Errorf("wait for a shard that does not answer: %w", ctx.Err())
	}
}

// look tries the shard until it answers, nobody wants it any more, or the engine ends, which waits for it.
func (s *shard) look(ctx context.Context, back chan struct{}) {
	for {
		try, cancel := context.WithTimeout(ctx, s.master.timeout)
		err := s.master.client.Exists(try, s.keys.clock()).Err()
		cancel()
		s.mu.Lock()
		found := err == nil || answered(err)
		stop := found || time.Since(s.asked) > lookFor
		if stop {
			s.looking = false
		}
		if found {
			s.back = nil
			close(back)
		}
		s.mu.Unlock()
		if stop {
			return
		}
		select {
		case <-time.After(lookEvery):
		case <-s.ended:
			s.mu.Lock()
			s.looking = false
			s.mu.Unlock()
			return
		}
	}
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
