package pacer

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// stream offers each jobs every 200 ms until the end, as a lane does: what does not fit is offered again. Of each hundred, bad are called poison.
func (f *fleet) stream(ctx context.Context, t *testing.T, campaign string, bad int64, each int, end time.Time) {
	t.Helper()
	lane := newPartition("lane/" + campaign)
	for n := int64(0); time.Now().Before(end); n += int64(each) {
		list := jobs(lane, delivery.FromLane, campaign, n, each)
		for _, j := range list {
			if j.Offset*37%100 < bad {
				j.ID = "poison" + j.ID
			}
		}
		refused, err := f.daemons[0].Offer(ctx, list)
		if err != nil {
			t.Error(err)
			return
		}
		n -= int64(len(refused))
		time.Sleep(200 * time.Millisecond)
	}
}

// TestPoisonCostsOthersLittle: answers about single recipients cost the others of their sink next to nothing, and the jobs that get such
// answers end.
func TestPoisonCostsOthersLittle(t *testing.T) {
	testservices.Simulation(t)
	throttled := func(wait time.Duration) delivery.Result {
		return delivery.Result{Class: delivery.Throttled, RetryAfter: wait}
	}
	for _, tc := range []struct {
		name   string
		bad    int64 // of a hundred; 0: a single job
		answer delivery.Result
		least  float64
	}{
		{"one message that is always greylisted", 0, throttled(10 * time.Second), 0.995},
		{"one recipient with 429", 0, throttled(0), 0.995},
		{"one recipient with 429 and Retry-After", 0, throttled(time.Minute), 0.995},
		{"one recipient who gets too much", 0, delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeRecipient}, 0.995},
		{"one job without permission", 0, delivery.Result{Class: delivery.Misconfigured, Status: 403}, 0.995},
		{"one job that is never reached", 0, delivery.Result{Class: delivery.Unreachable}, 0.995},
		{"1 % of the recipients", 1, throttled(time.Minute), 0.99},
		{"5 % of the recipients", 5, throttled(time.Minute), 0.97},
		{"20 % of the recipients", 20, throttled(time.Minute), 0.75},
	} {
		t.Run(tc.name, func(t *testing.T) {
			minutes, rate := 20, int64(50)
			switch {
			case tc.bad > 0:
				minutes = 6
			case tc.answer.Class == delivery.Throttled:
				rate = 20
			}
			one(t, newBook(campaign("good", rate), campaign("bad", rate)), nil, func(t *testing.T, f *fleet) {
				f.receiver.max, f.timerEvery = 8, 100*time.Millisecond
				f.receiver.setLatency(20 * time.Millisecond)
				var good, mixed atomic.Int64
				f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
					if strings.HasPrefix(j.ID, "poison") {
						return tc.answer
					}
					if good.Add(1); j.Campaign == "bad" {
						mixed.Add(1)
					}
					return delivery.Result{Class: delivery.Delivered}
				})
				defer f.timers(t.Context(), 0)()
				end, all := time.Now().Add(time.Duration(minutes)*time.Minute), int(rate)*60*minutes
				if tc.bad > 0 {
					go f.stream(t.Context(), t, "bad", tc.bad, int(rate/5), end)
				} else {
					one := jobs(newPartition("in"), delivery.FromIngress, "bad", 0, 1)
					one[0].ID = "poison"
					f.offer(t, one)
				}
				f.stream(t.Context(), t, "good", 0, int(rate/5), end)
				atLeast(t, float64(good.Load()-mixed.Load()), tc.least*float64(all), "good jobs")
				if n := f.count("bad"); tc.bad > 0 && float64(n) < tc.least*float64(all) {
					t.Errorf("%d calls of the campaign with bad recipients, of %d", n, all)
				}
				if tries := sorted(f.receiver.history(), "bad"); tc.bad == 0 && tries[len(tries)-1].at < 5*60e6 {
					t.Errorf("it was given up after %d s", tries[len(tries)-1].at/1e6)
				}
				if n := f.dead(delivery.ReasonAttemptsExhausted); tc.bad == 0 && n != 1 {
					t.Errorf("%d dead letters of 1", n)
				}
			})
		})
	}
}

// TestASinkThatTakesLessThanIsSent: a provider that answers 429 to what is above its own rate gets that rate, and no job is given up for it.
func TestASinkThatTakesLessThanIsSent(t *testing.T) {
	testservices.Simulation(t)
	for _, allowed := range []float64{130, 50, 20} { // of 150 a second
		one(t, newBook(campaign("c", 150)), nil, func(t *testing.T, f *fleet) {
			f.receiver.max = 64
			f.receiver.setLatency(50 * time.Millisecond)
			var mu sync.Mutex
			tokens, last, taken := 10., time.Now(), 0
			f.receiver.setAnswer(func(int, *delivery.Job) delivery.Result {
				mu.Lock()
				defer mu.Unlock()
				tokens, last = min(10, tokens+time.Since(last).Seconds()*allowed), time.Now()
				if tokens < 1 {
					return delivery.Result{Class: delivery.Throttled, RetryAfter: time.Second}
				}
				tokens--
				taken++
				return delivery.Result{Class: delivery.Delivered}
			})
			defer f.timers(t.Context(), 0)()
			const lasts = 3 * time.Minute
			f.stream(t.Context(), t, "c", 0, 30, time.Now().Add(lasts))
			if n := f.dead(delivery.ReasonAttemptsExhausted); n > 0 || float64(taken) < 0.9*allowed*lasts.Seconds() {
				t.Errorf("%.0f/s allowed: %d taken in %s, %d dead letters", allowed, taken, lasts, n)
			}
		})
	}
}

// TestOutages: while a sink takes nothing it is asked seldom, no job of the backlog is given up, and afterwards the full rate is back within two
// seconds.
func TestOutages(t *testing.T) {
	testservices.Simulation(t)
	for _, tc := range []struct {
		name   string
		answer delivery.Result
		most   int64 // calls in any 30 s, after the first
	}{
		{"429 to everything", delivery.Result{Class: delivery.Throttled, RetryAfter: 30 * time.Second}, 11},
		{"down", delivery.Result{Class: delivery.Unreachable}, 40},
		{"a gateway", delivery.Result{Class: delivery.Temporary, By: delivery.ByNobody}, 40},
		{"500 to everything", delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}, 40},
		{"credentials", delivery.Result{Class: delivery.Misconfigured, Status: 401}, 40},
	} {
		for daemons := range 2 {
			t.Run(fmt.Sprint(tc.name, " ", 1+daemons), func(t *testing.T) {
				several(t, 1+daemons, newBook(campaign("c", 50)), nil, func(t *testing.T, f *fleet) {
					f.receiver.max = 8
					f.receiver.setLatency(20 * time.Millisecond)
					const begins, lasts = 10 * time.Second, 10 * time.Minute
					f.receiver.setAnswer(func(int, *delivery.Job) delivery.Result {
						if at := time.Since(f.receiver.began); at > begins && at < begins+lasts {
							return tc.answer
						}
						return delivery.Result{Class: delivery.Delivered}
					})
					defer f.timers(t.Context(), 0)()
					f.stream(t.Context(), t, "c", 0, 10, time.Now().Add(begins+lasts+10*time.Second))
					atMost(t, f.dead(delivery.ReasonAttemptsExhausted), 0, "dead letters")
					from, to := (begins + 30*time.Second).Microseconds(), (begins + lasts).Microseconds()
					sent := f.receiver.history()
					during := slices.DeleteFunc(slices.Clone(sent), func(a arrival) bool { return a.at < from || a.at >= to })
					atMost(t, mostIn(during, 30_000_000), tc.most*int64(1+daemons), "calls in 30 s")
					if tc.answer.Class != delivery.Throttled { // the last answer asked for half a minute
						atLeast(t, between(sent, to+2_000_000, to+6_000_000), 190, "jobs in four seconds after it, of 200")
					}
				})
			})
		}
	}
}

// TestAWaitOfASecondIsASecond: the destination asks three daemons to wait for a second, again and again. Between these seconds the campaign has
// its rate, but for the moment until three answers in a row have closed the gate, which is as long at the other end.
func TestAWaitOfASecondIsASecond(t *testing.T) {
	testservices.Simulation(t)
	several(t, 3, newBook(campaign("c", 60)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setLatency(10 * time.Millisecond)
		const every, rounds = 7 * time.Second, 10
		f.receiver.setAnswer(func(int, *delivery.Job) delivery.Result {
			if at := time.Since(f.receiver.began); at > every && at%every < time.Second {
				return delivery.Result{Class: delivery.Throttled, RetryAfter: time.Second}
			}
			return delivery.Result{Class: delivery.Delivered}
		})
		defer f.timers(t.Context(), 0)()
		f.stream(t.Context(), t, "c", 0, 10, time.Now().Add(rounds*every))
		taken := 0
		for _, a := range f.receiver.history() {
			if at := time.Duration(a.at) * time.Microsecond; at < every || at%every >= time.Second {
				taken++
			}
		}
		atLeast(t, float64(taken), 0.93*60*(rounds*every-(rounds-1)*time.Second).Seconds(), "jobs were taken")
	})
}

// TestStaleTokensCostOthersNothing: some of the tokens or subscriptions of a campaign are refused, as after a change of keys. The others get
// theirs in time, and each of these jobs ends with its first answer. Where all of them are refused, few jobs are given up.
func TestStaleTokensCostOthersNothing(t *testing.T) {
	testservices.Simulation(t)
	for destination, percent := range map[string][]int{"": {1, 20, 50}, "https://push.example.com:443": {1, 5, 20, 50, 100}} {
		for _, stale := range percent {
			t.Run(fmt.Sprint(stale, " % ", destination), func(t *testing.T) {
				const n, rate = 3000, 100
				one(t, newBook(campaign("web", rate)), withShops(&shops{}), func(t *testing.T, f *fleet) {
					f.receiver.max = 256
					f.receiver.setLatency(50 * time.Millisecond)
					var taken atomic.Int64
					f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
						if strings.HasPrefix(j.ID, "stale") {
							return delivery.Result{Class: delivery.Permanent, Status: 403}
						}
						taken.Add(1)
						return delivery.Result{Class: delivery.Delivered}
					})
					defer f.timers(t.Context(), 0)()
					list, good := named(jobs(newPartition("web"), delivery.FromLane, "web", 0, n), destination), int64(n)
					for i, j := range list {
						if i*7919%100 < stale {
							j.ID, good = fmt.Sprint("stale-", i), good-1
						}
					}
					begun := time.Now()
					f.push(t, list)
					time.Sleep(time.Until(begun.Add(1.2 * n / rate * time.Second)))
					exactly(t, taken.Load(), good, "good ones in time")
					dead, calls := f.dead(delivery.ReasonRefused), f.count("web")
					if stale < 100 && (dead != n-int(good) || calls != n) || stale == 100 && dead > 2*heldRefusals {
						t.Errorf("%d of %d stale ones are dead letters after %d calls for %d jobs", dead, n-int(good), calls, n)
					}
				})
			})
		}
	}
}
