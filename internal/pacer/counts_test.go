package pacer

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// nobody is the receipt of jobs that are only counted.
type nobody struct{}

func (nobody) Settle(*delivery.Job, delivery.Outcome) {}

// settle counts a job of a campaign.
func (c *counts) settle(campaign string, o delivery.Outcome) {
	c.Receipt(nobody{}).Settle(&delivery.Job{Campaign: campaign, Account: c.know(campaign)}, o)
}

// TestCountsOfOthers: what campaigns do while they have no series of their own is added up, and no series ever goes back.
func TestCountsOfOthers(t *testing.T) {
	reg, shown := prometheus.NewRegistry(), map[string]bool{"a": true, "b": true}
	c := newCounts(reg, func(campaign string) bool { return shown[campaign] }, nil)
	deliver := func(campaign string, jobs int) {
		for range jobs {
			c.settle(campaign, delivery.OutcomeDelivered)
		}
	}
	shows := func(what string, want map[string]float64) {
		t.Helper()
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]float64{}
		for _, m := range families[0].Metric {
			campaign, outcome := m.Label[0].GetValue(), m.Label[1].GetValue()
			if campaign != delivery.UnknownCampaign && outcome == "delivered" {
				got[campaign] = m.Counter.GetValue()
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("%s: %v, want %v", what, got, want)
		}
	}
	deliver("a", 3)
	c.know("b")
	shows("both have series, from 0 on", map[string]float64{others: 0, "a": 3, "b": 0})
	delete(shown, "a")
	shows("a has none", map[string]float64{others: 0, "b": 0})
	deliver("a", 2)
	shows("a goes on", map[string]float64{others: 2, "b": 0})
	shown["a"] = true
	deliver("a", 1)
	shows("a has its series again", map[string]float64{others: 2, "a": 6, "b": 0})
	delete(shown, "a")
	c.forget("a")
	shows("a is gone", map[string]float64{others: 2, "b": 0})
}

// TestAScrapeIsNotWaitedFor: the scheduler gets an account while a slow reader reads the series.
func TestAScrapeIsNotWaitedFor(t *testing.T) {
	c := newCounts(prometheus.NewRegistry(), nil, nil)
	c.know("a")
	series := make(chan prometheus.Metric)
	go func() { defer close(series); c.Collect(series) }()
	for range series {
		if !c.mu.TryLock() {
			t.Fatal("the lock is held while series are passed on")
		}
		c.mu.Unlock()
	}
}

// TestFewJobsThatAllFailAreNoticed: however few they are, and however they fail, the time of the last error passes that of the last success,
// and the log has one line.
func TestFewJobsThatAllFailAreNoticed(t *testing.T) {
	answers := map[string]func(int, *delivery.Job) delivery.Result{
		"deaf":        nil,
		"unreachable": func(int, *delivery.Job) delivery.Result { return delivery.Result{Class: delivery.Unreachable} },
		"500": func(int, *delivery.Job) delivery.Result {
			return delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}
		},
		"come back later": func(int, *delivery.Job) delivery.Result {
			return delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeRecipient, RetryAfter: 10 * time.Second}
		},
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var log lines
				f := newFleet(1, uniform(3, 500*time.Microsecond, 0), newBook(campaign("c", 100)), func(o *Options) {
					o.Retry.Max, o.Retry.MaxAttempts, o.Logger = 20*time.Second, 100, slog.New(slog.NewTextHandler(&log, nil))
				})
				defer f.stop()
				f.timerEvery = 200 * time.Millisecond
				defer f.timers(t.Context(), 0)()
				account := f.daemons[0].counts.know("c")
				f.share(t, "c", 10)
				time.Sleep(time.Second)
				if success, failure := account.Last(); time.Since(success) > time.Second || !failure.IsZero() {
					t.Errorf("after 10 successes: %s, %s", success, failure)
				}
				f.receiver.setAnswer(answer)
				f.receiver.setDeaf(answer == nil)
				f.share(t, "c", 3)
				for range 10 {
					time.Sleep(time.Minute)
					if success, failure := account.Last(); failure.Sub(success) < 30*time.Second || time.Since(failure) > 30*time.Second {
						t.Errorf("last success %s, last error %s", success, failure)
					}
				}
				q := f.daemons[0].queues.byID["c"] // an open breaker has a line of its own
				if n := log.count("the jobs of a campaign fail"); n != 1 && !q.circuit.tripped && !q.sink.breaker.tripped {
					t.Errorf("%d lines tell of it: %s", n, log.text.String())
				}
				f.receiver.setAnswer(nil)
				f.receiver.setDeaf(false)
				time.Sleep(time.Minute)
				if success, failure := account.Last(); !success.After(failure) {
					t.Errorf("all are delivered: last success %s, last error %s", success, failure)
				}
			})
		})
	}
}

// TestAnswersAreTold: those of a destination with a row, at once when they mean something else, and otherwise every half minute.
func TestAnswersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCounts(prometheus.NewRegistry(), nil, func(id string) bool { return id == "shop" })
		n := 0
		answer := func(destination string, class delivery.ResultClass) {
			n++
			c.answered(&delivery.Job{ID: fmt.Sprint("u-", n), Destination: destination}, &delivery.Result{
				Class: class, Status: 200, Detail: strings.Repeat("é", 200), Provider: &delivery.Provider{Answer: "a\x00b"},
			}, time.Now())
		}
		told := func(want ...int) {
			t.Helper()
			var got []int
			for id, list := range c.Answers() {
				for _, a := range list {
					var job int
					_, _ = fmt.Sscanf(a.Job, "u-%d", &job)
					got = append(got, job)
					if id != "shop" || a.Answer != "ab" || !utf8.ValidString(a.Detail) || len(a.Detail) > 128 || a.At.IsZero() {
						t.Errorf("%s: %+v", id, a)
					}
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%v, want %v", got, want)
			}
		}
		told()
		answer("shop", delivery.Delivered)
		answer("none", delivery.Delivered)
		answer("", delivery.Delivered)
		answer("shop", delivery.Withheld)
		answer(" sink shop", delivery.Delivered)
		told(1)
		answer("shop", delivery.Delivered)
		told()
		time.Sleep(10 * time.Second)
		answer("shop", delivery.Temporary)
		told(6, 7)
		told()
		for range 15 {
			time.Sleep(time.Second)
			answer("shop", delivery.Temporary)
		}
		told()
		time.Sleep(15 * time.Second)
		answer("shop", delivery.Temporary)
		told(14, 15, 16, 17, 18, 19, 20, 21, 22, 23)
	})
}

// TestJobsAreCountedByDestination: by those with a row, however many others there are. One that was forgotten begins anew, long after its last job.
func TestJobsAreCountedByDestination(t *testing.T) {
	c := newCounts(prometheus.NewRegistry(), nil, func(id string) bool { return !strings.HasPrefix(id, "none") })
	receipt := c.Receipt(newPartition("jobs/0"))
	settle := func(destination string, outcomes ...delivery.Outcome) {
		for _, o := range outcomes {
			receipt.Settle(&delivery.Job{Campaign: "c", Destination: destination}, o)
		}
	}
	of := func(destination string) (n int, settled delivery.Settled) {
		for _, tally := range c.Tallies() {
			if tally.Campaign == "" && tally.Destination == destination {
				n, settled = n+1, tally.Settled
			}
		}
		return n, settled
	}
	settle("shop", delivery.OutcomeDelivered, delivery.OutcomeDead, delivery.OutcomeRetried, delivery.OutcomeRequeued, delivery.OutcomeDelivered)
	settle("none", delivery.OutcomeDead)
	settle("", delivery.OutcomeDelivered)
	settle(" sink shop", delivery.OutcomeDelivered) // that a sink has found
	want := delivery.Settled{delivery.OutcomeDelivered: 2, delivery.OutcomeDead: 1}
	if n, got := of("shop"); n != 1 || got != want || len(c.Tallies()) != 1 {
		t.Errorf("%d, %+v; %d in all", n, got, len(c.Tallies()))
	}
	for i := range maxDestinations {
		settle(fmt.Sprint("one-", i), delivery.OutcomeDelivered)
		settle(fmt.Sprint("none-", i), delivery.OutcomeDead)
	}
	settle("shop", delivery.OutcomeDelivered)
	want[delivery.OutcomeDelivered]++
	if n, got := of("shop"); n != 1 || got != want {
		t.Errorf("%d, %+v after many others", n, got)
	}
	for i := range 2 * maxDestinations {
		settle(fmt.Sprint("two-", i), delivery.OutcomeDelivered)
	}
	if n, _ := of("shop"); n != 0 || len(c.Tallies()) > 2*maxDestinations {
		t.Errorf("%d of it, %d in all, after many others and none of its own", n, len(c.Tallies()))
	}
}
