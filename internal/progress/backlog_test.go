package progress

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/testservices"
)

// TestTheBacklogIsDivided: what waits is not tried yet, retried or in flight, wherever it is, and the sum counts each job once. What lies in timers
// is not late, and the campaign is not done before it is due.
func TestTheBacklogIsDivided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, _ := alone(catalogOf(campaign("c", 10, 1), campaign("far", 10, 1)))
		due := time.Now().Add(time.Hour)
		of := func(id string, jobs, unread, retrying int64, due time.Time) delivery.CampaignCount {
			return delivery.CampaignCount{Campaign: delivery.CampaignHash(id), Jobs: jobs, Unread: unread, Retrying: retrying, Due: due.UnixMicro()}
		}
		m.lane(1, 0, "c", 100)
		m.lanes.Ingress = []delivery.CampaignCount{of("c", 20, 5, 0, time.Now())}
		m.lanes.Timers = []delivery.CampaignCount{of("c", 40, 30, 25, time.Now()), of("far", 3, 3, 0, due)}
		m.held = []delivery.MemoryJobs{{Campaign: "c", Jobs: 50, Units: 50, Retrying: 7, Early: 3, InHand: 4}}
		m.exchange(t.Context())
		b, want := m.board.Load().Of(m.snapshot.Campaign("c")), delivery.Backlog{Waiting: 160 - 32 - 4, Retrying: 32, InFlight: 4}
		if b.Backlog != want || b.Early != 33 || b.InHand != 4 {
			t.Errorf("%+v, want %+v of 160, 33 early", b, want)
		}
		if ready := m.board.Load().totals[delivery.CampaignHash("c")].ready(); ready != 160-33-4 {
			t.Errorf("%d jobs could be sent", ready)
		}
		for i, want := range backlogOf(want) {
			if got := testutil.ToFloat64(m.metrics.backlog[i].WithLabelValues("c")); got != float64(want) {
				t.Errorf("%s: %v, want %d", states[i], got, want)
			}
		}
		m.shows(t, "c", 160, 16)
		m.shows(t, "far", 3, 3600)
		time.Sleep(time.Minute)
		m.exchange(t.Context())
		if late := m.late; late.Jobs > 160-33-4 {
			t.Errorf("%+v", late)
		}
		if a, held := m.holds.of("far"); held {
			t.Errorf("%+v holds a campaign whose jobs are in a timer", a)
		}
		time.Sleep(time.Minute)
		m.held[0].InHand, m.lanes = 9, delivery.LanesBacklog{} // reported a moment apart
		m.lane(1, 0, "c", 5)
		m.exchange(t.Context())
		if got := m.board.Load().Of(m.snapshot.Campaign("c")).Backlog; got != (delivery.Backlog{InFlight: 5}) {
			t.Errorf("%+v of 5", got)
		}
		if a, held := m.holds.of("c"); held && a.Cause == hold.Lane {
			t.Errorf("%+v", a)
		}
	})
}

// TestLostCountsAreMadeGood: what a killed daemon had delivered and not saved is counted in the log once nothing is left, and never otherwise.
func TestLostCountsAreMadeGood(t *testing.T) {
	for name, tc := range map[string]struct {
		saved, published, left int64
		fails                  error
		want                   int64
	}{
		"lost":                 {saved: 995, published: 1000, want: 1000},
		"not all published":    {saved: 995, published: 997, want: 997},
		"slowly published":     {saved: 995, published: 995, want: 995},
		"more than expected":   {saved: 995, published: 1200, want: 1000},
		"something is left":    {saved: 995, published: 1000, left: 1, want: 995},
		"far from done":        {saved: 700, published: 1000, want: 700},
		"nothing is lost":      {saved: 1000, published: 1000, want: 1000},
		"it cannot be counted": {saved: 995, published: 1000, fails: errors.New("too much"), want: 995},
	} {
		t.Run(name, func(t *testing.T) {
			if name != "lost" {
				testservices.Simulation(t)
			}
			synctest.Test(t, func(t *testing.T) {
				c := campaign("c", 10, 1)
				c.ExpectedTotal = 1000
				m, _ := alone(catalogOf(c))
				var counts atomic.Int64
				m.recounts.count = func(context.Context, string) (int64, map[string]int64, error) {
					counts.Add(1)
					return tc.published, nil, tc.fails
				}
				store := m.opt.Store.(*shelf)
				store.settled["c"] = delivery.Settled{delivery.OutcomeDelivered: tc.saved - 3, delivery.OutcomeDead: 3}
				if tc.left > 0 {
					m.direct("c", tc.left)
				}
				stop := m.start(t)
				time.Sleep(time.Minute)
				synctest.Wait()
				all, _ := store.LoadSettled(t.Context(), nil)
				if got := all["c"]; got.Total() != tc.want || got[delivery.OutcomeDead] != 3 {
					t.Errorf("%+v, want %d in all", got, tc.want)
				}
				time.Sleep(5 * time.Minute)
				if n := counts.Load(); n > 3 { // in six minutes
					t.Errorf("counted %d times", n)
				}
				stop()
			})
		})
	}
}

// TestWhatAKilledDaemonSent: is counted once it rests, also without an expected total; what one sent that drained, or runs, is not. A difference
// that a killed daemon does not explain is none of its own.
func TestWhatAKilledDaemonSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := recounts{killed: map[string]bool{}, asked: map[string]time.Time{}, wanted: make(chan recount, 1), log: slog.New(slog.DiscardHandler)}
		published := int64(1000)
		r.count = func(context.Context, string) (int64, map[string]int64, error) {
			return published, map[string]int64{"shop": 600, "cafe": 100, "also of others": 300, "made anew": 900}, nil
		}
		snapshot, byHash := catalogOf(campaign("killed", 10, 1), campaign("drained", 10, 1), campaign("runs", 10, 1)), map[uint64]*delivery.Campaign{}
		for id, c := range snapshot.Campaigns {
			byHash[delivery.CampaignHash(id)] = c
		}
		of := func(id string, ready bool, age time.Duration) reported {
			return reported{part: &part{Nodes: []Daemon{{Ready: ready}}, Tallies: map[uint64]tally{delivery.CampaignHash(id): {Sent: 5}}}, age: age}
		}
		r.died([]reported{of("killed", true, freshFor), of("drained", false, freshFor), of("runs", true, 0)}, byHash)
		if ids := r.ids(); len(ids) != 1 || ids[0] != "killed" {
			t.Fatalf("%v were being sent by a killed daemon", ids)
		}
		store := newShelf()
		store.settled["killed"] = delivery.Settled{delivery.OutcomeDelivered: 950}
		store.settled["to shop"], store.settled["to cafe"] = delivery.Settled{delivery.OutcomeDelivered: 560}, delivery.Settled{delivery.OutcomeDelivered: 90}
		store.settled["to also of others"] = delivery.Settled{delivery.OutcomeDelivered: 400}
		look := func(left int64) {
			r.look(time.Now(), r.suspects(snapshot, nil), func(*delivery.Campaign) int64 { return left }, func(id string) int64 { return store.settled[id].Total() })
			select {
			case one := <-r.wanted:
				if err := r.mend(t.Context(), one, func() bool { return true }, store); err != nil {
					t.Error(err)
				}
			default:
			}
		}
		for range 60 {
			look(1) // it does not rest
			time.Sleep(time.Second)
		}
		look(0)
		time.Sleep(restFor)
		if look(0); store.settled["killed"].Total() != 1000 {
			t.Errorf("%+v, want 1000", store.settled)
		}
		for id, n := range map[string]int64{"shop": 600, "cafe": 100, "also of others": 400, "made anew": 0} {
			if got := store.settled["to "+id].Total(); got != n {
				t.Errorf("%d settled of %s, want %d", got, id, n)
			}
		}
		published, store.settled["killed"] = 40, delivery.Settled{} // it was killed before it had saved anything
		time.Sleep(recountAgain)
		r.killed["killed"] = true
		look(0)
		time.Sleep(restFor)
		if look(0); store.settled["killed"].Total() != 40 {
			t.Errorf("%+v, want 40 though nothing was saved", store.settled["killed"])
		}
		store.settled["killed"] = delivery.Settled{delivery.OutcomeDelivered: 1000}
		time.Sleep(recountAgain)
		published = 5000
		r.killed["killed"] = true
		for range 300 {
			look(0)
			time.Sleep(time.Second)
		}
		if store.settled["killed"].Total() != 1000 {
			t.Errorf("%+v, though it sends 10 a second", store.settled)
		}
	})
}

// TestACampaignThatGoesOnIsNotMended: what was settled while its jobs were counted may be in both counts.
func TestACampaignThatGoesOnIsNotMended(t *testing.T) {
	store := newShelf()
	r := recounts{log: slog.New(slog.DiscardHandler)}
	store.settled["c"] = delivery.Settled{delivery.OutcomeDelivered: 995}
	r.count = func(context.Context, string) (int64, map[string]int64, error) {
		store.settled["c"] = delivery.Settled{delivery.OutcomeDelivered: 998}
		return 1000, nil, nil
	}
	for leads, settled := range map[bool]int64{true: 995, false: 998} {
		if err := r.mend(t.Context(), recount{campaign("c", 10, 1), settled}, func() bool { return leads }, store); err != nil || store.settled["c"].Total() != 998 {
			t.Errorf("%+v, %v", store.settled, err)
		}
	}
}
