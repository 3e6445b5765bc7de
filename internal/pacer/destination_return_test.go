package pacer

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

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
		"a campaign is gone": {other: campaign("other", 100), during: func(f *fleet) { f.book.set(delivery.Campaign{ID: "other", Status: delivery.StatusCancelled}) }},
		"a campaign is held": {other: campaign("other", 100), during: func(f *fleet) { f.book.set(delivery.Campaign{ID: "other", Status: delivery.StatusPaused}) }},
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
				f.push(t, named(jobs(newPartition("lane/2"), delivery.FromLane, "c", 0, 3), "small"))
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

// TestALineIsSentAsFastAsItsCallsAllow: a destination that may have one call gets the next job soon after it has answered.
func TestALineIsSentAsFastAsItsCallsAllow(t *testing.T) {
	for calls, least := range map[int]int{1: 120, 2: 140, 4: 280} {
		t.Run(fmt.Sprint(calls), func(t *testing.T) {
			played(t, 1, newBook(campaign("c", 1000)), &shops{limit: map[string]int{"small": calls}}, func(t *testing.T, f *fleet, _ *partition) {
				f.receiver.setLatency(5 * time.Millisecond)
				f.push(t, named(jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 1024), "small"))
				before := f.store.taken()
				time.Sleep(time.Second)
				if n, _ := f.sentTo("small"); n < least || n > 200*calls+calls {
					t.Errorf("%d were sent in a second", n)
				}
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
		f.push(t, named(jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 100), "small"))
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
		lane := newPartition("lane/0")
		f.push(t, named(jobs(lane, delivery.FromLane, "c", 0, 50), "deaf"))
		time.Sleep(20 * time.Second)
		atLeast(t, lane.counts().settled, 49, "of 50 offsets are closed after 20 s")
		begun, _ := f.sentTo("deaf")
		for n := range 60 {
			f.push(t, named(jobs(lane, delivery.FromLane, "c", int64(50+n), 1), "deaf"))
			time.Sleep(time.Second)
			if open := 51 + n - lane.counts().settled; open > 0 {
				t.Errorf("%d offsets are open a second after job %d came", open, 50+n)
				break
			}
		}
		if n, _ := f.sentTo("deaf"); n == begun {
			t.Error("it is not tried any more")
		}
		answers.Store(true)
		time.Sleep(30 * time.Minute)
		exactly(t, lane.count(delivery.OutcomeDelivered)+back.count(delivery.OutcomeDelivered), 110, "jobs arrived")
	})
}

// TestAFlowGrowsWithAnswers: a destination that answers gets as many calls as it needs, one that does not a few.
func TestAFlowGrowsWithAnswers(t *testing.T) {
	var f flow
	const most = 512
	exactly(t, f.free(most, 0), silentFailures, "calls at first")
	exactly(t, f.free(32, 0), 2, "calls at first of 32")
	for range 10 { // rounds
		n := f.free(most, 0)
		f.calls.inFlight = n
		for range n {
			f.calls.inFlight--
			f.ended(true, most)
		}
	}
	within(t, f.free(most, 0), most/2, most, "calls after 10 rounds")
	exactly(t, f.free(most, 7), 7, "calls of 7")
	f.ended(false, most)
	exactly(t, f.free(most, 0), silentFailures, "calls after one without an answer")
	f.window = 0
	for range 1000 { // one call at a time
		f.ended(true, most)
	}
	atMost(t, f.free(most, 0), silentFailures, "calls to a destination that needs one at a time")
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
			shut := len(l.shut["s"])
			if len(l.byKey) != len(known) || shut != len(bad) || l.waiting.jobs != jobs || l.waiting.bytes != int64(3*jobs) {
				rt.Fatalf("%d destinations, %d closed, %d jobs of %d bytes; want %v, %v, %d", len(l.byKey), shut, l.waiting.jobs, l.waiting.bytes, known, bad, jobs)
			}
			for name := range known {
				if l.byKey[destinationKey{"s", name}] == nil {
					rt.Fatalf("%s was forgotten; kept are %d of %v", name, len(l.byKey), known)
				}
			}
		}
	})
}
