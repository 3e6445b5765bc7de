package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// register is pacer.destinations as one daemon sees it.
type register struct {
	mu     sync.Mutex
	rows   map[string]*delivery.Destination
	away   bool
	writes int
	most   int // destinations in one write
	ended  map[string]time.Time

	before func(id string) // is called before one is disabled
}

func (s *register) NoteFailing(_ context.Context, since map[string]time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.away {
		return errors.New("down")
	}
	s.most = max(s.most, len(since))
	for id, at := range since {
		s.change(id, func(e *delivery.Destination) {
			switch ended := s.ended[id]; {
			case e.Disabled() && at.IsZero() && time.Since(ended) < time.Minute:
				e.DisabledAt, e.DisabledReason, e.FailingSince = 0, "", 0
			case !e.Disabled() && (e.FailingSince == 0 || at.IsZero()):
				e.FailingSince = delivery.StampOf(at)
			}
		})
	}
	return nil
}

func (s *register) DisableFailing(_ context.Context, id string, seen int64, reason string) (bool, error) {
	if s.before != nil {
		s.before(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.away {
		return false, errors.New("down")
	}
	if e := s.rows[id]; e == nil || e.Disabled() || e.Revision != seen {
		return false, nil
	}
	s.ended[id] = time.Now()
	s.change(id, func(e *delivery.Destination) { e.DisabledAt, e.DisabledReason = delivery.StampOf(time.Now()), reason })
	return true, nil
}

func (s *register) change(id string, mutate func(*delivery.Destination)) {
	if e := s.rows[id]; e != nil {
		row := *e
		mutate(&row)
		row.Revision++
		s.rows[id] = &row
	}
}

// shops adds that many rows, and returns their ids.
func (s *register) shops(n int) (ids []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range n {
		ids = append(ids, fmt.Sprint("shop-", i))
		s.rows[ids[i]] = &delivery.Destination{ID: ids[i], Revision: 1}
	}
	return ids
}

// with calls f while nothing is written.
func (s *register) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// written is how many writes there were.
func (s *register) written() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.writes
}

// row is a row as a snapshot has it.
func (s *register) row(id string) *delivery.Destination {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[id]
}

// reported runs the reports of a daemon about the destinations a and b. Those of the sink "plain" have no rows, and "for-ever" disables none.
func reported(t *testing.T, play func(s *register, r *DestinationReports)) {
	synctest.Test(t, func(t *testing.T) {
		s := &register{ended: map[string]time.Time{}, rows: map[string]*delivery.Destination{"a": {ID: "a", Revision: 1}, "b": {ID: "b", Revision: 2}}}
		r := NewDestinationReports(s, s.row, map[string]time.Duration{"hooks": 5 * 24 * time.Hour, "for-ever": 0}, slog.New(slog.DiscardHandler))
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		play(s, r)
		cancel()
		must(t, <-done)
	})
}

// pass lets a time pass, and all that happens in it.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// TestWhatBecomesOfDestinationsIsWrittenDown, and one that fails for too long, or wants no more, is disabled.
func TestWhatBecomesOfDestinationsIsWrittenDown(t *testing.T) {
	fails := func(r *DestinationReports, sink string, since time.Duration) {
		r.Fails(sink, "a", time.Now().Add(-since), "500")
	}
	steps := map[string]func(*DestinationReports){
		"works": func(r *DestinationReports) { r.Works("hooks", "a") }, "gone": func(r *DestinationReports) { r.Gone("hooks", "a", "410 Gone") },
		"fails":       func(r *DestinationReports) { fails(r, "hooks", 2*time.Hour) },
		"briefly":     func(r *DestinationReports) { fails(r, "hooks", time.Minute) },
		"for-ever":    func(r *DestinationReports) { fails(r, "for-ever", 2*time.Hour) }, // of a sink that disables none
		"without-any": func(r *DestinationReports) { fails(r, "plain", 2*time.Hour) },    // of a sink without destinations
		"nothing":     func(*DestinationReports) {},
	}
	for _, tc := range []struct{ steps, want string }{ // two days apart
		{"works works", "enabled"},
		{"fails", "failing"},
		{"fails fails fails", "failing"}, // for four days
		{"fails fails fails fails", "disabled"},
		{"fails nothing nothing nothing", "failing"},
		{"fails nothing nothing briefly", "failing"},
		{"fails works", "enabled"},
		{"fails works fails fails fails", "failing"},
		{"for-ever for-ever for-ever for-ever", "failing"},
		{"without-any without-any", "enabled"},
		{"gone", "disabled"},
		{"works gone works", "disabled"},
	} {
		t.Run(tc.steps, func(t *testing.T) {
			reported(t, func(s *register, r *DestinationReports) {
				words := strings.Fields(tc.steps)
				for _, step := range words {
					steps[step](r)
					pass(2 * day)
				}
				equal(t, "states", []string{s.row("a").State().String(), s.row("b").State().String()}, []string{tc.want, "enabled"})
				reason := "has failed since 1999-12-31T22:00:00Z, for 120h0m0s; the last time: 500"
				if strings.Contains(tc.steps, "gone") {
					reason = "410 Gone"
				}
				if row := s.row("a"); row.Disabled() && !strings.Contains(row.DisabledReason, reason) || s.written() > len(words) {
					t.Errorf("%d writes, the reason is %s", s.written(), row.DisabledReason)
				}
			})
		})
	}
}

// TestReportsWaitForTheStore: they are kept while it is away, are bounded, and what is no longer true is not written.
func TestReportsWaitForTheStore(t *testing.T) {
	reported(t, func(s *register, r *DestinationReports) {
		stateIs := func(id, want string) {
			t.Helper()
			equal(t, id, s.row(id).State().String(), want)
		}
		pending := func() (n int) {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, p := range r.reports {
				if p.works || !p.fails.IsZero() {
					n++
				}
			}
			return n
		}
		ids := s.shops(2 * maxReports)
		s.with(func() { s.away = true })
		r.Fails("hooks", "a", time.Now(), "500")
		r.Gone("hooks", "b", "410")
		pass(10 * time.Minute)
		if n := s.written(); n < 10 || n > 600 {
			t.Errorf("%d tries in ten minutes", n)
		}
		r.Works("hooks", "a")
		r.Fails("hooks", "shop-1", time.Now(), "500")
		s.with(func() { s.away = false })
		pass(time.Minute)
		stateIs("a", "enabled")
		stateIs("shop-1", "failing")
		stateIs("b", "enabled") // others may have had a success meanwhile
		r.Gone("hooks", "b", "410")
		pass(time.Minute)
		stateIs("b", "disabled")
		s.with(func() { s.away, s.writes = true, 0 })
		for _, id := range ids {
			r.Fails("hooks", id, time.Now(), "500")
		}
		pass(0)
		if n := pending(); n > maxReports || n < maxReports-2 { // some are remembered from before
			t.Errorf("%d reports wait", n)
		}
		s.with(func() { s.away = false })
		pass(time.Minute)
		equal(t, "what is left", pending(), 0)
		s.with(func() {
			if s.most > maxReports {
				t.Errorf("%d in a write", s.most)
			}
		})
	})
}

// TestWhatIsWrittenMakesRoom: what is remembered is bounded, and forgotten once the snapshot shows it. Then others are noted.
func TestWhatIsWrittenMakesRoom(t *testing.T) {
	reported(t, func(s *register, r *DestinationReports) {
		for _, id := range s.shops(maxReports) {
			r.Fails("hooks", id, time.Now(), "500")
		}
		pass(10 * time.Minute)
		equal(t, "what is remembered", r.count.Load(), 0)
		r.Fails("hooks", "a", time.Now(), "500")
		pass(time.Minute)
		equal(t, "one more", s.row("a").State(), delivery.DestinationFailing)
	})
}

// TestASuccessIsStrongerThanAnEnd, whenever it comes before the daemon sees that the destination is disabled.
func TestASuccessIsStrongerThanAnEnd(t *testing.T) {
	for name, play := range map[string]func(s *register, r *DestinationReports){
		"just before": func(_ *register, r *DestinationReports) {
			r.Works("hooks", "b")
			r.Fails("hooks", "b", time.Now().Add(-10*24*time.Hour), "500")
		},
		"just before, and gone": func(_ *register, r *DestinationReports) {
			r.Works("hooks", "b")
			r.Gone("hooks", "b", "410")
		},
		"while another one is disabled": func(s *register, r *DestinationReports) {
			s.before = func(id string) {
				if id == "a" {
					r.Works("hooks", "b")
				}
			}
			r.Gone("hooks", "a", "410")
			r.Gone("hooks", "b", "410")
		},
		"while it is disabled": func(s *register, r *DestinationReports) {
			s.before = func(id string) { r.Works("hooks", id) }
			r.Fails("hooks", "b", time.Now().Add(-2*time.Hour), "500")
		},
		"while it is disabled, and gone": func(s *register, r *DestinationReports) {
			s.with(func() { s.rows["b"].FailingSince = 0 })
			s.before = func(id string) { r.Works("hooks", id) }
			r.Gone("hooks", "b", "410")
		},
		"before the snapshot shows that it is disabled": func(s *register, r *DestinationReports) {
			old := s.row("b")
			r.row = func(string) *delivery.Destination { return old }
			r.Gone("hooks", "b", "410")
			pass(time.Second)
			r.Works("hooks", "b")
		},
		"when the snapshot shows that another daemon has disabled it": func(s *register, r *DestinationReports) {
			_, _ = s.DisableFailing(t.Context(), "b", s.row("b").Revision, "410")
			r.Works("hooks", "b")
		},
		"while another one cannot be disabled": func(s *register, r *DestinationReports) {
			s.before = func(id string) {
				if id == "a" {
					r.Works("hooks", "b")
					s.with(func() { s.away = true })
				}
			}
			r.Gone("hooks", "a", "410")
			r.Gone("hooks", "b", "410")
			pass(time.Minute)
			s.with(func() { s.away = false })
		},
	} {
		t.Run(name, func(t *testing.T) {
			reported(t, func(s *register, r *DestinationReports) {
				s.with(func() { s.rows["b"].FailingSince = delivery.StampOf(time.Now().Add(-10 * 24 * time.Hour)) })
				r.Fails("hooks", "a", time.Now(), "500")
				pass(reportsEvery / 2) // nothing is written for as long again, however play is interrupted
				play(s, r)
				pass(time.Minute)
				equal(t, "the other, disabled because of "+s.row("b").DisabledReason, s.row("b").State(), delivery.DestinationEnabled)
			})
		})
	}
}

// TestASuccessRightAfterAFailureIsWrittenDown, though the daemon's snapshot does not show the failure yet.
func TestASuccessRightAfterAFailureIsWrittenDown(t *testing.T) {
	reported(t, func(s *register, r *DestinationReports) {
		old := s.row("a")
		r.row = func(string) *delivery.Destination { return old }
		r.Fails("hooks", "a", time.Now(), "500")
		pass(time.Second / 2)
		equal(t, "after a failure", s.row("a").State(), delivery.DestinationFailing)
		r.Works("hooks", "a")
		r.Works("hooks", "a")
		pass(time.Minute)
		equal(t, "after a success", s.row("a").State(), delivery.DestinationEnabled)
		r.Works("hooks", "a")
		pass(time.Minute)
		equal(t, "what is remembered, and writes", []int{int(r.count.Load()), s.written()}, []int{0, 2})
	})
}

// TestManyAreDisabledBitByBit, so that no write lasts for long.
func TestManyAreDisabledBitByBit(t *testing.T) {
	reported(t, func(s *register, r *DestinationReports) {
		for _, id := range s.shops(3 * maxEnds) {
			r.Gone("hooks", id, "410")
		}
		pass(time.Second / 2)
		if n := s.written(); n > maxEnds {
			t.Errorf("%d at once", n)
		}
		pass(time.Minute)
		equal(t, "writes in all", s.written(), 3*maxEnds)
	})
}
