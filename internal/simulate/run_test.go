package simulate

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const usual = "4s:500ms,6s:1s"

// run gives a load to the named algorithms, all if there are none.
func run(t testing.TB, load *Load, names ...string) map[string]*Result {
	t.Helper()
	algorithms, err := Select(names)
	if err != nil {
		t.Fatal(err)
	}
	results, err := Run(context.Background(), load, algorithms)
	if err != nil {
		t.Fatal(err)
	}
	byName := map[string]*Result{}
	for i := range results {
		byName[results[i].Name] = &results[i]
	}
	return byName
}

func parse(t testing.TB, idle string) []Pause {
	t.Helper()
	pauses, err := ParseIdle(idle)
	if err != nil {
		t.Fatal(err)
	}
	return pauses
}

func TestMaxima(t *testing.T) {
	t.Parallel()
	type figures struct{ second, tenth, finished int64 } // finished in milliseconds
	for _, c := range []struct {
		idle string
		want map[string]figures
	}{
		{"", map[string]figures{
			"leaky-bucket": {1000, 100, 9999}, "token-bucket-empty": {1000, 100, 9999}, "token-bucket-full": {1999, 1099, 9000},
			"gcra": {1999, 1099, 9000}, "fixed-window": {1000, 1000, 9000}, "sliding-window": {1000, 1000, 9999},
			"sliding-log": {1000, 1000, 9000}, "sliding-ring": {1000, 1000, 9062}, "slots": {1000, 100, 9999},
		}},
		{usual, map[string]figures{
			"leaky-bucket": {1000, 100, 11499}, "token-bucket-empty": {1999, 1099, 10000}, "token-bucket-full": {1999, 1099, 9001},
			"gcra": {1999, 1099, 9001}, "fixed-window": {2000, 1000, 10000}, "sliding-window": {1500, 1000, 10999},
			"sliding-log": {1000, 1000, 10000}, "sliding-ring": {1000, 1000, 10019}, "slots": {1000, 100, 11499},
		}},
	} {
		results := run(t, &Load{Rate: 1000, Jobs: 10_000, Idle: parse(t, c.idle)})
		if len(results) != len(c.want) {
			t.Errorf("idle %q: %d algorithms, want %d", c.idle, len(results), len(c.want))
		}
		for name, r := range results {
			got := figures{r.MaxRolling(second), r.MaxRolling(second / 10), r.Finished() / 1000}
			if got != c.want[name] {
				t.Errorf("idle %q: %s has %+v, want %+v", c.idle, name, got, c.want[name])
			}
		}
	}
}

// Even with both ends of the second counted, a timeline never holds more than one above the rate.
func TestSlotsHoldOneMoreAtMostInAClosedSecond(t *testing.T) {
	t.Parallel()
	for name, r := range run(t, &Load{Rate: 1000, Jobs: 10_000, Idle: parse(t, usual)}, "slots", "leaky-bucket") {
		if got := r.MaxRolling(second + 1); got != 1001 {
			t.Errorf("%s: %d", name, got)
		}
	}
}

// Two writings of one algorithm: the engine's timeline with a burst, and the one with a theoretical arrival time.
func TestGCRAIsAFullTokenBucket(t *testing.T) {
	t.Parallel()
	for _, idle := range []string{"", usual, "0s:1ms,1500ms:250ms"} {
		r := run(t, &Load{Rate: 1000, Jobs: 10_000, Idle: parse(t, idle)}, "gcra", "token-bucket-full")
		if !slices.Equal(r["gcra"].Sent, r["token-bucket-full"].Sent) {
			t.Errorf("idle %q: they differ", idle)
		}
	}
}

// Slots that are reserved ahead equal those reserved one by one.
func TestSlotsAreALeakyBucket(t *testing.T) {
	t.Parallel()
	for _, load := range []*Load{
		{Rate: 1000, Jobs: 10_000}, {Rate: 1000, Jobs: 10_000, Idle: parse(t, usual)}, {Rate: 8, Jobs: 100, Idle: parse(t, usual)},
	} {
		r := run(t, load, "slots", "leaky-bucket")
		if !slices.Equal(r["slots"].Sent, r["leaky-bucket"].Sent) {
			t.Errorf("%+v: they differ", load)
		}
	}
}

func TestRunStopsWhenItsContextEnds(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := Run(ctx, &Load{Rate: 1, Jobs: 1}, Algorithms()); !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// drawLoad draws a load of a few seconds with a few pauses.
func drawLoad(rt *rapid.T) *Load {
	load := &Load{Rate: rapid.Int64Range(1, 500).Draw(rt, "rate")}
	load.Jobs = rapid.Int64Range(1, 4*load.Rate).Draw(rt, "jobs")
	at := time.Duration(0)
	length := func(label string) time.Duration {
		return time.Duration(rapid.Int64Range(1, 1_500_000).Draw(rt, label)) * time.Microsecond
	}
	for range rapid.IntRange(0, 6).Draw(rt, "pauses") {
		at += length("busy") - time.Microsecond
		load.Idle = append(load.Idle, Pause{At: at, For: length("idle")})
		at += load.Idle[len(load.Idle)-1].For
	}
	return load
}

func TestProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		load := drawLoad(rt)
		results, err := Run(context.Background(), load, Algorithms())
		if err != nil {
			rt.Fatal(err)
		}
		for i := range results {
			r := &results[i]
			if int64(len(r.Sent)) != load.Jobs || !slices.IsSorted(r.Sent) {
				rt.Fatalf("%s sent %d of %d jobs, or in no order", r.Name, len(r.Sent), load.Jobs)
			}
			for _, p := range load.Idle {
				if n := r.within(p.At.Microseconds(), (p.At + p.For).Microseconds()); n > 0 {
					rt.Fatalf("%s sent %d jobs in the pause %s", r.Name, n, p)
				}
			}
			checkBounds(rt, load.Rate, r)
		}
	})
}

// checkBounds checks each algorithm's promise under any load.
func checkBounds(rt *rapid.T, rate int64, r *Result) {
	bound, clock := 2*rate, int64(0)
	switch r.Name {
	case "leaky-bucket", "slots":
		bound = rate + 1
		for _, length := range []int64{second / 100, second / 10, 3 * second} {
			if got, most := r.MaxRolling(length), (rate*length+second-1)/second+1; got > most {
				rt.Fatalf("%s: %d in %d µs, at most %d", r.Name, got, length, most)
			}
		}
	case "sliding-log", "sliding-ring":
		bound = rate
	case "fixed-window", "sliding-window":
		clock = rate
	}
	if got := r.MaxRolling(second); got > bound {
		rt.Fatalf("%s: %d in a rolling second, at most %d", r.Name, got, bound)
	}
	if clock > 0 && slices.Max(r.Bins(second)) > clock {
		rt.Fatalf("%s: %d in a second of the clock", r.Name, slices.Max(r.Bins(second)))
	}
}

// The limiter's time is exact: no job may go sooner.
func TestNextIsTheFirst(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.Int64Range(1, 2000).Draw(rt, "rate")
		g, w := &gcra{rate: rate}, &twoCounters{limit: rate}
		for now := int64(0); now < 5*second; {
			now += rapid.Int64Range(0, second).Draw(rt, "step")
			want := rapid.Int64Range(1, 2*rate).Draw(rt, "want")
			for _, l := range []limiter{g, w} {
				if units, next := l.take(now, want); units < want {
					checkNext(rt, l, now, next)
				}
			}
		}
	})
}

func checkNext(rt *rapid.T, l limiter, now, next int64) {
	if _, ok := l.(*twoCounters); ok && next%second == 0 {
		return // it looks again when the counters roll
	}
	fork := func() limiter {
		if g, ok := l.(*gcra); ok {
			c := *g
			return &c
		}
		c := *l.(*twoCounters)
		return &c
	}
	if next <= now {
		rt.Fatalf("%T at %d: short, and to be asked again at %d", l, now, next)
	}
	if units, _ := fork().take(next-1, 1); units != 0 {
		rt.Fatalf("%T at %d: lets a job go before %d", l, now, next)
	}
	if units, _ := fork().take(next, 1); units != 1 {
		rt.Fatalf("%T at %d: lets no job go at %d", l, now, next)
	}
}

func TestMaxRollingAndBinsCountEveryStretch(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := &Result{Sent: rapid.SliceOfN(rapid.Int64Range(0, 60), 1, 40).Draw(rt, "sent")}
		slices.Sort(r.Sent)
		length := rapid.Int64Range(1, 70).Draw(rt, "length")
		most, sum := int64(0), int64(0)
		for from := range int64(61) {
			n := int64(0)
			for _, at := range r.Sent {
				if at >= from && at < from+length {
					n++
				}
			}
			if r.within(from, from+length) != n {
				rt.Fatalf("within %d and %d are %d", from, from+length, n)
			}
			most = max(most, n)
		}
		for i, n := range r.Bins(length) {
			sum += n
			if n != r.within(int64(i)*length, int64(i+1)*length) {
				rt.Fatalf("bin %d has %d", i, n)
			}
		}
		if got := r.MaxRolling(length); got != most || sum != int64(len(r.Sent)) {
			rt.Fatalf("at most %d in %d, want %d; %d in all bins", got, length, most, sum)
		}
	})
}
