package app

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/catalog"
)

// shelf counts what is asked of a history.
type shelf struct {
	added, pruned int
	fail          error
}

func (s *shelf) AddHistory(context.Context, func(string) float64) error {
	s.added++
	return s.fail
}

func (s *shelf) PruneHistory(context.Context, time.Time) error {
	s.pruned++
	return nil
}

func (s *shelf) History(context.Context, catalog.HistoryOf) ([]catalog.HistoryStep, error) {
	return nil, nil
}

// TestTheLeaderKeepsTheHistory: every ten seconds, and prunes it now and then; an outage is told once.
func TestTheLeaderKeepsTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, leads, warned := &shelf{}, true, 0
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- keepHistory(ctx, store, func() bool { return leads }, nil, func(error) { warned++ })
		}()
		after := func(d time.Duration, added, pruned, told int) {
			t.Helper()
			*store, warned = shelf{fail: store.fail}, 0
			time.Sleep(d)
			synctest.Wait()
			if store.added != added || store.pruned != pruned || warned != told {
				t.Errorf("in %s: added %d, pruned %d, warned %d", d, store.added, store.pruned, warned)
			}
		}
		after(10*time.Minute, 60, 2, 0)
		store.fail = errors.New("away")
		after(10*time.Minute, 60, 0, 1)
		store.fail = nil
		after(time.Minute, 6, 1, 0)
		leads = false
		after(time.Hour, 0, 0, 0)
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
