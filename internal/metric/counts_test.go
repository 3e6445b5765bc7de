package metric

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"
)

// TestCells: they follow each other without a gap, and each has its middle inside.
func TestCells(t *testing.T) {
	for us, before := 0, -1; us < 1<<14; us++ {
		d := time.Duration(us) * time.Microsecond
		i := cell(d)
		if i != before && i != before+1 {
			t.Fatalf("%s is in cell %d, after %d", d, i, before)
		}
		before = i
	}
	for i := range Cells {
		if got := cell(middle(i)); got != i {
			t.Errorf("cell %d: its middle %s is in cell %d", i, middle(i), got)
		}
	}
	for d, want := range map[time.Duration]int{-time.Hour: 0, 0: 0, 999: 0, 3 * time.Microsecond: 3, 4 * time.Microsecond: 4, 8 * time.Microsecond: 8, Longest: Cells - 1, Longest + 1: Cells - 1, math.MaxInt64: Cells - 1} {
		if got := cell(d); got != want {
			t.Errorf("%s is in cell %d, want %d", d, got, want)
		}
	}
}

func TestQuantiles(t *testing.T) {
	ms := func(list ...int) (all []time.Duration) {
		for _, n := range list {
			all = append(all, time.Duration(n)*time.Millisecond)
		}
		return all
	}
	for name, tc := range map[string]struct {
		durations []time.Duration
		part      float64
		want      time.Duration
	}{
		"none":             {nil, 0.5, 0},
		"one":              {ms(100), 0.99, 100 * time.Millisecond},
		"half":             {ms(10, 10, 300, 300), 0.5, 10 * time.Millisecond},
		"just above half":  {ms(10, 10, 300, 300), 0.51, 300 * time.Millisecond},
		"one of a hundred": {append(slices.Repeat(ms(5), 99), ms(5000)...), 0.99, 5 * time.Millisecond},
		"two of a hundred": {append(slices.Repeat(ms(5), 98), ms(5000, 5000)...), 0.99, 5 * time.Second},
		"longer than told": {ms(500_000), 0.5, Longest},
		"all":              {ms(1, 2, 3), 1, 3 * time.Millisecond},
	} {
		var h Histogram
		for _, d := range tc.durations {
			h.Observe(d)
		}
		counts := h.Counts()
		if got := counts.Quantile(tc.part); (got-tc.want).Abs() > tc.want/8 || counts.Total() != uint64(len(tc.durations)) {
			t.Errorf("%s: %s, want about %s", name, got, tc.want)
		}
	}
}

// TestQuantilesAreNearTheExactOnes: within an eighth and a microsecond, of any durations, parts and splits into histograms.
func TestQuantilesAreNearTheExactOnes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		long := rapid.SampledFrom([]time.Duration{10 * time.Microsecond, time.Millisecond, time.Second, Longest}).Draw(rt, "longest")
		all := rapid.SliceOfN(rapid.Int64Range(0, int64(long)), 1, 200).Draw(rt, "durations")
		part := rapid.Float64Range(0.001, 1).Draw(rt, "part")
		split := rapid.IntRange(0, len(all)).Draw(rt, "split")
		var a, b Histogram
		for i, d := range all {
			if i < split {
				a.Observe(time.Duration(d))
			} else {
				b.Observe(time.Duration(d))
			}
		}
		sum, part2 := a.Counts(), b.Counts()
		sum.Add(&part2)
		slices.Sort(all)
		exact := time.Duration(all[int(math.Ceil(part*float64(len(all))))-1])
		if got := sum.Quantile(part); (got - exact).Abs() > exact/8+time.Microsecond {
			rt.Fatalf("%s, exactly it is %s", got, exact)
		}
		before := a.Counts()
		if grown := sum.Since(&before); grown != part2 {
			rt.Fatalf("%v since then, want %v", grown, part2)
		}
		if none := before.Since(&sum); none.Total() != 0 {
			rt.Fatalf("%v of a histogram that began anew", none)
		}
	})
}

func TestValues(t *testing.T) {
	counter, gauge := prometheus.NewCounter(prometheus.CounterOpts{}), prometheus.NewGauge(prometheus.GaugeOpts{})
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{})
	counter.Add(3)
	gauge.Set(-2)
	histogram.Observe(1)
	histogram.Observe(100)
	if Value(counter) != 3 || Value(gauge) != -2 || Observed(histogram) != 2 {
		t.Errorf("%v, %v, %v", Value(counter), Value(gauge), Observed(histogram))
	}
}
