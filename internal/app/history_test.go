package app

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/catalog"
)

// shelf counts what is asked of a history.
type shelf struct {
	added, pruned, usage, warned atomic.Int64
	away, follows                atomic.Bool
}

func (s *shelf) AddHistory(context.Context, func(string) float64) error {
	s.added.Add(1)
	if s.away.Load() {
		return errors.New("away")
	}
	return nil
}

func (s *shelf) PruneHistory(context.Context, time.Time) error {
	s.pruned.Add(1)
	return nil
}

func (s *shelf) PruneUsage(context.Context, time.Time) error {
	s.usage.Add(1)
	return nil
}

func (s *shelf) History(context.Context, catalog.HistoryOf) ([]catalog.HistoryStep, error) {
	return nil, nil
}

// TestTheLeaderKeepsTheHistory: every ten seconds, and prunes it now and then; an outage is told once.
func TestTheLeaderKeepsTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &shelf{}
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- keepHistory(ctx, store, func() bool { return !store.follows.Load() }, nil, func(error) { store.warned.Add(1) })
		}()
		after := func(d time.Duration, added, pruned, warned int64) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if a, p, w := store.added.Swap(0), store.pruned.Swap(0), store.warned.Swap(0); a != added || p != pruned || w != warned {
				t.Errorf("in %s: added %d, pruned %d, warned %d", d, a, p, w)
			}
		}
		after(10*time.Minute, 60, 2, 0)
		store.away.Store(true)
		after(10*time.Minute, 60, 0, 1)
		store.away.Store(false)
		after(time.Minute, 6, 1, 0)
		after(2*time.Hour, 720, 24, 0)
		if n := store.usage.Load(); n != 3 {
			t.Errorf("the use of quotas is pruned %d times in two hours and 21 minutes", n)
		}
		store.follows.Store(true)
		after(time.Hour, 0, 0, 0)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
