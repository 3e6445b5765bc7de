package pacer

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

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
	c := newCounts(prometheus.NewRegistry(), anyOf, nil)
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
		"deaf":            nil,
		"unreachable":     always(delivery.Result{Class: delivery.Unreachable}),
		"500":             always(delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}),
		"come back later": always(delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeRecipient, RetryAfter: 10 * time.Second}),
	}
	for name, answer := range answers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var log lines
			patient := func(o *Options) { log.keep(o); o.Retry.Max, o.Retry.MaxAttempts = 20*time.Second, 100 }
			one(t, newBook(campaign("c", 100)), patient, func(t *testing.T, f *fleet) {
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
		c := newCounts(prometheus.NewRegistry(), anyOf, func(id string) bool { return id == "shop" })
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
					if id != "shop" || a.Answer != "a b" || !utf8.ValidString(a.Detail) || len(a.Detail) > 128 || a.At.IsZero() {
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

// TestWhatIsNotSentIsNoneOfTheUnitsSent: jobs that are settled without a call, such as those of a campaign that is cancelled, add nothing to its throughput.
func TestWhatIsNotSentIsNoneOfTheUnitsSent(t *testing.T) {
	var a delivery.Account
	for o, attempts := range map[delivery.Outcome]int{
		delivery.OutcomeDelivered: 1, delivery.OutcomeRejected: 1, delivery.OutcomeDead: 1, // sent
		delivery.OutcomeExpired: 1, delivery.OutcomeCancelled: 0, delivery.OutcomeCapped: 0, delivery.OutcomeDuplicate: 0, // not now
		delivery.OutcomeRetried: 1, delivery.OutcomeRequeued: 0, // only moved
	} {
		a.Add(&delivery.Job{Weight: 10, History: delivery.History{Attempt: attempts}}, o)
	}
	a.Add(&delivery.Job{Weight: 5}, delivery.OutcomeDead) // missing_key, say
	if is := a.Tally("c"); is.Sent != 30 || is.Unsent != 45 {
		t.Errorf("%d units sent, %d not", is.Sent, is.Unsent)
	}
}

// TestJobsAreCountedByDestination: by those with a row, however many others there are. One that was forgotten begins anew, long after its last job.
func TestJobsAreCountedByDestination(t *testing.T) {
	c := newCounts(prometheus.NewRegistry(), anyOf, func(id string) bool { return !strings.HasPrefix(id, "none") })
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

// countsOf makes counts of n campaigns, each with one delivered job.
func countsOf(campaigns int) (*counts, *prometheus.Registry) {
	reg := prometheus.NewPedanticRegistry()
	c := newCounts(reg, anyOf, nil)
	for i := range campaigns {
		c.settle(fmt.Sprintf("campaign-%05d", i), delivery.OutcomeDelivered)
	}
	return c, reg
}

// TestScrapeText: what a scrape reads, byte for byte.
func TestScrapeText(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	c := newCounts(reg, func(campaign string) bool { return campaign != "hidden" }, nil)
	add := func(campaign string, outcomes ...delivery.Outcome) {
		for _, o := range outcomes {
			c.settle(campaign, o)
		}
	}
	c.unknown.Add(&delivery.Job{}, delivery.OutcomeExpired)
	c.know("none yet")
	add("\"б\"", delivery.OutcomeRejected, delivery.OutcomeDelivered, delivery.OutcomeDelivered, delivery.OutcomeDuplicate)
	add("hidden", delivery.OutcomeDead, delivery.OutcomeRequeued, delivery.OutcomeDuplicate)
	add(others, delivery.OutcomeDelivered) // with two series of the same labels, no metric at all would be shown
	add("deleted", delivery.OutcomeDuplicate)
	c.forget("deleted")
	want := `# HELP pacer_duplicates_suppressed_total Jobs not sent because one with their id had been delivered.
# TYPE pacer_duplicates_suppressed_total counter
pacer_duplicates_suppressed_total{campaign="\"б\""} 1
pacer_duplicates_suppressed_total{campaign="(others)"} 1
# HELP pacer_jobs_settled_total Jobs whose outcome became durable, by campaign and outcome.
# TYPE pacer_jobs_settled_total counter
pacer_jobs_settled_total{campaign="\"б\"",outcome="dead"} 0
pacer_jobs_settled_total{campaign="\"б\"",outcome="delivered"} 2
pacer_jobs_settled_total{campaign="\"б\"",outcome="duplicate"} 1
pacer_jobs_settled_total{campaign="\"б\"",outcome="rejected"} 1
`
	every := func(campaign string, jobs map[delivery.Outcome]int) {
		for _, o := range delivery.Outcomes {
			want += fmt.Sprintf("pacer_jobs_settled_total{campaign=%q,outcome=%q} %d\n", campaign, o, jobs[o])
		}
	}
	every(others, map[delivery.Outcome]int{delivery.OutcomeDelivered: 1, delivery.OutcomeDead: 1, delivery.OutcomeRequeued: 1, delivery.OutcomeDuplicate: 1})
	every(delivery.UnknownCampaign, map[delivery.Outcome]int{delivery.OutcomeExpired: 1})
	want += `pacer_jobs_settled_total{campaign="none yet",outcome="dead"} 0
pacer_jobs_settled_total{campaign="none yet",outcome="delivered"} 0
`
	for range 2 { // what was kept from the first is what the second reads
		if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAScrapeMakesNoLabels: the scheduler waits while campaigns are listed, so that nothing is made for each of them then.
func TestAScrapeMakesNoLabels(t *testing.T) {
	c, _ := countsOf(1000)
	atMost(t, testing.AllocsPerRun(5, func() { c.list() }), 10, "allocations for the list of 1,000 campaigns")
}

// TestCampaignsComeAndGoDuringScrapes: each scrape is whole, and nothing is left of campaigns that have gone.
func TestCampaignsComeAndGoDuringScrapes(t *testing.T) {
	c, reg := countsOf(20)
	var changes sync.WaitGroup
	for i := range 2 {
		changes.Go(func() {
			for n := range 500 {
				id := fmt.Sprintf("campaign-%05d", 10*i+n%10)
				c.forget(id)
				if n < 490 {
					c.settle(id, delivery.OutcomeDelivered)
				}
			}
		})
	}
	for range 20 {
		if _, err := reg.Gather(); err != nil {
			t.Error(err)
		}
	}
	changes.Wait()
	exactly(t, testutil.CollectAndCount(c), 2*len(delivery.Outcomes), "series: those of unknown campaigns and of others")
}

// TestLatenessNamesTraces: those of attempts that are traced, as exemplars; all attempts are counted.
func TestLatenessNamesTraces(t *testing.T) {
	const traced = "4bf92f3577b34da6a3ce929d0e0e4736"
	reg := prometheus.NewPedanticRegistry()
	one(t, newBook(campaign("c", 100)), func(o *Options) { o.Registerer = reg }, func(t *testing.T, f *fleet) {
		list := jobs(newPartition("in/0"), delivery.FromIngress, "c", 0, 10)
		f.receiver.setAnswer(func(_ int, j *delivery.Job) (r delivery.Result) {
			if j == list[3] {
				r.TraceID = traced
			}
			return r
		})
		f.offer(t, list)
		time.Sleep(time.Second)
	})
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	named, counted := 0, uint64(0)
	for _, family := range families {
		if family.GetName() != "pacer_slot_lateness_seconds" {
			continue
		}
		h := family.GetMetric()[0].GetHistogram()
		counted = h.GetSampleCount()
		for _, b := range h.GetBucket() {
			for _, label := range b.GetExemplar().GetLabel() {
				if named++; label.GetName() != "trace_id" || label.GetValue() != traced {
					t.Errorf("an exemplar has %s %q", label.GetName(), label.GetValue())
				}
			}
		}
	}
	exactly(t, named, 1, "exemplars of one trace")
	exactly(t, counted, 10, "attempts counted")
}
