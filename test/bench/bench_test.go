package main

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
)

// publishedBy returns a run's jobs per campaign and per partition.
func publishedBy(t *testing.T, r *trial, n int) (partitions map[string][]int) {
	t.Helper()
	partitions = map[string][]int{}
	r.primed = make(chan struct{})
	for _, c := range r.campaigns {
		r.run.Loads = append(r.run.Loads, Load{ID: c.id})
	}
	if r.settled == nil { // daemons that take everything at once
		r.settled = func(context.Context) (settled int, _ error) {
			for _, load := range r.run.Loads {
				settled += load.Published
			}
			return settled, nil
		}
	}
	next := 0
	for record, err := range r.records(t.Context()) {
		noError(t, err)
		id := record.Header(delivery.HeaderCampaign)
		if partitions[id] == nil {
			partitions[id] = make([]int, n)
		}
		partitions[id][next]++
		next = (next + 1) % n
	}
	return partitions
}

func TestEnoughIsPublishedAndSpreadEvenly(t *testing.T) {
	r := &trial{window: 10 * time.Second, campaigns: []campaign{
		{id: "slow", rate: delivery.PerSecond(1)}, {id: "fast", rate: delivery.PerSecond(150)},
	}}
	for id, partitions := range publishedBy(t, r, 6) {
		if most, least := slices.Max(partitions), slices.Min(partitions); most-least > 1 {
			t.Errorf("%s: partitions with %v jobs", id, partitions)
		}
	}
	for i, c := range r.campaigns {
		due := c.rate.PerSecond() * 11 // with the second of warming up
		if n := float64(r.run.Loads[i].Published); n < due || n > 1.2*due+2 {
			t.Errorf("%s: %g jobs published for %g due", c.id, n, due)
		}
	}
}

func TestPublishingStaysAheadOfSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &trial{window: 10 * time.Second, campaigns: []campaign{{id: "c", rate: delivery.PerSecond(50_000)}}}
		began := time.Now()
		publishedBy(t, r, ingressPartitions)
		<-r.primed
		n, took := float64(r.run.Loads[0].Published), time.Since(began).Seconds()
		if due := 50_000.0 * 11; n < due || n > 1.06*due {
			t.Errorf("%g jobs published for %g due", n, due)
		}
		if ahead := n - 50_000*took; ahead < leadJobs/2 || ahead > 1.1*leadJobs {
			t.Errorf("%g jobs after %g s, %g ahead", n, took, ahead)
		}
	})
}

// TestPublishingWaitsForDaemons: what they do not send stays unpublished, and that the broker is slow is not said.
func TestPublishingWaitsForDaemons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		r := &trial{window: 10 * time.Second, campaigns: []campaign{{id: "c", rate: delivery.PerSecond(50_000)}}}
		most := 0
		r.settled = func(context.Context) (int, error) { // a fifth of what they should
			settled := int(10_000 * time.Since(began).Seconds())
			most = max(most, r.run.Loads[0].Published-settled)
			return settled, nil
		}
		publishedBy(t, r, ingressPartitions)
		if most < leadJobs || most > mostWaiting+1 {
			t.Errorf("at most %d jobs waited, want more than %d and at most %d", most, leadJobs, mostWaiting)
		}
	})
}

// misses are the names of the facts that are out of bounds.
func misses(facts []Fact) (names []string) {
	for _, f := range facts {
		if !f.OK {
			names = append(names, f.Name)
		}
	}
	return names
}

func TestStormReport(t *testing.T) {
	stream := func(rate int, from, to time.Duration) *Run {
		run := &Run{Loads: []Load{{Published: 100_000}}, Window: Interval{To: 10 * sec}}
		for at := from; at < to; at += time.Second / time.Duration(rate) {
			run.Events = append(run.Events, Event{At: at, Job: int32(len(run.Events))})
		}
		run.Loads[0].Waiting = run.Loads[0].Published - len(run.Events)
		return run
	}
	changes := []count.RateChange{{Rate: delivery.PerSecond(100)}, {At: 5 * sec, Rate: delivery.PerSecond(100)}, {At: 10 * sec, Rate: delivery.PerSecond(100)}}
	for _, c := range []struct {
		name string
		run  *Run
		miss string
	}{
		{"as it should be", stream(100, 0, 10*sec), ""},
		{"above the rate", stream(110, 0, 10*sec), "above the largest rate"},
		{"standing still", stream(100, 300*ms, 10*sec), "without a job"},
	} {
		got := misses((&storm{changes: changes, inForce: changes}).report(c.run).Facts)
		if (len(got) == 0) != (c.miss == "") || len(got) > 1 || len(got) == 1 && !strings.Contains(got[0], c.miss) {
			t.Errorf("%s: misses %q", c.name, got)
		}
	}
}

// TestStormIsMeasuredByItsRates: a stream that follows the rates as they are changed has sent all that they gave. The tolerance of late
// slots bounds the sent units. It does not extend the time of the earlier rate.
func TestStormIsMeasuredByItsRates(t *testing.T) {
	for seed := range uint64(5) {
		s := newStorm(seed)
		s.begin()
		run := &Run{Loads: []Load{{Published: 100_000}}, Window: Interval{To: stormWindow}}
		at, rate, next := time.Duration(0), s.rates[0], 0
		for units := 0.0; at < stormWindow; at += ms / 100 {
			if next < len(s.after) && at >= s.after[next] {
				s.changed(rate, s.rates[next+1], at, at)
				next++
				rate = s.rates[next]
			}
			if units += float64(rate) * (ms / 100).Seconds(); units >= 1 {
				units--
				run.Events = append(run.Events, Event{At: at, Job: int32(len(run.Events))})
			}
		}
		for _, f := range s.report(run).Facts {
			if f.Name == "jobs of those that the rates gave" && math.Abs(f.Measured-100) > 0.5 {
				t.Errorf("seed %d: %.1f %% of what the rates gave", seed, f.Measured)
			}
		}
	}
}

func TestCampaignsReport(t *testing.T) {
	run := func(starved int) *Run {
		r := &Run{Daemons: 1, Window: Interval{From: 0, To: 20 * sec}, CPU: 10 * sec, RSS: 100 << 20}
		for c := range 200 {
			r.Loads = append(r.Loads, Load{Rate: delivery.PerSecond(5), Published: 100})
			for i := range 100 {
				if c == starved && i%10 == 0 {
					r.Loads[c].Waiting++
					continue
				}
				at := time.Duration(i)*200*ms + time.Duration(c)*ms
				r.Events = append(r.Events, Event{At: at, Campaign: int32(c), Job: int32(i)})
			}
		}
		Sort(r.Events)
		return r
	}
	if report := campaignsReport(run(-1)); len(misses(report.Facts)) > 0 || len(report.Streams[0].Misses) > 0 {
		t.Errorf("misses %q %q", misses(report.Facts), report.Streams[0].Misses)
	}
	if got := misses(campaignsReport(run(17)).Facts); len(got) != 1 || !strings.Contains(got[0], "below 98 % of their rate") {
		t.Errorf("a starved campaign: misses %q", got)
	}
	slow := run(-1)
	slow.CPU, slow.RSS = 21*sec, 2<<30
	if got := misses(campaignsReport(slow).Facts); len(got) != 2 {
		t.Errorf("too dear: misses %q", got)
	}
}

func TestStallFacts(t *testing.T) {
	run := func(daemons int, keep func(i int, at time.Duration) bool) *Run {
		r := &Run{Daemons: daemons, Window: Interval{To: 10 * sec}, Loads: []Load{{Rate: delivery.PerSecond(1000), Published: 10_000}}}
		for i := range 10_000 {
			if at := time.Duration(i) * ms; keep(i, at) {
				r.Events = append(r.Events, Event{At: at, Job: int32(i), Daemon: int8(i % daemons)})
			} else {
				r.Loads[0].Waiting++
			}
		}
		return r
	}
	s := &stall{frozen: Interval{From: 3 * sec, To: 5 * sec}}
	silent := func(_ int, at time.Duration) bool { return at < 3*sec || at >= 5*sec }
	if got := misses(s.facts(run(1, silent))); len(got) > 0 {
		t.Errorf("a daemon that is suspended sends nothing: misses %q", got)
	}
	burst := run(1, silent)
	for i := range 100 { // of what was missed, at once
		burst.Events = append(burst.Events, Event{At: 5 * sec, Job: int32(3000 + i)})
	}
	burst.Loads[0].Waiting -= 100
	Sort(burst.Events)
	if got := misses(s.facts(burst)); len(got) != 2 {
		t.Errorf("a burst: misses %q", got)
	}
	third := func(i int, at time.Duration) bool { return silent(i, at) || i%3 != 0 }
	if got := misses(s.facts(run(3, third))); len(got) != 1 || !strings.Contains(got[0], "rate of the others") {
		t.Errorf("the others do not step in: misses %q", got)
	}
}
