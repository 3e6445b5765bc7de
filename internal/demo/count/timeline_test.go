package count

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	ms  = time.Millisecond
	sec = time.Second
)

func constant(rate int64) Timeline {
	return NewTimeline([]RateChange{{0, delivery.PerSecond(rate)}}, ChangeGrace)
}

// even is n arrivals, one every spacing from start on.
func even(start, spacing time.Duration, n int) []time.Duration {
	times := make([]time.Duration, n)
	for i := range times {
		times[i] = start + time.Duration(i)*spacing
	}
	return times
}

func TestRateTimelineTakesTheLargerRateAroundAChange(t *testing.T) {
	line := NewTimeline([]RateChange{
		{0, delivery.PerSecond(100)}, {time.Second, delivery.PerSecond(50)}, {2 * time.Second, delivery.PerSecond(200)},
	}, 100*ms)
	for _, c := range []struct {
		at   time.Duration
		want float64
	}{{-time.Second, 100}, {0, 100}, {999 * ms, 100}, {1099 * ms, 100}, {1100 * ms, 50}, {1999 * ms, 50}, {2 * time.Second, 200}, {time.Minute, 200}} {
		if got := line.Rate(c.at); got != c.want {
			t.Errorf("rate at %s is %g, want %g", c.at, got, c.want)
		}
	}
	if got, want := line.Units(3*time.Second), 100*1.1+50*0.9+200; math.Abs(got-want) > 1e-9 {
		t.Errorf("units in 3 s: %g, want %g", got, want)
	}
}

func TestExcess(t *testing.T) {
	// A stream at 100/s with the last ten of a hundred slots used together: a stall of 90 ms.
	stalled := even(0, 10*ms, 100)
	for i := 90; i < 100; i++ {
		stalled[i] = 990 * ms
	}
	late := even(0, 10*ms, 100)
	late[50] += 10 * ms // within the tolerance of 20 ms
	raised := append(even(0, 10*ms, 100), even(time.Second, 5*ms, 200)...)
	twice := []RateChange{{0, delivery.PerSecond(100)}, {time.Second, delivery.PerSecond(200)}}
	for _, c := range []struct {
		name  string
		times []time.Duration
		line  Timeline
		ok    bool
	}{
		{"even", even(0, 10*ms, 1000), constant(100), true},
		{"a slot late", late, constant(100), true},
		{"a burst after a stall", stalled, constant(100), false},
		{"double", even(0, 5*ms, 1000), constant(100), false},
		{"2 % fast", even(0, 9800*time.Microsecond, 1000), constant(100), false},
		{"two at once", []time.Duration{0, 0}, constant(1), false},
		{"raised in time", raised, NewTimeline(twice, ChangeGrace), true},
		{"raised before its time", raised, constant(100), false},
		{"lowered, 90 ms behind", append(even(0, 5*ms, 218), even(1090*ms, 10*ms, 50)...),
			NewTimeline([]RateChange{{0, delivery.PerSecond(200)}, {time.Second, delivery.PerSecond(100)}}, ChangeGrace), true},
		{"lowered, never heeded", even(0, 5*ms, 300),
			NewTimeline([]RateChange{{0, delivery.PerSecond(200)}, {time.Second, delivery.PerSecond(100)}}, ChangeGrace), false},
		{"slow, a tenth of the spacing late", []time.Duration{0, 10 * time.Second, 19100 * ms}, func() Timeline {
			r, _ := delivery.NewRate(100_000, time.Second)
			return NewTimeline([]RateChange{{0, r}}, ChangeGrace)
		}(), true},
	} {
		if got := Excess(c.times, c.line, 0); (got <= 1+1e-6) != c.ok {
			t.Errorf("%s: excess %g, want within the bound: %v", c.name, got, c.ok)
		}
	}
	if got := Excess(nil, constant(1), 0); got > 0 {
		t.Errorf("nothing arrived, excess %g", got)
	}
}

// drawChanges and drawTimes make random timelines and arrivals.
func drawChanges(t *rapid.T) []RateChange {
	var changes []RateChange
	at := time.Duration(0)
	for range rapid.IntRange(1, 4).Draw(t, "changes") {
		changes = append(changes, RateChange{at, delivery.PerSecond(rapid.Int64Range(0, 500).Draw(t, "rate"))})
		at += time.Duration(rapid.IntRange(1, 3000).Draw(t, "after")) * ms
	}
	return changes
}

func drawTimes(t *rapid.T) []time.Duration {
	times := make([]time.Duration, rapid.IntRange(1, 60).Draw(t, "n"))
	for i := range times {
		times[i] = time.Duration(rapid.IntRange(0, 5_000_000).Draw(t, "us")) * time.Microsecond
	}
	slices.Sort(times)
	return times
}

func TestExcessIsTheWorstOfAllStretches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line, times := NewTimeline(drawChanges(t), ChangeGrace), drawTimes(t)
		blur := time.Duration(rapid.IntRange(0, 50).Draw(t, "blur")) * ms
		want := math.Inf(-1)
		for i := range times {
			for j := i; j < len(times); j++ {
				allowed := ReceiverClock * (line.Units(times[j]) - line.Units(times[i]-line.Tolerance(times[i])-blur))
				want = max(want, float64(j-i+1)-allowed)
			}
		}
		if got := Excess(times, line, blur); math.Abs(got-want) > 1e-6 {
			t.Fatalf("excess %g, want %g", got, want)
		}
	})
}

func TestMaxRollingIsTheFullestStretch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		times := drawTimes(t)
		span := time.Duration(rapid.IntRange(1, 3000).Draw(t, "span")) * ms
		want := 0
		for i := range times {
			n := 0
			for _, at := range times[i:] {
				if at < times[i]+span {
					n++
				}
			}
			want = max(want, n)
		}
		if got := MaxRolling(times, span); got != want {
			t.Fatalf("%d, want %d", got, want)
		}
	})
}

func TestLatenessExplainsTheArrivals(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		changes := drawChanges(t)
		for i := range changes { // a held campaign has no slots to be late for
			if changes[i].Rate.Zero() {
				changes[i].Rate = delivery.PerSecond(1)
			}
		}
		line, times := NewTimeline(changes, ChangeGrace), drawTimes(t)
		late := Lateness(times, line)
		for i, l := range late {
			if l < 0 {
				t.Fatalf("request %d is %s early", i, -l)
			}
			if i == 0 {
				continue
			}
			slot, before := line.Units(times[i]-l), line.Units(times[i-1]-late[i-1])
			if slot-before < 1/ReceiverClock-2e-3 {
				t.Fatalf("slots %d and %d are %g units apart", i-1, i, slot-before)
			}
		}
		if late[len(late)-1] != 0 {
			t.Fatal("the last request explains itself")
		}
	})
}

func TestLatenessOfAStall(t *testing.T) {
	if got := Percentile(Lateness(even(0, 10*ms, 500), constant(100)), 0.99); got != 0 {
		t.Fatalf("an even stream is %s late", got)
	}
	times := even(0, 10*ms, 100)
	times[50], times[51] = times[52], times[52]
	late := Lateness(times, constant(100))
	if got := late[50].Round(ms); got != 20*ms {
		t.Fatalf("held up for 20 ms, %s late", got)
	}
}

func TestPercentile(t *testing.T) {
	values := []int{5, 1, 4, 2, 3}
	for p, want := range map[float64]int{0.5: 3, 0.8: 4, 0.99: 5, 1: 5} {
		if got := Percentile(values, p); got != want {
			t.Errorf("p%g is %d, want %d", 100*p, got, want)
		}
	}
	if got := Percentile([]int(nil), 0.99); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}
