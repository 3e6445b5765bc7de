package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
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

// with calls f while nothing is written.
func (s *register) with(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// row is a row as a snapshot has it.
func (s *register) row(id string) *delivery.Destination {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rows[id]
}

func (s *register) states() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var list []string
	for _, id := range slices.Sorted(maps.Keys(s.rows)) {
		list = append(list, id+" "+s.rows[id].State().String())
	}
	return strings.Join(list, ", ")
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
	const day = 24 * time.Hour
	fails := func(sink string) func(*DestinationReports) {
		return func(r *DestinationReports) { r.Fails(sink, "a", time.Now().Add(-2*time.Hour), "500") }
	}
	briefly := func(r *DestinationReports) { r.Fails("hooks", "a", time.Now().Add(-time.Minute), "500") }
	works := func(r *DestinationReports) { r.Works("hooks", "a") }
	gone := func(r *DestinationReports) { r.Gone("hooks", "a", "410 Gone") }
	for name, tc := range map[string]struct {
		steps []func(*DestinationReports) // two days apart
		want  string
	}{
		"works":                                  {[]func(*DestinationReports){works, works}, "a enabled, b enabled"},
		"fails":                                  {[]func(*DestinationReports){fails("hooks")}, "a failing, b enabled"},
		"fails for four days":                    {[]func(*DestinationReports){fails("hooks"), fails("hooks"), fails("hooks")}, "a failing, b enabled"},
		"fails for six days":                     {[]func(*DestinationReports){fails("hooks"), fails("hooks"), fails("hooks"), fails("hooks")}, "a disabled, b enabled"},
		"fails, and then nothing":                {[]func(*DestinationReports){fails("hooks"), func(*DestinationReports) {}, func(*DestinationReports) {}, func(*DestinationReports) {}}, "a failing, b enabled"},
		"fails, nothing, and then fails briefly": {[]func(*DestinationReports){fails("hooks"), func(*DestinationReports) {}, func(*DestinationReports) {}, briefly}, "a failing, b enabled"},
		"fails, works":                           {[]func(*DestinationReports){fails("hooks"), works}, "a enabled, b enabled"},
		"fails, works, fails":                    {[]func(*DestinationReports){fails("hooks"), works, fails("hooks"), fails("hooks"), fails("hooks")}, "a failing, b enabled"},
		"fails, of a sink for ever":              {[]func(*DestinationReports){fails("for-ever"), fails("for-ever"), fails("for-ever"), fails("for-ever")}, "a failing, b enabled"},
		"fails, of a sink without any":           {[]func(*DestinationReports){fails("plain"), fails("plain")}, "a enabled, b enabled"},
		"gone":                                   {[]func(*DestinationReports){gone}, "a disabled, b enabled"},
		"gone, though it works":                  {[]func(*DestinationReports){works, gone, works}, "a disabled, b enabled"},
	} {
		t.Run(name, func(t *testing.T) {
			reported(t, func(s *register, r *DestinationReports) {
				for _, step := range tc.steps {
					step(r)
					pass(2 * day)
				}
				if got := s.states(); got != tc.want {
					t.Errorf("%s, want %s", got, tc.want)
				}
				reason := s.row("a").DisabledReason
				because := []string{"410 Gone", "has failed since 1999-12-31T22:00:00Z, for 120h0m0s; the last time: 500"}
				if s.row("a").Disabled() && !slices.ContainsFunc(because, func(part string) bool { return strings.Contains(reason, part) }) {
					t.Errorf("reason: %s", reason)
				}
				s.with(func() {
					if s.writes > len(tc.steps) {
						t.Errorf("%d writes", s.writes)
					}
				})
			})
		})
	}
}

// TestReportsWaitForTheStore: they are kept while it is away, are bounded, and what is no longer true is not written.
func TestReportsWaitForTheStore(t *testing.T) {
	reported(t, func(s *register, r *DestinationReports) {
		stateIs := func(id, want string) {
			t.Helper()
			if got := s.row(id).State().String(); got != want {
				t.Errorf("%s is %s, want %s", id, got, want)
			}
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
		var ids []string
		s.with(func() {
			s.away = true
			for i := range 2 * maxReports {
				ids = append(ids, fmt.Sprint("shop-", i))
				s.rows[ids[i]] = &delivery.Destination{ID: ids[i], Revision: 1}
			}
		})
		r.Fails("hooks", "a", time.Now(), "500")
		r.Gone("hooks", "b", "410")
		pass(10 * time.Minute)
		s.with(func() {
			if s.writes < 10 || s.writes > 600 {
				t.Errorf("%d tries in ten minutes", s.writes)
			}
		})
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
		s.with(func() {
			if n := pending(); s.most > maxReports || n != 0 {
				t.Errorf("%d in a write, %d are left", s.most, n)
			}
		})
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
				if got := s.row("b").State(); got != delivery.DestinationEnabled {
					t.Errorf("%s: %s", got, s.row("b").DisabledReason)
				}
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
		if got := s.row("a").State(); got != delivery.DestinationFailing {
			t.Fatal(got)
		}
		r.Works("hooks", "a")
		r.Works("hooks", "a")
		pass(time.Minute)
		if got := s.row("a").State(); got != delivery.DestinationEnabled {
			t.Error(got)
		}
		r.Works("hooks", "a")
		pass(time.Minute)
		s.with(func() {
			if n := r.count.Load(); n != 0 || s.writes != 2 {
				t.Errorf("%d are remembered, %d writes", n, s.writes)
			}
		})
	})
}

// TestManyAreDisabledBitByBit, so that no write lasts for long.
func TestManyAreDisabledBitByBit(t *testing.T) {
	reported(t, func(s *register, r *DestinationReports) {
		for i := range 3 * maxEnds {
			id := fmt.Sprint("shop-", i)
			s.with(func() { s.rows[id] = &delivery.Destination{ID: id, Revision: 1} })
			r.Gone("hooks", id, "410")
		}
		pass(time.Second / 2)
		s.with(func() {
			if s.writes > maxEnds {
				t.Errorf("%d at once", s.writes)
			}
		})
		pass(time.Minute)
		s.with(func() {
			if s.writes != 3*maxEnds {
				t.Errorf("%d in all", s.writes)
			}
		})
	})
}
