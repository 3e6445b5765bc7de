package pacer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// finder is a sink whose jobs name their destinations in their payloads, and looking there takes long.
type finder struct {
	shops
	takes time.Duration

	mu    sync.Mutex
	looks map[string]int // by job
}

func (f *finder) set(o *Options) { o.Destinations, o.DestinationLimits = f.of, f.Limits }

func (f *finder) of(sink string) func(*delivery.Job) string {
	if sink != "hooks" {
		return nil
	}
	return func(j *delivery.Job) string {
		f.mu.Lock()
		f.looks[j.ID]++
		f.mu.Unlock()
		time.Sleep(f.takes)
		return string(j.Payload)
	}
}

// TestNobodyWaitsForWhatIsFoundInAPayload: while a destination is looked for in jobs of one campaign, another one, of another sink, sends at
// its rate, to the slot.
func TestNobodyWaitsForWhatIsFoundInAPayload(t *testing.T) {
	const seconds = 10
	good, slow := campaign("good", 100), campaign("slow", 100)
	good.Sink, slow.Sink = "plain", "hooks"
	hooks := &finder{takes: time.Second, looks: map[string]int{}}
	one(t, newBook(good, slow), hooks.set, func(t *testing.T, f *fleet) {
		var reading sync.WaitGroup
		p := newPartition("jobs/0")
		for i := range int64(seconds - 2) { // each by a reader of its own
			j := jobs(p, delivery.FromIngress, "slow", i, 1)
			j[0].Payload = []byte([]string{"", "shop"}[i%2])
			reading.Go(func() {
				time.Sleep(time.Duration(i) * time.Second)
				_, _ = f.daemons[0].Offer(context.Background(), j)
			})
		}
		f.push(t, jobs(newPartition("lane/0"), delivery.FromLane, "good", 0, (seconds+1)*100))
		reading.Wait()
		sent := sorted(f.receiver.history(), "good")
		for i := range sent[1:] {
			if gap := sent[i+1].at - sent[i].at; gap > 20_000 {
				t.Fatalf("%d us between two jobs, of 100 a second", gap)
			}
		}
		atLeast(t, p.count(delivery.OutcomeDelivered), seconds-3, "sent of the slow ones")
		atLeast(t, len(sent), (seconds-1)*100, "sent of the others")
	})
}

// TestADestinationIsLookedForOnce: also if the job waits, fails or names none.
func TestADestinationIsLookedForOnce(t *testing.T) {
	c := blocking("c", 20)
	c.Sink = "hooks"
	hooks := &finder{looks: map[string]int{}, shops: shops{limit: map[string]int{"busy": 1}}}
	adjust := func(o *Options) { hooks.set(o); o.Retry.Initial = time.Second }
	one(t, newBook(c), adjust, func(t *testing.T, f *fleet) {
		f.receiver.setLatency(300 * time.Millisecond)
		f.receiver.setAnswer(answering(dead500, func(j *delivery.Job) bool { return j.Attempt == 0 && j.Offset%3 == 0 }))
		p := newPartition("jobs/0")
		list := jobs(p, delivery.FromIngress, "c", 0, 300)
		for i, j := range list {
			j.Payload = []byte([]string{"", "busy", "shop"}[i%3])
		}
		again := false
		for rest := slices.Clone(list); len(rest) > 0; again = true {
			var err error
			if rest, err = f.daemons[0].Offer(t.Context(), rest); err != nil {
				t.Fatal(err)
			}
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		if n := p.counts().settled; n != len(list) || !again {
			t.Errorf("%d of %d are settled; some were refused at first: %v", n, len(list), again)
		}
		for id, n := range hooks.looks {
			if n != 1 || len(hooks.looks) != len(list) {
				t.Fatalf("job %s was looked at %d times, and %d of them at all", id, n, len(hooks.looks))
			}
		}
	})
}

// TestAJobWhoseDestinationIsNotFound, in a payload that takes too long to look at, stops no other campaign: what its answer blames is one
// destination, and it is not known which one.
func TestAJobWhoseDestinationIsNotFound(t *testing.T) {
	large, other := campaign("large", 10), campaign("other", 100)
	large.Sink, other.Sink = "hooks", "hooks"
	hooks := &finder{looks: map[string]int{}}
	one(t, newBook(large, other), hooks.set, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(answering(unreachable, func(j *delivery.Job) bool { return j.Campaign == "large" }))
		f.push(t, jobs(newPartition("lane/0"), delivery.FromLane, "large", 0, 50))
		list := jobs(newPartition("lane/1"), delivery.FromLane, "other", 0, 200)
		for _, j := range list {
			j.Payload = []byte("shop")
		}
		f.push(t, list)
		time.Sleep(2100 * time.Millisecond)
		atLeast(t, f.count("other"), 198, "jobs of another campaign were sent")
	})
}

// reports notes what a pacer reports of destinations.
type reports struct {
	mu    sync.Mutex
	fails []time.Time
	gone  int
	works int
}

func (r *reports) Fails(_, _ string, since time.Time, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = append(r.fails, since)
}

func (r *reports) Gone(_, _, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone++
}

func (r *reports) Works(_, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.works++
}

func (r *reports) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("fails %d, gone %d, works %d", len(r.fails), r.gone, r.works)
}

// TestWhatIsReportedOfADestination: each call that shows that it does not work, since when, and each job that it takes.
func TestWhatIsReportedOfADestination(t *testing.T) {
	wants := delivery.Result{Class: delivery.Misconfigured, Scope: delivery.ScopeDestination, Gone: true, Detail: "410"}
	for name, tc := range map[string]struct {
		answer  delivery.Result
		reports string // of 20 jobs within a second
	}{
		"works":     {delivery.Result{Class: delivery.Delivered}, "fails 0, gone 0, works 20"},
		"rejects":   {delivery.Result{Class: delivery.Rejected}, "fails 0, gone 0, works 20"},
		"throttles": {slowDown, "fails 0, gone 0, works 0"},
		"refuses":   {gone410, "fails 0, gone 0, works 0"}, // twenty jobs only
		"dead":      {unreachable, "fails 1, gone 0, works 0"},
		"gone":      {wants, "fails 0, gone 2, works 0"},
	} {
		t.Run(name, func(t *testing.T) {
			told := &reports{}
			one(t, newBook(campaign("c", 20)), func(o *Options) { withShops(&shops{})(o); o.DestinationReports = told }, func(t *testing.T, f *fleet) {
				f.receiver.setAnswer(down("shop", tc.answer))
				begun := time.Now()
				f.pushed(t, delivery.FromLane, "c", 20, "shop")
				time.Sleep(1200 * time.Millisecond)
				exactly(t, told.String(), tc.reports, "reports")
				for _, since := range told.fails {
					if since.Before(begun) || since.After(begun.Add(200*time.Millisecond)) {
						t.Errorf("it is said to fail from %s on", since.Sub(begun))
					}
				}
			})
		})
	}
}

// TestAChangedDestinationIsTriedAtOnce: what was found of its old address is forgotten, by each daemon.
func TestAChangedDestinationIsTriedAtOnce(t *testing.T) {
	s := &shops{}
	played(t, 2, newBook(campaign("c", 200)), s, func(t *testing.T, f *fleet, _ *partition) {
		f.receiver.setAnswer(down("shop", unreachable))
		f.toShop(t, 0, 50)
		time.Sleep(32 * time.Second) // the next try is at 63 s
		f.receiver.setAnswer(nil)
		s.renew("shop")
		for daemon := range 2 {
			fresh := f.toShop(t, daemon, 20)
			time.Sleep(5 * time.Second)
			exactly(t, fresh.count(delivery.OutcomeDelivered), 20, "daemon %d: new jobs are delivered within five seconds", daemon)
		}
	})
}

// TestAnswersOfTheOldAddressSayNothing of the new one: calls were under way when the destination was changed.
func TestAnswersOfTheOldAddressSayNothing(t *testing.T) {
	for name, answer := range map[string]delivery.Result{
		"gone":         {Class: delivery.Misconfigured, Scope: delivery.ScopeDestination, Gone: true, Detail: "410"},
		"not there":    {Class: delivery.Permanent, Status: 404},
		"unreachable":  unreachable,
		"unauthorized": unauthorized,
		"asks to wait": slowDown,
		"502":          dead502,
	} {
		t.Run(name, func(t *testing.T) {
			s, told := &shops{}, &reports{}
			more := func(o *Options) { o.DestinationReports = told }
			playedWith(t, 1, newBook(campaign("c", 200)), s, more, func(t *testing.T, f *fleet, _ *partition) {
				f.receiver.setLatency(time.Second)
				f.receiver.setAnswer(down("shop", answer))
				late := f.toShop(t, 0, 5)
				time.Sleep(500 * time.Millisecond) // they are under way
				s.renew("shop")
				time.Sleep(600 * time.Millisecond)
				f.receiver.setAnswer(nil)
				f.receiver.setLatency(time.Millisecond)
				exactly(t, told.String(), "fails 0, gone 0, works 0", "reports of the old address")
				fresh := f.toShop(t, 0, 20)
				time.Sleep(300 * time.Millisecond)
				exactly(t, fresh.count(delivery.OutcomeDelivered), 20, "delivered to the new address")
				exactly(t, late.count(delivery.OutcomeDelivered), 5, "jobs that the old address did not take, delivered to the new one")
			})
		})
	}
}

// TestADaemonThatReadsAChangeLate tries the old address meanwhile, and what it finds closes the new one on no other daemon for long.
func TestADaemonThatReadsAChangeLate(t *testing.T) {
	for name, tc := range map[string]struct {
		late time.Duration // after the others
		open time.Duration // when those that knew the destination before send to it at the latest, and then those that did not
		all  time.Duration
	}{
		"a second":    {time.Second, 900 * time.Millisecond, 2500 * time.Millisecond},
		"ten seconds": {10 * time.Second, 11500 * time.Millisecond, 11700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				views, shared := []*shops{{}, {}, {}}, &street{}
				i := 0
				b := newBook(campaign("c", 200))
				f := newFleet(3, uniform(3, 500*time.Microsecond, 0), b, func(o *Options) {
					withShops(views[i])(o)
					shared.sinks, o.Gates = o.Gates, shared
					i++
				})
				ctx, cancel := context.WithCancel(context.Background())
				var running sync.WaitGroup
				running.Go(func() { shared.run(ctx, f.daemons) })
				delivered := func(daemon int) {
					t.Helper()
					p := f.toShop(t, daemon, 3)
					time.Sleep(100 * time.Millisecond)
					exactly(t, p.count(delivery.OutcomeDelivered), 3, "daemon %d: delivered", daemon)
				}
				delivered(0)
				delivered(1)
				f.receiver.setAnswer(func(daemon int, _ *delivery.Job) delivery.Result {
					if daemon == 1 && views[1].Limits("", "shop").Version == 1 {
						return unreachable
					}
					return delivery.Result{Class: delivery.Delivered}
				})
				views[0].renew("shop")
				views[2].renew("shop")
				b.set(campaign("other", 1)) // another snapshot
				time.AfterFunc(tc.late, func() { views[1].renew("shop"); b.set(campaign("other", 2)) })
				changed := time.Now()
				f.toShop(t, 1, 60)
				delivered(0)
				time.Sleep(tc.open - time.Since(changed))
				delivered(0)
				time.Sleep(tc.all - time.Since(changed))
				delivered(2)
				cancel()
				running.Wait()
				f.stop()
			})
		})
	}
}

// TestNothingHoldsALineUp: jobs that leave the line of their destination unsent hold up no others. The others go as fast as the
// destination answers.
func TestNothingHoldsALineUp(t *testing.T) {
	const n, lasts = 20, 100 * time.Millisecond
	quota := &delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: time.Hour, Limit: 1}}}
	for name, tc := range map[string]struct {
		other  delivery.Campaign // whose jobs wait between those of c
		adjust func(*delivery.Job)
		during func(*fleet) // when they leave the line
	}{
		"a quota is used up": {other: delivery.Campaign{ID: "other", Rate: delivery.PerSecond(100), Quotas: []*delivery.Quota{quota}}},
		"a slow campaign":    {other: delivery.Campaign{ID: "other", Rate: delivery.Rate{N: 1, Per: 3_000_000}}},
		"a campaign's calls": {other: delivery.Campaign{ID: "other", Rate: delivery.PerSecond(100), MaxInFlight: 1}},
		"a campaign is gone": {other: campaign("other", 100), during: func(f *fleet) { f.book.set(as(delivery.StatusCancelled, campaign("other", 100))) }},
		"a campaign is held": {other: campaign("other", 100), during: func(f *fleet) { f.book.set(as(delivery.StatusPaused, campaign("other", 100))) }},
		"they have expired":  {other: campaign("other", 100), adjust: func(j *delivery.Job) { j.ExpiresAt = time.Now().Add(1050 * time.Millisecond) }},
		"another sink": {other: campaign("other", 100), during: func(f *fleet) {
			f.book.set(delivery.Campaign{ID: "other", Rate: delivery.PerSecond(100), Sink: "plain"})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			played(t, 1, newBook(campaign("c", 100), tc.other), &shops{limit: map[string]int{"small": 1}}, func(t *testing.T, f *fleet, _ *partition) {
				f.receiver.setLatency(lasts)
				f.receiver.setAnswer(down("small", delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeDestination, RetryAfter: time.Second}))
				f.receiver.hangs = func(j *delivery.Job) bool { return j.Destination == "deaf" }
				lane, others := newPartition("lane/0"), newPartition("lane/1")
				mine, theirs := named(jobs(lane, delivery.FromLane, "c", 0, n), "small"), named(jobs(others, delivery.FromLane, "other", 0, n), "small")
				f.pushed(t, delivery.FromLane, "c", 3, "small")
				time.Sleep(400 * time.Millisecond) // they close it for a second
				f.push(t, mine[:1])
				f.receiver.setAnswer(nil)
				for i := range n {
					if tc.adjust != nil {
						tc.adjust(theirs[i])
					}
					f.push(t, theirs[i:i+1])
					f.push(t, mine[max(1, i):max(1, i+1)])
				}
				if tc.other.MaxInFlight > 0 {
					f.push(t, named(jobs(others, delivery.FromLane, "other", 1000, 5), "deaf"))
				}
				time.Sleep(time.Second)
				if tc.during != nil {
					tc.during(f)
				}
				time.Sleep((n + 10) * lasts)
				exactly(t, lane.count(delivery.OutcomeDelivered), n, "delivered")
			})
		})
	}
}

// TestACallIsNotKeptForAJobThatHasGone: the last job of a line has left it for its queue when its campaign is paused. The jobs of a slow campaign,
// each of which waits for its slot for longer than a line keeps it, are sent.
func TestACallIsNotKeptForAJobThatHasGone(t *testing.T) {
	slow := delivery.Campaign{ID: "slow", Rate: delivery.Rate{N: 1, Per: 60_000_000}}
	s := &shops{limit: map[string]int{"small": 1}}
	played(t, 1, newBook(campaign("c", 100), campaign("other", 10), slow), s, func(t *testing.T, f *fleet, _ *partition) {
		f.receiver.setAnswer(down("small", delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeDestination, RetryAfter: time.Second}))
		f.pushed(t, delivery.FromLane, "c", 3, "small")
		time.Sleep(400 * time.Millisecond) // they close it for a second
		f.book.set(as(delivery.StatusCancelled, campaign("c", 100)))
		f.receiver.setAnswer(nil)
		f.pushed(t, delivery.FromLane, "other", 5, "else", "else", "else", "else", "small")
		p := f.daemons[0]
		gone := func(now instant) bool {
			d := p.destinations.byKey[destinationKey{"default", "small"}]
			return d.returned > 0 && d.line.len() == 0
		}
		for {
			if is, err := inTurn(t.Context(), p, gone); err != nil || is {
				break
			}
			time.Sleep(time.Millisecond)
		}
		f.book.set(as(delivery.StatusPaused, campaign("other", 10)))
		before := f.tried("small")
		lane := f.pushed(t, delivery.FromLane, "slow", 1, "else")
		time.Sleep(30 * time.Second)
		for n := range 10 {
			f.push(t, named(jobs(lane, delivery.FromLane, "slow", int64(2*n+1), 2), "small", "else"))
			time.Sleep(time.Minute)
		}
		atLeast(t, f.tried("small")-before, 4, "jobs of every second slot of ten are sent")
	})
}

// TestHowLongAJobWaitsForAClosedDestination: until that is tried again at least, however short its own waits and the outage have been.
func TestHowLongAJobWaitsForAClosedDestination(t *testing.T) {
	o, now := Defaults(), instantAt(time.Minute)
	for _, tripped := range []bool{false, true} {
		b := breaker{tripped: tripped, trippedAt: now.local, openUntil: now.in(2 * time.Minute)}
		d := &destination{breaker: b, at: &sinkState{max: 1}}
		to := d.timer(&delivery.Job{}, &o, now)
		within(t, to.Due.Sub(now.wall), 2*time.Minute, 2*time.Minute+time.Second, "tripped %t: it waits", tripped)
	}
}

// TestTheLastChangeOfAGateIsTold, however many change while the store is being told of others.
func TestTheLastChangeOfAGateIsTold(t *testing.T) {
	played(t, 1, newBook(), &shops{}, func(t *testing.T, f *fleet, _ *partition) {
		p := f.daemons[0]
		told, err := inTurn(t.Context(), p, func(now instant) bool {
			p.calling = true // until the end of this test
			for n := range 10_000 {
				p.moveGate(destinationKey{"default", fmt.Sprint(n)}, &breaker{openUntil: now.in(time.Hour)}, nil, now)
			}
			p.moveGate(destinationKey{"default", "0"}, nil, nil, now)
			return p.pending[destinationKey{"default", "0"}].Until.IsZero()
		})
		if err != nil || !told {
			t.Errorf("the store will hear that a gate is closed that was opened: %v", err)
		}
	})
}

// TestALineIsSentAsFastAsItsCallsAllow: a destination that may have one call gets the next job soon after it has answered.
func TestALineIsSentAsFastAsItsCallsAllow(t *testing.T) {
	for calls, least := range map[int]int{1: 120, 2: 140, 4: 280} {
		t.Run(fmt.Sprint(calls), func(t *testing.T) {
			played(t, 1, newBook(campaign("c", 1000)), &shops{limit: map[string]int{"small": calls}}, func(t *testing.T, f *fleet, _ *partition) {
				f.receiver.setLatency(5 * time.Millisecond)
				f.pushed(t, delivery.FromLane, "c", 1024, "small")
				before := f.store.taken()
				time.Sleep(time.Second)
				within(t, f.tried("small"), least, 200*calls+calls, "sent in a second")
				atMost(t, f.store.taken()-before, 330, "takes")
			})
		})
	}
}

// TestJobsThatWaitForADestinationAreCounted: as many as are in its line, and none when it is empty.
func TestJobsThatWaitForADestinationAreCounted(t *testing.T) {
	played(t, 1, newBook(campaign("c", 1000)), &shops{limit: map[string]int{"small": 1}}, func(t *testing.T, f *fleet, _ *partition) {
		f.receiver.setLatency(50 * time.Millisecond)
		p := f.daemons[0]
		f.pushed(t, delivery.FromLane, "c", 100, "small")
		time.Sleep(2 * time.Second)
		if n, err := p.AtDestinations(t.Context()); err != nil || n["small"] < 40 || n["small"] > 60 {
			t.Errorf("%v wait: %v", n, err)
		}
		time.Sleep(10 * time.Second)
		if n, err := p.AtDestinations(t.Context()); err != nil || len(n) != 0 {
			t.Errorf("%v are counted when all are sent: %v", n, err)
		}
	})
}

// TestADeafDestinationIsNotTriedWithJobsOfALane: each such call lasts ten seconds. Meanwhile the lane is read no further than some
// thousand jobs. It is tried with jobs from timers, and when it answers again all jobs arrive.
func TestADeafDestinationIsNotTriedWithJobsOfALane(t *testing.T) {
	played(t, 1, newBook(campaign("c", 100)), &shops{}, func(t *testing.T, f *fleet, back *partition) {
		var answers atomic.Bool
		f.receiver.deaf = func(j *delivery.Job) bool { return j.Destination == "deaf" && !answers.Load() }
		lane := f.pushed(t, delivery.FromLane, "c", 50, "deaf")
		time.Sleep(20 * time.Second)
		atLeast(t, lane.counts().settled, 49, "of 50 offsets are closed after 20 s")
		begun := f.tried("deaf")
		for n := range 60 {
			f.push(t, named(jobs(lane, delivery.FromLane, "c", int64(50+n), 1), "deaf"))
			time.Sleep(time.Second)
			if open := 51 + n - lane.counts().settled; open > 0 {
				t.Errorf("%d offsets are open a second after job %d came", open, 50+n)
				break
			}
		}
		atLeast(t, f.tried("deaf"), begun+1, "times it is tried")
		answers.Store(true)
		time.Sleep(30 * time.Minute)
		exactly(t, lane.count(delivery.OutcomeDelivered)+back.count(delivery.OutcomeDelivered), 110, "jobs arrived")
	})
}

// TestAFlowGrowsWithAnswers: a destination that answers gets as many calls as it needs, one that does not a few.
func TestAFlowGrowsWithAnswers(t *testing.T) {
	var f flow
	const most = 512
	exactly(t, f.maxCalls(most, 0), silentFailures, "calls at first")
	exactly(t, f.maxCalls(32, 0), 2, "calls at first of 32")
	for range 10 { // rounds
		n := f.maxCalls(most, 0)
		f.calls.inFlight = n
		for range n {
			f.calls.inFlight--
			f.ended(true, most)
		}
	}
	within(t, f.maxCalls(most, 0), most/2, most, "calls after 10 rounds")
	exactly(t, f.maxCalls(most, 7), 7, "calls of 7")
	f.ended(false, most)
	exactly(t, f.maxCalls(most, 0), silentFailures, "calls after one without an answer")
	f.window = 0
	for range 1000 { // one call at a time
		f.ended(true, most)
	}
	atMost(t, f.maxCalls(most, 0), silentFailures, "calls to a destination that needs one at a time")
}

// TestDestinationsAreBounded: the number of idle destinations that are kept is bounded. Those that work are forgotten first, and of each
// kind those used longest ago. The counts of those that are closed are right.
func TestDestinationsAreBounded(t *testing.T) {
	const most = 4
	rapid.Check(t, func(rt *rapid.T) {
		l := newDestinations(most)
		var order []string         // of use
		flying := map[string]int{} // calls in flight
		bad := map[string]bool{}   // open or half-open
		lines := map[string]int{}  // jobs that wait
		known := map[string]bool{} // destinations
		now := int64(0)
		trim := func(most int) {
			idle := slices.DeleteFunc(slices.Clone(order), func(s string) bool { return flying[s] > 0 || lines[s] > 0 })
			for len(idle) > most {
				i := max(0, slices.IndexFunc(idle, func(s string) bool { return !bad[s] }))
				gone := idle[i]
				idle = slices.Delete(idle, i, i+1)
				order = slices.DeleteFunc(order, func(s string) bool { return s == gone })
				delete(known, gone)
				delete(bad, gone)
			}
		}
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			now += rapid.Int64Range(0, 3000*millisecond).Draw(rt, "later")
			for d := l.due(now); d != nil; d = l.due(now) {
				l.note(d, now)
				order = append(slices.DeleteFunc(order, func(s string) bool { return s == d.name }), d.name)
			}
			name := fmt.Sprint(rapid.IntRange(0, 9).Draw(rt, "destination"))
			d := l.get(destinationKey{"s", name})
			if !known[name] {
				trim(most - 1)
				order, known[name] = append(order, name), true
			}
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				d.calls.began(now)
				flying[name]++
			case 1:
				if flying[name] > 0 {
					d.calls.ended(now, now)
					flying[name]--
				}
			case 2:
				d.trip(delivery.GateFailing, maxProbeEvery, now)
				bad[name] = true
			case 3:
				d.succeeded(now)
				delete(bad, name)
			case 4:
				d.line.push(&delivery.Job{Reading: delivery.Reading{Size: 3}}, rapid.Bool().Draw(rt, "front"))
				lines[name]++
			case 5:
				if d.line.len() > 0 {
					d.line.pop(rapid.Bool().Draw(rt, "fewest"))
					lines[name]--
				}
			}
			l.note(d, now)
			order = append(slices.DeleteFunc(order, func(s string) bool { return s == name }), name)
			trim(most)
			jobs := 0
			for _, n := range lines {
				jobs += n
			}
			shut := l.shut("s", now)
			if len(l.byKey) != len(known) || shut != len(bad) || l.waiting.jobs != jobs || l.waiting.bytes != int64(3*jobs) {
				rt.Fatalf("%d destinations, %d closed, %+v; want %v, %v, %d", len(l.byKey), shut, l.waiting, known, bad, jobs)
			}
			for name := range known {
				if l.byKey[destinationKey{"s", name}] == nil {
					rt.Fatalf("%s was forgotten; kept are %d of %v", name, len(l.byKey), known)
				}
			}
		}
	})
}
