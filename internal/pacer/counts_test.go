package pacer

import (
	"maps"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// TestCountsOfOthers: what campaigns without series of their own have done is added up, and no series ever goes back.
func TestCountsOfOthers(t *testing.T) {
	reg, shown := prometheus.NewRegistry(), map[string]bool{"a": true, "b": true}
	c := newCounts(reg, func(campaign string) bool { return shown[campaign] })
	deliver := func(campaign string, jobs int) {
		for range jobs {
			c.know(campaign).Add(&delivery.Job{}, delivery.OutcomeDelivered)
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
	shows("both have series, from 0 on", map[string]float64{"a": 3, "b": 0})
	delete(shown, "a")
	shows("a has none", map[string]float64{others: 3, "b": 0})
	deliver("a", 2)
	shows("a goes on", map[string]float64{others: 5, "b": 0})
	shown["a"] = true
	deliver("a", 1)
	shows("a begins anew", map[string]float64{others: 5, "a": 1, "b": 0})
	delete(shown, "a")
	c.forget("a")
	shows("a is gone", map[string]float64{others: 6, "b": 0})
}

// TestAScrapeIsNotWaitedFor: the scheduler gets an account while somebody reads the series, however slowly.
func TestAScrapeIsNotWaitedFor(t *testing.T) {
	c := newCounts(prometheus.NewRegistry(), nil)
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
