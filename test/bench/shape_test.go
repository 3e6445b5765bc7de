package main

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
)

func drawTimes(t *rapid.T) []time.Duration {
	times := make([]time.Duration, rapid.IntRange(1, 60).Draw(t, "n"))
	for i := range times {
		times[i] = time.Duration(rapid.IntRange(0, 5_000_000).Draw(t, "us")) * time.Microsecond
	}
	slices.Sort(times)
	return times
}

func TestWindowCutsWhatLiesInIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := drawTimes(t)
		w := Interval{From: time.Duration(rapid.IntRange(0, 5000).Draw(t, "from")) * ms}
		w.To = w.From + time.Duration(rapid.IntRange(-100, 3000).Draw(t, "length"))*ms
		want := 0
		for _, at := range times {
			if at >= w.From && at < w.To {
				want++
			}
		}
		cut := w.Cut(events(times))
		if len(cut) != want {
			t.Fatalf("%d events in [%s, %s), want %d", len(cut), w.From, w.To, want)
		}
		inBins, whole := 0, Interval{From: w.From, To: w.From + max(0, w.To-w.From).Truncate(BinWidth)}
		for _, n := range w.Bins(events(times)) {
			inBins += n
		}
		if want := len(whole.Cut(cut)); inBins != want {
			t.Fatalf("%d events in whole bins, want %d", inBins, want)
		}
	})
}

func TestEvenness(t *testing.T) {
	for _, c := range []struct {
		name              string
		bins              []int
		maxOverMean       float64
		worst, within5pct float64
	}{
		{"even", []int{10, 10, 10, 10}, 1, 0, 1},
		{"at the edge of 5 %", []int{95, 105, 100, 100}, 1.05, 0.05, 1},
		{"one off", []int{80, 120, 100, 100}, 1.2, 0.2, 0.5},
		{"a gap and a burst", []int{0, 200, 100, 100}, 2, 1, 0.5},
		{"nothing at all", []int{0, 0}, 0, 0, 1},
		{"no bins", nil, 0, 0, 1},
	} {
		e := EvennessOf(c.bins)
		if math.Abs(e.MaxOverMean-c.maxOverMean) > 1e-9 || math.Abs(e.Worst-c.worst) > 1e-9 || e.Within(0.05) != c.within5pct {
			t.Errorf("%s: max/mean %g, worst %g, within 5 %%: %g", c.name, e.MaxOverMean, e.Worst, e.Within(0.05))
		}
	}
}

func TestShares(t *testing.T) {
	list := []Event{{Daemon: 0}, {Daemon: 2}, {Daemon: 2}, {Daemon: 1}}
	shares := Shares(list, 3)
	if !slices.Equal(shares, []float64{0.25, 0.25, 0.5}) {
		t.Fatalf("shares %v", shares)
	}
	if off := Unfairness(shares); math.Abs(off-0.5) > 1e-9 {
		t.Errorf("half a share too much, unfairness %g", off)
	}
	if off := Unfairness([]float64{1}); off != 0 {
		t.Errorf("one daemon is unfair to itself: %g", off)
	}
	if shares := Shares(nil, 3); shares != nil || Unfairness(shares) != 0 {
		t.Errorf("shares of nothing: %v", shares)
	}
}

func TestTallyAndTimesPerCampaign(t *testing.T) {
	loads := []Load{{Published: 3}, {Published: 2}}
	list := []Event{{Campaign: 0, Job: 0}, {Campaign: 1, Job: 0}, {Campaign: 0, Job: 2}, {Campaign: 0, Job: 0}, {Campaign: 0, Job: 0}}
	distinct, duplicates := Tally(list, loads)
	if distinct != 3 || duplicates != 2 {
		t.Errorf("%d distinct and %d duplicates, want 3 and 2", distinct, duplicates)
	}
	if times := TimesPerCampaign(list, 2); len(times[0]) != 4 || len(times[1]) != 1 {
		t.Errorf("per campaign %v", times)
	}
}

func TestLongestGap(t *testing.T) {
	w := Interval{From: sec, To: 3 * sec}
	for _, c := range []struct {
		name  string
		times []time.Duration
		want  time.Duration
	}{
		{"nothing", nil, 2 * sec},
		{"at the beginning", []time.Duration{1900 * ms, 2500 * ms}, 900 * ms},
		{"in between", []time.Duration{0, 1200 * ms, 2600 * ms}, 1400 * ms},
		{"at the end", []time.Duration{1200 * ms, 1300 * ms, 4 * sec}, 1700 * ms},
	} {
		if got := w.LongestGap(c.times); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func TestRollingExcess(t *testing.T) {
	at := func(at time.Duration, rate int64) count.RateChange {
		return count.RateChange{At: at, Rate: delivery.PerSecond(rate)}
	}
	lowered := []count.RateChange{at(0, 200), at(time.Second, 100)}
	for _, c := range []struct {
		name    string
		times   []time.Duration
		changes []count.RateChange
		ok      bool
	}{
		{"even", even(0, 10*ms, 300), []count.RateChange{at(0, 100)}, true},
		{"a stall's worth more", append(even(0, 10*ms, 100), 990*ms, 990*ms), []count.RateChange{at(0, 100)}, true},
		{"more than that", append(even(0, 10*ms, 100), 990*ms, 990*ms, 990*ms, 990*ms), []count.RateChange{at(0, 100)}, false},
		{"the old rate counts while it is in the second", even(0, 5*ms, 210), lowered, true},
		{"but not for ever", even(0, 5*ms, 500), lowered, false},
		{"raised before its time", even(0, 5*ms, 200), []count.RateChange{at(0, 100), at(3*time.Second, 200)}, false},
	} {
		if got := RollingExcess(c.times, c.changes, time.Second); (got <= 0) != c.ok {
			t.Errorf("%s: excess %g, want within the bound: %v", c.name, got, c.ok)
		}
	}
	if got := RollingExcess(nil, lowered, time.Second); !math.IsInf(got, -1) {
		t.Errorf("of nothing: %g", got)
	}
}
