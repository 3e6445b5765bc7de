package pacer

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
)

// countsOf makes counts of n campaigns, each with one delivered job.
func countsOf(campaigns int) (*counts, *prometheus.Registry) {
	reg := prometheus.NewPedanticRegistry()
	c := newCounts(reg, nil, nil)
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
	add("\"б\"", delivery.OutcomeRejected, delivery.OutcomeDelivered, delivery.OutcomeDelivered)
	add("hidden", delivery.OutcomeDead, delivery.OutcomeRequeued)
	want := `# HELP pacer_jobs_settled_total Jobs whose outcome became durable, by campaign and outcome.
# TYPE pacer_jobs_settled_total counter
pacer_jobs_settled_total{campaign="\"б\"",outcome="dead"} 0
pacer_jobs_settled_total{campaign="\"б\"",outcome="delivered"} 2
pacer_jobs_settled_total{campaign="\"б\"",outcome="rejected"} 1
`
	every := func(campaign string, jobs map[delivery.Outcome]int) {
		for _, o := range delivery.Outcomes {
			want += fmt.Sprintf("pacer_jobs_settled_total{campaign=%q,outcome=%q} %d\n", campaign, o, jobs[o])
		}
	}
	every(others, map[delivery.Outcome]int{delivery.OutcomeDead: 1, delivery.OutcomeRequeued: 1})
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

// BenchmarkScrape is what a scrape asks of the accounts of 10,000 campaigns.
func BenchmarkScrape(b *testing.B) {
	c, _ := countsOf(10_000)
	reg := prometheus.NewRegistry()
	reg.MustRegister(c)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := reg.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
