package pacer

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

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
				exactly(t, f.dead(delivery.ReasonOverweight), 1, "dead letters: above max_weight where no quota binds")
				if tc.model {
					exactly(t, f.count("c"), 1, "sent, that of weight %d", tc.heaviest)
				}
				p, free := f.daemons[0], campaign("c", 1000)
				p.inbox.do(func(instant) { // the goroutine that Run has
					if got := p.quantum.horizon(&c) == p.quantum.horizon(&free); got != tc.asWithout {
						t.Errorf("horizon %d us, %d without a quota", p.quantum.horizon(&c), p.quantum.horizon(&free))
					}
				})
				late, freely := p.opt.lateBy(&c, delivery.PerSecond(1)), p.opt.lateBy(&free, delivery.PerSecond(1))
				exactly(t, late == freely, tc.asWithout, "slots may be %d us late, %d without a quota: the same", late, freely)
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
		time.Sleep(time.Minute)
		exactly(t, f.store.taken(), before, "takes after a minute in which nothing waits")
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
			c := under("c", 10, delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: time.Hour, Limit: 3}}})
			one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
				f.store.latency = uniform(3, 50*time.Millisecond, 0) // of one way: a take lasts 100 ms
				f.offered(t, delivery.FromLane, "c", 10)
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

// mostIn is the most units that were sent within any span, in microseconds.
func mostIn(sent []arrival, span int64) (most int64) {
	sent = slices.Clone(sent)
	slices.SortFunc(sent, func(a, b arrival) int { return int(a.at - b.at) })
	var units int64
	first := 0
	for _, a := range sent {
		units += a.weight
		for sent[first].at <= a.at-span {
			units -= sent[first].weight
			first++
		}
		most = max(most, units)
	}
	return most
}

// inMemory is what the first daemon has in memory of the campaign, or of all together.
func (f *fleet) inMemory(t *testing.T, campaign ...string) (sum delivery.MemoryJobs) {
	t.Helper()
	list, err := f.daemons[0].InMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list {
		if len(campaign) == 0 || m.Campaign == campaign[0] {
			sum.Jobs, sum.Units, sum.Early, sum.InHand = sum.Jobs+m.Jobs, sum.Units+m.Units, sum.Early+m.Early, sum.InHand+m.InHand
			sum.Retrying, sum.Turn = sum.Retrying+m.Retrying, m.Turn
		}
	}
	return sum
}

// TestSlotsOfAHeavyJobThatHasGone: a job of 380 units has expired when the first of its slots comes. Light jobs would use the
// slots for 38 seconds, and the window, which is shorter, would lose the units meanwhile.
func TestSlotsOfAHeavyJobThatHasGone(t *testing.T) {
	const limit = 400
	q := delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: 10 * time.Second, Limit: limit}}}
	one(t, newBook(under("slow", 10, q), under("fast", 1000, q)), nil, func(t *testing.T, f *fleet) {
		lane := f.offered(t, delivery.FromLane, "slow", 10)
		for f.count("slow") < 3 {
			time.Sleep(time.Millisecond)
		}
		heavy := heavyJobs(lane, delivery.FromLane, "slow", 100, 380)
		heavy[0].Priority, heavy[0].ExpiresAt = delivery.PriorityHigh, time.Now().Add(60*time.Millisecond)
		f.offer(t, heavy)
		time.Sleep(700 * time.Millisecond)
		f.store.mu.Lock()
		left := f.store.model.Peek(f.store.now(), f.daemons[0].campaigns.snapshot.Campaign("slow").Quotas)[0].Remaining
		f.store.mu.Unlock()
		if f.outboxes[0].count(delivery.ToDead, delivery.ReasonExpired) != 1 || left < limit-20 {
			t.Errorf("%d jobs expired; %d units of %d remain", f.outboxes[0].count(delivery.ToDead, delivery.ReasonExpired), left, limit)
		}
		for next := int64(1000); next < 21_000; next += 100 { // 20 s in which both always have jobs
			f.offer(t, jobs(lane, delivery.FromLane, "slow", next, max(0, 20-int(f.inMemory(t, "slow").Jobs))))
			f.offer(t, jobs(lane, delivery.FromLane, "fast", 100_000+2*next, max(0, 200-int(f.inMemory(t, "fast").Jobs))))
			time.Sleep(100 * time.Millisecond)
		}
		atMost(t, mostIn(f.receiver.history(), 10_000_000), limit, "units within 10 s, the limit is %d", limit)
		atLeast(t, f.count("slow"), 40, "jobs of the slow campaign were sent in 20 s")
	})
}

// TestAHeavyJobKeepsItsSlots: a light job of high priority comes when a heavy one has been granted its slots. If it took one of
// them, the others would be lost, and the heavy job would wait as long again.
func TestAHeavyJobKeepsItsSlots(t *testing.T) {
	one(t, newBook(campaign("c", 10)), nil, func(t *testing.T, f *fleet) {
		lane := f.offered(t, delivery.FromLane, "c", 3)
		for f.count("c") < 3 {
			time.Sleep(time.Millisecond)
		}
		f.offer(t, heavyJobs(lane, delivery.FromLane, "c", 100, 300))
		time.Sleep(70 * time.Millisecond) // its slots have been granted, and the first has not come
		light := jobs(lane, delivery.FromLane, "c", 300, 1)
		light[0].Priority = delivery.PriorityHigh
		f.offer(t, light)
		time.Sleep(time.Second)
		if sent := sorted(f.receiver.history(), "c"); len(sent) != 4 || sent[3].weight != 300 {
			t.Errorf("%d sent, want the heavy job as the fourth", len(sent))
		}
		time.Sleep(30 * time.Second)
		exactly(t, f.count("c"), 5, "sent after the heavy job's slots have passed")
	})
}

// TestAJobAsHeavyAsItsQuotaIsSent: its slots take longer than the window, so that a campaign of its rate uses less than the limit. If only
// so much was kept for it, the other campaign would take the last unit each time.
func TestAJobAsHeavyAsItsQuotaIsSent(t *testing.T) {
	const limit = 20
	for _, rate := range []int64{1, 10, 18, 25, 100} {
		q := delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: time.Second, Limit: limit}}}
		one(t, newBook(under("heavy", rate, q), under("light", 500, q)), nil, func(t *testing.T, f *fleet) {
			lane := newPartition("lane/0")
			f.offer(t, jobs(lane, delivery.FromLane, "light", 1000, 1000))
			time.Sleep(3 * time.Second)
			f.offer(t, heavyJobs(lane, delivery.FromLane, "heavy", 0, limit))
			time.Sleep(time.Minute)
			if heavy, light := f.count("heavy"), f.count("light"); heavy != 1 || light < 900 {
				t.Errorf("at %d/s, %d heavy and %d light jobs were sent within a minute", rate, heavy, light)
			}
		})
	}
}

// TestHeavyJobsUnderAQuota: with any weights, priorities and expiries, no span carries more than the limit, the rate is kept, and every
// job that does not expire is sent.
func TestHeavyJobsUnderAQuota(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.Int64Range(5, 200).Draw(rt, "rate")
		span := time.Duration(rapid.IntRange(1, 8).Draw(rt, "span")) * time.Second
		limit := rapid.Int64Range(20, 300).Draw(rt, "limit")
		type offered struct {
			weight  int64
			high    bool
			expires time.Duration
			after   time.Duration
		}
		var list []offered
		for range rapid.IntRange(5, 40).Draw(rt, "jobs") {
			list = append(list, offered{
				weight:  rapid.OneOf(rapid.Just[int64](1), rapid.Int64Range(1, min(limit, 60))).Draw(rt, "weight"),
				high:    rapid.Bool().Draw(rt, "high"),
				expires: time.Duration(rapid.SampledFrom([]int{0, 0, 30, 60, 100, 500}).Draw(rt, "expires")) * time.Millisecond,
				after:   time.Duration(rapid.SampledFrom([]int{0, 0, 20, 70, 150, 2000}).Draw(rt, "after")) * time.Millisecond,
			})
		}
		failure := ""
		synctest.Test(t, func(t *testing.T) {
			q := delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: span, Limit: limit}}}
			f := newFleet(1, uniform(3, 500*time.Microsecond, 0), newBook(under("c", rate, q), under("other", 500, q)), nil)
			lane := newPartition("lane/0")
			stay := map[string]bool{} // jobs that do not expire and fit into memory
			for i, o := range list {
				j := heavyJobs(lane, delivery.FromLane, "c", int64(i), o.weight)
				if o.high {
					j[0].Priority = delivery.PriorityHigh
				}
				if o.expires > 0 {
					j[0].ExpiresAt = time.Now().Add(o.expires)
				}
				if f.offer(t, j) == 0 && o.expires == 0 {
					stay[j[0].ID] = true
				}
				f.offer(t, jobs(lane, delivery.FromLane, "other", int64(1000+100*i), 30))
				time.Sleep(o.after)
			}
			time.Sleep(5*time.Minute + 100*span)
			history := f.receiver.history()
			f.stop()
			sent := sorted(history, "c")
			for _, a := range sent {
				delete(stay, a.id)
			}
			if most := mostIn(history, span.Microseconds()); most > limit {
				failure = fmt.Sprintf("%d units within %s, the limit is %d", most, span, limit)
			} else if len(stay) > 0 {
				failure = fmt.Sprintf("never sent: %v", stay)
			}
			if most := mostIn(sent, 1_000_000); failure == "" && most > rate+rate/10+60 { // a horizon, and the heaviest job
				failure = fmt.Sprintf("%d units within a second at %d/s", most, rate)
			}
		})
		if failure != "" {
			rt.Fatal(failure)
		}
	})
}

// TestTheTurnAfterAHeavyJob: while the slots of a heavy job pass, the end of the wait behind it is known. It is not known for jobs that
// wait for something else, or whose slots come one after the other.
func TestTheTurnAfterAHeavyJob(t *testing.T) {
	q := delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: time.Hour, Limit: 3}}}
	one(t, newBook(campaign("c", 5), under("used", 100, q)), nil, func(t *testing.T, f *fleet) {
		lane := newPartition("lane/0")
		f.offer(t, heavyJobs(lane, delivery.FromLane, "c", 0, 900))
		f.offer(t, jobs(lane, delivery.FromLane, "used", 1000, 20))
		time.Sleep(time.Second)
		f.offer(t, jobs(lane, delivery.FromLane, "c", 100, 5))
		begun := time.Now().Add(-time.Second)
		for range 4 {
			time.Sleep(40 * time.Second)
			must(t, f.count("c"), 1, "sent")
			within(t, f.inMemory(t, "c").Turn.Sub(begun), 179*time.Second, 181*time.Second, "after %s, the turn after the job was offered", time.Since(begun))
			exactly(t, f.inMemory(t, "used").Turn, time.Time{}, "the turn of a campaign whose quota is used up")
		}
		time.Sleep(20 * time.Second)
		if at := f.inMemory(t, "c").Turn; f.count("c") < 2 || time.Until(at) > time.Second {
			t.Errorf("%d sent; the next turn is at %s", f.count("c"), at)
		}
	})
}
