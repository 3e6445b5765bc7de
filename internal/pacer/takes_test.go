package pacer

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestTakesAreGathered: a queue asks once, and soon after a take of few campaigns, but later after one of many. No more than some takes are under way.
func TestTakesAreGathered(t *testing.T) {
	takes, q := newTakes(10*time.Millisecond), newQueue("c")
	q.put(rankOther, &delivery.Job{Weight: 1})
	takes.want(q)
	takes.want(q)
	exactly(t, takes.asks.len(), 1, "asks")
	takes.askLater(q, 71*millisecond)
	for _, tc := range []struct {
		items int
		next  int64
	}{{fewItems + 1, 80 * millisecond}, {fewItems, 72_500}} {
		takes.begin(tc.items, 70*millisecond)
		if at, _ := takes.next(); at != tc.next || takes.ready(tc.next-1) || !takes.ready(tc.next) {
			t.Errorf("the gap after a take of %d items is not kept: next at %d", tc.items, at)
		}
	}
	for range maxTakes - 2 {
		takes.begin(1, 70*millisecond)
	}
	if _, ok := takes.next(); ok || takes.ready(time.Hour.Microseconds()) {
		t.Error("too many takes are under way")
	}
	for lasts, most := range map[latency]int{0: 4, quickly: 4, 2 * quickly: 2, 20 * quickly: 1} {
		slow := newTakes(0)
		slow.lasts = lasts
		for !slow.full() {
			slow.begin(1, 0)
		}
		exactly(t, slow.underWay, most, "takes that last %d us", lasts)
	}
}

// The pause between takes doubles while the limiter does not answer; it answers again once no take has failed for a second.
func TestOutageOfTheLimiter(t *testing.T) {
	takes := newTakes(12500 * time.Microsecond)
	if takes.recovered(0) {
		t.Error("an outage is over that never was")
	}
	for i, want := range []time.Duration{50, 100, 200, 250, 250} {
		pause, first := takes.failed(int64(i) * 100 * millisecond)
		if pause != want*time.Millisecond || first != (i == 0) {
			t.Errorf("failure %d: a pause of %s, first: %t", i, pause, first)
		}
	}
	if takes.recovered(5000 * millisecond) {
		t.Error("over though no take was answered")
	}
	takes.answeredAt = 401 * millisecond // the only one: nobody asks any more
	if takes.recovered(1400*millisecond) || !takes.recovered(1401*millisecond) || takes.recovered(1402*millisecond) {
		t.Error("not over once, a second after the last failure")
	}
	if pause, first := takes.failed(0); pause != 50*time.Millisecond || !first {
		t.Errorf("the next outage: a pause of %s, first: %t", pause, first)
	}
}

// TestUnitsThatWereNotSentAreAskedForAgain: a quota that a stall of the machine kept from being used is used right after it, and
// not only when what was sent under it leaves its window.
func TestUnitsThatWereNotSentAreAskedForAgain(t *testing.T) {
	c := under("c", 1000, delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: 10 * time.Second, Limit: 100}}})
	one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 300))
		for range 3 {
			time.Sleep(20 * time.Millisecond)
			f.daemons[0].inbox.do(func(instant) { time.Sleep(120 * time.Millisecond) })
		}
		time.Sleep(2 * time.Second)
		exactly(t, f.count("c"), 100, "sent in two seconds, at 1000/s")
	})
}

// TestJobsThatComeDuringATake, of a campaign that nothing limits, do not wait for a quantum.
func TestJobsThatComeDuringATake(t *testing.T) {
	one(t, newBook(campaign("c", 1_000_000)), nil, func(t *testing.T, f *fleet) {
		f.store.latency = func() time.Duration { return time.Millisecond }
		src := newPartition("jobs")
		time.Sleep(time.Second)
		f.offer(t, jobs(src, delivery.FromIngress, "c", 0, 100))
		time.Sleep(time.Millisecond)
		f.offer(t, jobs(src, delivery.FromIngress, "c", 100, 100))
		time.Sleep(18 * time.Millisecond)
		exactly(t, f.count("c"), 200, "sent within less than a quantum")
	})
}

// The quantum stays within its bounds, is long enough for the budget and for the takes unless that is beyond the bound, and
// becomes shorter by a tenth at a time.
func TestTheQuantumFollowsTheLoad(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		q := newQuantum(25*time.Millisecond, time.Second, rapid.IntRange(100, 20_000).Draw(rt, "budget"))
		for range rapid.IntRange(1, 20).Draw(rt, "rounds") {
			q.rates = nil
			for _, n := range rapid.SliceOfN(rapid.Int64Range(1, 100_000), 0, 300).Draw(rt, "rates") {
				q.rates = append(q.rates, delivery.Rate{N: n, Per: 100_000_000})
			}
			lasts, before := latency(rapid.Int64Range(0, 2*time.Second.Microseconds()).Draw(rt, "take")), q.length
			q.adapt(lasts)
			if q.length < q.shortest || q.length > q.longest {
				rt.Fatalf("%d us", q.length)
			}
			if n := q.itemsPerSecond(float64(q.length + 1)); q.length < q.longest && (n > q.budget || q.length+1 < int64(lasts)) {
				rt.Fatalf("%d us: %g items, takes of %d us", q.length, n, lasts)
			}
			if float64(q.length) < float64(before)*0.9-1 {
				rt.Fatalf("from %d to %d us at once", before, q.length)
			}
		}
	})
}

// TestAStoreWhoseClockJumps: its data is lost, and it has another time. A campaign goes on at its rate at once, and a slow one, whose last
// slot only this daemon remembers, no earlier than its rate allows.
func TestAStoreWhoseClockJumps(t *testing.T) {
	for _, by := range []time.Duration{-3 * time.Hour, -5 * time.Second, 5 * time.Second, 3 * time.Hour} {
		slow := campaign("slow", 1)
		slow.Rate = delivery.Rate{N: 1, Per: (20 * time.Second).Microseconds()}
		one(t, newBook(campaign("c", 100), slow), nil, func(t *testing.T, f *fleet) {
			f.offer(t, jobs(newPartition("lane"), delivery.FromLane, "c", 0, 190))
			f.offer(t, jobs(newPartition("slow"), delivery.FromLane, "slow", 0, 4))
			time.Sleep(time.Second)
			f.store.lose(by)
			f.offer(t, jobs(newPartition("more"), delivery.FromLane, "c", 190, 190))
			time.Sleep(500 * time.Millisecond)
			before := f.count("c")
			time.Sleep(time.Second)
			within(t, f.count("c")-before, 99, 102, "%s: jobs in a second at 100/s", by)
			time.Sleep(60 * time.Second)
			for i, sent := 1, sorted(f.receiver.history(), "slow"); i < len(sent); i++ {
				atLeast(t, sent[i].at-sent[i-1].at, 19_500*millisecond, "%s: us between two jobs at one in 20 s", by)
			}
			atLeast(t, f.count("slow"), 3, "%s: sent of the slow one", by)
		})
	}
}

// TestAPassedSlotOfASlowCampaignIsNotLost: where slots are far apart, the next one comes soon, whatever has kept the daemon from using it.
func TestAPassedSlotOfASlowCampaignIsNotLost(t *testing.T) {
	testservices.Simulation(t)
	c := under("c", 1, delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: time.Hour, Limit: 1000}}})
	c.Rate = delivery.Rate{N: 2, Per: 60_000_000}
	one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 1))
		time.Sleep(time.Second)
		for i := range int64(20) {
			f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 1+i, 1))
			next := f.daemons[0]
			for until := time.Now().Add(time.Minute); time.Now().Before(until); time.Sleep(time.Millisecond) {
				stalled := false
				_, _ = inTurn(context.Background(), next, func(now instant) (done struct{}) {
					if q := next.queues.byID["c"]; q.granted > 0 && next.clocks.due(q) < now.in(2*time.Millisecond) {
						time.Sleep(50 * time.Millisecond) // the scheduler is kept from the processor
						stalled = true
					}
					return done
				})
				if stalled {
					break
				}
			}
			before := f.count("c")
			time.Sleep(time.Second)
			atLeast(t, f.count("c"), before+1, "sent within a second of the slot of job %d", i+1)
		}
	})
}

// counting counts the items of takes, and makes a take last as long as a store needs for them.
type counting struct {
	Limiter
	perItem time.Duration

	mu    sync.Mutex
	items int
	busy  time.Time // when the store has done what it was asked so far
}

func (c *counting) Take(ctx context.Context, asks []delivery.Ask) (delivery.TakeReply, error) {
	c.mu.Lock()
	c.items += len(asks)
	if now := time.Now(); c.busy.Before(now) {
		c.busy = now
	}
	c.busy = c.busy.Add(time.Duration(len(asks)) * c.perItem)
	wait := time.Until(c.busy)
	c.mu.Unlock()
	time.Sleep(wait)
	return c.Limiter.Take(ctx, asks)
}

// TestManyCampaignsStayWithinTheBudget: the campaigns would need five times the items that the store can serve, if they
// asked for each slot by itself. Every one gets its rate, none more, evenly spread, and the budget is kept.
func TestManyCampaignsStayWithinTheBudget(t *testing.T) {
	testservices.Simulation(t)
	const campaigns, rate, budget, seconds = 500, 5, 500, 12
	var all []delivery.Campaign
	for i := range campaigns {
		all = append(all, campaign(fmt.Sprintf("c%03d", i), rate))
	}
	var store *counting
	adjust := func(o *Options) {
		store = &counting{Limiter: o.Limiter, perItem: time.Second / (2 * budget)}
		o.Limiter, o.ItemsPerSecond, o.MaxOpenAge = store, budget, time.Minute
	}
	one(t, newBook(all...), adjust, func(t *testing.T, f *fleet) {
		f.store.latency = uniform(1, 200*time.Microsecond, 300*time.Microsecond)
		offered := newPartition("jobs")
		for _, c := range all {
			f.offer(t, jobs(offered, delivery.FromIngress, c.ID, 0, (seconds+2)*rate))
		}
		time.Sleep(2 * time.Second)
		store.mu.Lock()
		before := store.items
		store.mu.Unlock()
		time.Sleep((seconds - 2) * time.Second)
		store.mu.Lock()
		atMost(t, store.items-before, budget*(seconds-2)*14/10, "items in %d s, budget %d a second", seconds-2, budget)
		store.mu.Unlock()
		f.stop()
		var list []arrival
		for _, c := range all {
			sent := sorted(f.receiver.history(), c.ID)
			keepsRate(t, sent, rate, 1)
			n := between(sent, 2_000_000, seconds*1_000_000)
			atLeast(t, n, rate*(seconds-2)*98/100, "%s: jobs in %d s", c.ID, seconds-2)
			list = append(list, sent...)
		}
		bins := map[int64]int{}
		for _, a := range list {
			bins[a.at/100_000]++
		}
		for b := int64(20); b < 10*seconds; b++ {
			if n := bins[b]; n < campaigns*rate/10*7/10 || n > campaigns*rate/10*13/10 {
				t.Errorf("%d jobs in the %d-th tenth of a second, %d on average", n, b, campaigns*rate/10)
			}
		}
	})
}

// refunds hands slots back slowly, and counts the takes that are made meanwhile.
type refunds struct {
	*client
	underWay, overtaken, made atomic.Int64
}

func (r *refunds) Take(ctx context.Context, asks []delivery.Ask) (delivery.TakeReply, error) {
	time.Sleep(time.Microsecond) // a refund of the same turn has begun by then
	if r.underWay.Load() > 0 {
		r.overtaken.Add(1)
	}
	return r.client.Take(ctx, asks)
}

func (r *refunds) Refund(ctx context.Context, grants []delivery.Grant) error {
	r.made.Add(1)
	r.underWay.Add(1)
	defer r.underWay.Add(-1)
	time.Sleep(100 * time.Millisecond)
	return r.client.Refund(ctx, grants)
}

// A queue does not ask while its slots are being handed back, however long that takes: the take would find them still
// given away. Nor has it two takes under way, which would not know what each of them may bring.
func TestNoTakeOvertakesARefund(t *testing.T) {
	b := newBook(campaign("c", 100))
	var r *refunds
	slow := func(o *Options) { r = &refunds{client: o.Limiter.(*client)}; o.Limiter = r }
	one(t, b, slow, func(t *testing.T, f *fleet) {
		lane := newPartition("lane/0")
		for i := range 20 {
			f.offer(t, jobs(lane, delivery.FromLane, "c", int64(100*i), 100))
			b.set(campaign("c", []int64{2000, 100}[i%2]))
			time.Sleep(330 * time.Millisecond)
		}
		b.set(campaign("c", 0)) // no daemon asks any more
		time.Sleep(time.Second)
		atLeast(t, r.made.Load(), 10, "refunds")
		atMost(t, r.overtaken.Load(), 0, "takes while one was under way")
		atLeast(t, f.count("c"), 1800, "sent")
		asked := make(chan int64)
		f.daemons[0].inbox.do(func(instant) { asked <- f.daemons[0].sinkByID("default").asked })
		exactly(t, <-asked, 0, "slots are expected, though none were asked for")
	})
}

// TestForfeitedSlotsCostNoQuota: a store so slow that many slots have passed when they are granted, and a sink that
// withholds every fifth job, still let the whole of a day's quota be sent, and no more.
func TestForfeitedSlotsCostNoQuota(t *testing.T) {
	testservices.Simulation(t)
	const limit = 300
	c := under("c", 100, delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: 24 * time.Hour, Limit: limit}}})
	several(t, 2, newBook(c), nil, func(t *testing.T, f *fleet) {
		f.store.latency = uniform(5, 40*time.Millisecond, 80*time.Millisecond)
		calls := 0
		f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
			if calls++; calls%5 == 0 {
				return delivery.Result{Class: delivery.Withheld, RetryAfter: 10 * time.Millisecond}
			}
			return delivery.Result{Class: delivery.Delivered}
		})
		stop := f.feedAll("c")
		time.Sleep(2 * time.Minute)
		stop()
		f.stop()
		delivered, forfeited := 0.0, 0.0
		for _, d := range f.daemons {
			delivered += float64(d.counts.know("c").Jobs(delivery.OutcomeDelivered))
			forfeited += testutil.ToFloat64(d.metrics.forfeited)
		}
		exactly(t, delivered, limit, "delivered")
		atLeast(t, forfeited, limit/4, "slots forfeited: too few to show anything")
	})
}
