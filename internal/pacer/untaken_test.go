package pacer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// told lists the jobs that the daemons name as those that alone were tried and not taken, 0 for several; and whether they tell of
// anything else that holds the campaign.
func (f *fleet) told(t *testing.T, campaign string) (untaken map[uint64]time.Time, other bool) {
	t.Helper()
	untaken = map[uint64]time.Time{}
	for _, d := range f.daemons {
		troubles, err := d.Troubles(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range troubles {
			switch {
			case one.Campaign != campaign:
			case one.Kind == delivery.TroubleUntaken:
				untaken[one.Only] = one.Since
			default:
				other = true
			}
		}
	}
	return untaken, other
}

// alarms tells whether the daemons together tell that several jobs were tried and none was taken.
func (f *fleet) alarms(t *testing.T, campaign string) bool {
	t.Helper()
	untaken, other := f.told(t, campaign)
	_, several := untaken[0]
	return several || len(untaken) > 1 || other
}

// TestNothingOfACampaignArrivesAndItIsTold: however few its jobs are, and however they fail. More of them open a circuit.
func TestNothingOfACampaignArrivesAndItIsTold(t *testing.T) {
	answers := map[string]func(int, *delivery.Job) delivery.Result{
		"deaf":        nil,
		"unreachable": func(int, *delivery.Job) delivery.Result { return delivery.Result{Class: delivery.Unreachable} },
		"500": func(int, *delivery.Job) delivery.Result {
			return delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}
		},
		"come back later": func(int, *delivery.Job) delivery.Result {
			return delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeRecipient, RetryAfter: 40 * time.Second}
		},
	}
	for name, answer := range answers {
		for _, few := range []struct{ jobs, daemons int }{{3, 1}, {2, 2}} {
			t.Run(fmt.Sprint(name, few), func(t *testing.T) {
				t.Parallel()
				b := newBook(campaign("c", 100))
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(few.daemons, uniform(3, 500*time.Microsecond, 0), b, func(o *Options) { o.Retry.Max, o.Retry.MaxAttempts = 40*time.Second, 100 })
					defer f.stop()
					f.timerEvery = 200 * time.Millisecond
					defer f.talk()()
					for i := range f.daemons {
						defer f.timers(t.Context(), i)()
					}
					before := f.share(t, "c", 10)
					time.Sleep(time.Second)
					if delivered(before) != 10 {
						t.Fatalf("%d of 10 are delivered", delivered(before))
					}
					f.receiver.setAnswer(answer)
					f.receiver.setDeaf(answer == nil)
					f.share(t, "c", few.jobs)
					time.Sleep(untakenAfter / 2)
					if untaken, _ := f.told(t, "c"); len(untaken) > 0 {
						t.Errorf("told after half a minute: %v", untaken)
					}
					time.Sleep(untakenAfter)
					for range 6 { // also while all of them wait
						if !f.alarms(t, "c") {
							t.Errorf("nothing is told after %s", time.Since(f.receiver.began))
						}
						time.Sleep(10 * time.Second)
					}
					f.receiver.setAnswer(nil)
					f.receiver.setDeaf(false)
					time.Sleep(100 * time.Second)
					if f.alarms(t, "c") {
						untaken, other := f.told(t, "c")
						t.Errorf("all are delivered, and told is %v, %t", untaken, other)
					}
				})
			})
		}
	}
}

// TestWhatArrivesIsNotToldOf: single jobs fail while others arrive, and are left when these have; a campaign is idle, or its few last
// jobs were given up.
func TestWhatArrivesIsNotToldOf(t *testing.T) {
	for name, tc := range map[string]struct {
		jobs, bad int // of the jobs, one of so many fails
		all       bool
		attempts  int
	}{
		"one of many, to the end": {300, 300, false, 1000}, "a few of many": {300, 50, false, 1000}, "a third": {60, 3, false, 1000},
		"all, and they are given up": {3, 1, true, 3}, "a single one": {1, 1, true, 1000},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBook(campaign("c", 5))
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(2, uniform(3, 500*time.Microsecond, 0), b, func(o *Options) { o.Retry.MaxAttempts = tc.attempts })
				defer f.stop()
				f.timerEvery = 200 * time.Millisecond
				defer f.talk()()
				for i := range f.daemons {
					defer f.timers(t.Context(), i)()
				}
				f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
					if j.Offset < 1_000_000 && int(j.Offset)%tc.bad == tc.bad/3 || j.Attempt > 0 {
						return delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}
					}
					return delivery.Result{Class: delivery.Delivered}
				})
				f.share(t, "c", tc.jobs)
				time.Sleep(2 * time.Minute) // some wait, of which it is not known at once that they were given up
				for range 12 {
					time.Sleep(10 * time.Second)
					if untaken, _ := f.told(t, "c"); f.alarms(t, "c") {
						t.Fatalf("told of after %s: %v", time.Since(f.receiver.began), untaken)
					}
				}
			})
		})
	}
}

// TestJobsThatAreLeftMove to another daemon, as after a rebalance: those that failed while others arrived stay their own fault, and those of
// a campaign of which nothing arrives tell of it, as do those of which nobody knows anything.
func TestJobsThatAreLeftMove(t *testing.T) {
	failing := func(int, *delivery.Job) delivery.Result {
		return delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}
	}
	for name, tc := range map[string]struct {
		arrive, fail int // of those that the other daemon had: how many arrived, and how many failed after them
		told         bool
	}{
		"others arrived": {10, 0, false}, "nothing arrives any more": {10, 3, true}, "nobody knows": {0, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBook(campaign("c", 5))
			synctest.Test(t, func(t *testing.T) {
				f := newFleet(2, uniform(3, 500*time.Microsecond, 0), b, func(o *Options) { o.Retry.Max, o.Retry.MaxAttempts = 40*time.Second, 1000 })
				defer f.stop()
				f.timerEvery = 200 * time.Millisecond
				defer f.talk()()
				defer f.timers(t.Context(), 1)() // those of the other daemon have moved
				f.share(t, "c", tc.arrive, 0)
				time.Sleep(10 * time.Second)
				f.receiver.setAnswer(failing)
				f.share(t, "c", tc.fail, 0)
				time.Sleep(2 * idleQueue)
				left := jobs(newPartition("timer/1"), delivery.FromTimer, "c", 1000, 3)
				for _, j := range left {
					j.Attempt, j.Reason, j.EnqueuedAt = 2, string(delivery.ReasonRetry), delivery.StampOf(time.Now().Add(-time.Minute))
				}
				if _, err := f.daemons[1].Offer(t.Context(), f.counted(1, left)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Minute)
				for range 12 {
					time.Sleep(10 * time.Second)
					if f.alarms(t, "c") != tc.told {
						untaken, other := f.told(t, "c")
						t.Fatalf("after %s told is %v, %t, want %t", time.Since(f.receiver.began), untaken, other, tc.told)
					}
				}
			})
		})
	}
}

// TestUntaken compares what is told with a list of the jobs: several were tried for the first time since one was last taken, and one of
// them is still to be tried.
func TestUntaken(t *testing.T) {
	const slack, second = time.Minute, int64(1_000_000)
	rapid.Check(t, func(rt *rapid.T) {
		var u untaken
		now, since, until := second, int64(0), int64(0)
		known := false             // that one of them had not failed before
		tried := map[uint64]bool{} // for the first time since one was taken, or all were given up
		for range rapid.IntRange(1, 40).Draw(rt, "events") {
			now += rapid.Int64Range(1, 90*second).Draw(rt, "after")
			job := rapid.Uint64Range(1, 4).Draw(rt, "job")
			switch rapid.IntRange(0, 3).Draw(rt, "event") {
			case 0:
				at := now - rapid.Int64Range(0, 5*second).Draw(rt, "told late")
				if u.takenElsewhere(at); at >= since || !known {
					clear(tried)
					known = false
				}
			default:
				call, late := trial(rapid.IntRange(int(again), int(first)).Draw(rt, "trial")), now > until+slack.Microseconds()
				fresh := call != again
				u.failed(job, call, now, slack)
				if fresh && late {
					clear(tried)
					known = false
				}
				known = known || call == first
				if len(tried) == 0 || late {
					since = now
				}
				if fresh {
					tried[job] = true
				}
				until = max(until, now)
				if len(tried) > 0 && rapid.Bool().Draw(rt, "waits") {
					until += rapid.Int64Range(0, 60*second).Draw(rt, "wait")
					u.waits(until)
				}
			}
			if len(tried) == 0 {
				until, known = 0, false
				if u != (untaken{}) {
					rt.Fatalf("%+v of none", u)
				}
			} else if u.since != since || u.several != (len(tried) > 1) || u.until != until {
				rt.Fatalf("%+v, want since %d until %d of %v", u, since, until, tried)
			}
		}
	})
}
