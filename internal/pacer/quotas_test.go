package pacer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// heavyJobs makes jobs with these weights.
func heavyJobs(p *partition, from delivery.Place, campaign string, first int64, weights ...int64) []*delivery.Job {
	list := jobs(p, from, campaign, first, len(weights))
	for i, w := range weights {
		list[i].Weight = w
	}
	return list
}

// under is a campaign under one quota.
func under(id string, perSecond int64, q delivery.Quota) delivery.Campaign {
	c := campaign(id, perSecond)
	c.Quotas = []*delivery.Quota{&q}
	return c
}

// TestQuotasThatDoNotBindChangeNothing: a quota may be only tried out, rolled out to nothing, or exceedable by a little. It condemns no
// job that weighs more than its limit, and it shortens neither the horizon nor the life of a slot.
func TestQuotasThatDoNotBindChangeNothing(t *testing.T) {
	w := []delivery.Window{{Span: time.Second, Limit: 5}}
	for name, tc := range map[string]struct {
		quota     delivery.Quota
		heaviest  int64
		asWithout bool // in all else the campaign is as without a quota
		model     bool // the reference model knows the mode
	}{
		"shadow":               {delivery.Quota{Mode: delivery.ModeShadow, Windows: w}, 1000, true, true},
		"rolled out to none":   {delivery.Quota{Exempt: 100, Windows: w}, 1000, true, true},
		"rolled out to others": {delivery.Quota{Exempt: 99, Windows: w}, 1000, true, true},
		"without windows":      {delivery.Quota{}, 1000, true, true},
		"eventual":             {delivery.Quota{Mode: delivery.ModeEventual, Windows: w}, 1000, true, false},
		"bytes":                {delivery.Quota{Mode: delivery.ModeEventual, Unit: delivery.UnitBytes, Windows: w}, 1000, true, false},
		"strict":               {delivery.Quota{Windows: w}, 5, false, true},
	} {
		t.Run(name, func(t *testing.T) {
			tc.quota.ID, tc.quota.Revision = "q", 1
			c := under("c", 1000, tc.quota)
			one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
				f.offer(t, heavyJobs(newPartition("in/0"), delivery.FromIngress, "c", 0, tc.heaviest, tc.heaviest+1))
				time.Sleep(4 * time.Second)
				if n := f.outboxes[0].count(delivery.ToDead, delivery.ReasonOverweight); n != 1 { // above max_weight where no quota binds
					t.Errorf("jobs of weight %d and %d: %d dead letters, want 1", tc.heaviest, tc.heaviest+1, n)
				}
				if n := f.count("c"); tc.model && n != 1 {
					t.Errorf("%d jobs sent, want that of weight %d", n, tc.heaviest)
				}
				p, free := f.daemons[0], campaign("c", 1000)
				p.inbox.do(func(instant) { // the goroutine that Run has
					if got := p.quantum.horizon(&c) == p.quantum.horizon(&free); got != tc.asWithout {
						t.Errorf("horizon %d us, %d without a quota", p.quantum.horizon(&c), p.quantum.horizon(&free))
					}
				})
				late, freely := p.opt.lateBy(&c, delivery.PerSecond(1)), p.opt.lateBy(&free, delivery.PerSecond(1))
				if got := late == freely; got != tc.asWithout {
					t.Errorf("slots may be %d us late, %d without a quota", late, freely)
				}
				synctest.Wait()
			})
		})
	}
}

// TestALimitBelowAJobsWeight: a limit is lowered below the weight of jobs that wait for their turn, and of one that comes back
// from its sink. They are dead letters, and those behind them are sent.
func TestALimitBelowAJobsWeight(t *testing.T) {
	with := func(revision, limit int64) delivery.Campaign {
		return under("c", 100, delivery.Quota{ID: "q", Revision: revision, Windows: []delivery.Window{{Span: 10 * time.Second, Limit: limit}}})
	}
	one(t, newBook(with(1, 100)), nil, func(t *testing.T, f *fleet) {
		late := delivery.Result{Class: delivery.Withheld} // its slot has passed, on the way
		f.receiver.setAnswer(answering(late, func(j *delivery.Job) bool { return j.Weight == 60 }))
		f.receiver.setLatency(3 * time.Second)
		f.offer(t, heavyJobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 60))
		f.offer(t, heavyJobs(newPartition("lane/1"), delivery.FromLane, "c", 0, 50, 40, 1, 1, 1, 21, 20, 1))
		time.Sleep(2 * time.Second)
		f.book.set(with(2, 20))
		f.receiver.setLatency(time.Millisecond)
		time.Sleep(time.Minute)
		before := f.store.taken()
		dead := f.outboxes[0].count(delivery.ToDead, delivery.ReasonOverweight)
		exactly(t, dead, 4, "dead letters")
		exactly(t, len(sorted(f.receiver.history(), "c"))-1, 5, "others sent")
		if time.Sleep(time.Minute); f.store.taken() > before {
			t.Errorf("%d takes in a minute in which nothing waits", f.store.taken()-before)
		}
	})
}

// TestALimitOfNothingIsAskedForSeldom: nothing but a change helps.
func TestALimitOfNothingIsAskedForSeldom(t *testing.T) {
	with := func(revision, limit int64) delivery.Campaign {
		return under("c", 100, delivery.Quota{ID: "q", Revision: revision, Windows: []delivery.Window{{Span: time.Hour, Limit: limit}}})
	}
	one(t, newBook(with(1, 0)), nil, func(t *testing.T, f *fleet) {
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 5))
		time.Sleep(100 * time.Second)
		atMost(t, f.store.taken(), 110, "takes in 100 s")
		f.book.set(with(2, 10))
		time.Sleep(time.Second)
		exactly(t, f.count("c"), 5, "sent a second after the limit was raised")
	})
}

// TestAQuotaRemovedDuringATake: a campaign waits for a quota that is used up for an hour. The quota is taken away while a take is under way, or
// when none is. The jobs go at once.
func TestAQuotaRemovedDuringATake(t *testing.T) {
	for name, after := range map[string]time.Duration{"no take under way": 500 * time.Millisecond, "a take under way": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := under("c", 10, delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: time.Hour, Limit: 3}}})
				f := newFleet(1, uniform(3, 50*time.Millisecond, 0), newBook(c), nil) // of one way: a take lasts 100 ms
				defer f.stop()
				in := newPartition("in")
				f.offer(t, f.counted(0, jobs(in, delivery.FromLane, "c", 0, 10)))
				time.Sleep(5 * time.Second)
				begun := f.store.taken()
				for f.store.taken() == begun { // the take is at the store
					time.Sleep(time.Millisecond)
				}
				time.Sleep(after)
				sent := f.count("c")
				c.Quotas = nil
				f.book.set(c)
				begin := time.Now()
				for f.count("c") == sent && time.Since(begin) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				atMost(t, time.Since(begin), time.Second, "until the first job goes when the quota was taken away")
			})
		})
	}
}
