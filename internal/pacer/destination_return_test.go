package pacer

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

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
