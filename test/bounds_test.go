package test

import (
	"math"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// lateTolerance is the default pacing.late_tolerance; clockError what the receiver's clock and the network may add.
const (
	lateTolerance = 20 * time.Millisecond
	clockError    = 1.01
)

// Requests do not all take equally long to the receiver, so that an instant is known only so well: by transit, and by what the machine
// did around it. Between the last check of its slot and the wire a job waits for a processor three times: its sender, the connection's
// writer, the kernel's socket. A stall affects processes that wake at other instants, on other processors. A stall anywhere else in a
// test excuses nothing.
const (
	transit    = 10 * time.Millisecond
	handovers  = 3
	stallReach = 100 * time.Millisecond
	minStall   = 3 * time.Millisecond // timers are never exact
	pulseEvery = 4 * time.Millisecond
)

// stall is a stretch of time when this process could not run.
type stall struct{ from, to time.Time }

// stallWatch notices stalls: goroutines that do nothing but sleep write down when they woke late. Some run where the scheduler puts
// them, and for each processor there is one that runs on no other: what is kept from one processor is felt there only.
type stallWatch struct {
	once sync.Once

	mu   sync.Mutex // guards list
	list []stall
}

var stalls stallWatch

// watch begins to watch, for as long as the process lives.
func (w *stallWatch) watch() {
	w.once.Do(func() {
		for range 2 {
			go w.pulse()
		}
		var ours unix.CPUSet
		if unix.SchedGetaffinity(0, &ours) != nil {
			return
		}
		for processor := range 64 * len(ours) {
			if ours.IsSet(processor) {
				go w.bound(processor)
			}
		}
	})
}

// bound is pulse on one processor.
func (w *stallWatch) bound(processor int) {
	runtime.LockOSThread()
	var only unix.CPUSet
	only.Set(processor)
	if unix.SchedSetaffinity(0, &only) == nil {
		w.pulse()
	}
}

func (w *stallWatch) pulse() {
	for {
		due := time.Now().Add(pulseEvery)
		time.Sleep(pulseEvery)
		runtime.Gosched() // a timer's goroutine runs before those that wait; to wait as they do, it stands in line once more
		if woke := time.Now(); woke.Sub(due) >= minStall {
			w.mu.Lock()
			w.list = append(w.list, stall{from: due, to: woke})
			w.mu.Unlock()
		}
	}
}

// blur tells, for instants of the receiver, how many microseconds earlier what happened then may have been due.
func (r *receiver) blur() func(at int64) int64 {
	stalls.mu.Lock()
	near := nearby(slices.Clone(stalls.list))
	stalls.mu.Unlock()
	return func(at int64) int64 {
		return (transit + handovers*near(r.began.Add(time.Duration(at)*time.Microsecond))).Microseconds()
	}
}

// nearby gives the longest of the stalls within reach of an instant.
func nearby(list []stall) func(at time.Time) time.Duration {
	slices.SortFunc(list, func(a, b stall) int { return a.from.Compare(b.from) })
	longest := time.Duration(0)
	for _, s := range list {
		longest = max(longest, s.to.Sub(s.from))
	}
	return func(at time.Time) (most time.Duration) {
		begins, ends := at.Add(-stallReach), at.Add(stallReach)
		first, _ := slices.BinarySearchFunc(list, begins.Add(-longest), func(s stall, at time.Time) int { return s.from.Compare(at) })
		for _, s := range list[first:] {
			if s.from.After(ends) {
				break
			}
			if !s.to.Before(begins) {
				most = max(most, s.to.Sub(s.from))
			}
		}
		return most
	}
}

// overRate returns how far the arrivals (in order of time) exceed rate * (L + tolerance) in their worst stretch of any L seconds. It is
// at most 1 when every slot was used on time. A stretch begins when its first request was due, as far as blur knows. With u(i) the units
// due until request i, a stretch from i to j has (j-i+1) - (u(j) - u(i)) too many, so that one pass with the largest u(i) - i will do.
func overRate(list []arrival, rate float64, tolerance time.Duration, blur func(at int64) int64) float64 {
	worst, _ := worstStretch(list, rate, tolerance, blur)
	return worst
}

// worstStretch is overRate, with the arrivals of that stretch.
func worstStretch(list []arrival, rate float64, tolerance time.Duration, blur func(at int64) int64) (worst float64, stretch []arrival) {
	if len(list) == 0 {
		return 0, nil
	}
	worst, best, from := math.Inf(-1), math.Inf(-1), 0
	for i, a := range list {
		if due := rate*float64(a.at-tolerance.Microseconds()-blur(a.at))/1e6 - float64(i); due > best {
			best, from = due, i
		}
		if over := float64(i+1) - rate*float64(a.at)/1e6 + best; over > worst {
			worst, stretch = over, list[from:i+1]
		}
	}
	return worst, stretch
}

// tooMany counts the arrivals (in order of time) that begin a stretch shorter than span with more than most.
func tooMany(list []arrival, most int, span time.Duration, blur func(at int64) int64) (n int) {
	for i := range max(0, len(list)-most) {
		if list[i+most].at-list[i].at+blur(list[i].at) < span.Microseconds() {
			n++
		}
	}
	return n
}

// rolling is the largest number of arrivals (in order of time) in any stretch of the given length.
func rolling(list []arrival, span time.Duration) (most int) {
	first := 0
	for i, a := range list {
		for list[first].at <= a.at-span.Microseconds() {
			first++
		}
		most = max(most, i-first+1)
	}
	return most
}

// rate is the average of the arrivals in [from, to), per second.
func rate(list []arrival, from, to int64) float64 {
	n := 0
	for _, a := range list {
		if a.at >= from && a.at < to {
			n++
		}
	}
	return float64(n) / (float64(to-from) / 1e6)
}

// toleranceOf is how late a slot of a rate may be used: a tenth of the spacing of slow ones.
func toleranceOf(rate float64) time.Duration {
	return max(lateTolerance, time.Duration(0.1/rate*float64(time.Second)))
}

// withinBound asserts that no stretch of the campaign's arrivals carries more than its rate allows.
func (s *stack) withinBound(campaign string, rate float64) {
	s.t.Helper()
	list := s.receiver.arrivals(campaign)
	over, stretch := worstStretch(list, rate*clockError, toleranceOf(rate), s.receiver.blur())
	s.t.Logf("%-6s %6d requests, most in a rolling second %d; the worst stretch is %.1f above rate * (L + %s)",
		campaign, len(list), rolling(list, time.Second), over, toleranceOf(rate))
	if over > 1.01 {
		s.t.Errorf("%s: a stretch carries %.1f more than rate * (L + tolerance)", campaign, over)
		for _, a := range stretch[:min(len(stretch), 20)] {
			s.t.Logf("  at %d us, perhaps due %d us earlier, over %s: %s", a.at, s.receiver.blur()(a.at), a.from, a.id)
		}
	}
}

// withinWindow asserts that no rolling span of the arrivals carries more than the limit.
func (s *stack) withinWindow(list []arrival, limit int, span time.Duration) {
	s.t.Helper()
	s.t.Logf("%d per %s: most in a rolling span %d of %d requests", limit, span, rolling(list, span), len(list))
	if n := tooMany(list, limit, span, s.receiver.blur()); n > 0 {
		s.t.Errorf("%d requests begin a %s with more than %d", n, span, limit)
	}
}

func sharp(int64) int64 { return 0 }

func TestTooMany(t *testing.T) {
	for _, tc := range []struct {
		name string
		at   []int64 // milliseconds
		most int
		want int
	}{
		{"none", nil, 1, 0},
		{"as many as allowed", []int64{0, 400, 999}, 3, 0},
		{"one more within the span", []int64{0, 400, 999}, 2, 1},
		{"a span later", []int64{0, 400, 1000}, 2, 0},
		{"each that begins too full a span", []int64{0, 1, 2, 3, 4}, 2, 3},
		{"at one instant", []int64{5, 5}, 1, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tooMany(atMillis(tc.at...), tc.most, time.Second, sharp); got != tc.want {
				t.Errorf("%d too many, want %d", got, tc.want)
			}
		})
	}
}

func atMillis(at ...int64) (list []arrival) {
	for _, ms := range at {
		list = append(list, arrival{at: ms * 1000})
	}
	return list
}

// A stall excuses what happens near it and nothing else.
func TestBoundsAreBlurredLocally(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	near := nearby([]stall{{at(9000), at(9004)}, {at(5000), at(5080)}})
	for ms, want := range map[int]time.Duration{4000: 0, 4950: 80, 5040: 80, 5150: 80, 5300: 0, 9050: 4, 20_000: 0} {
		if got := near(at(ms)); got != want*time.Millisecond {
			t.Errorf("at %d ms: a stall of %s, want %d ms", ms, got, want)
		}
	}
	blur := func(at int64) int64 { return near(began.Add(time.Duration(at) * time.Microsecond)).Microseconds() }
	late, early := atMillis(5090, 6000, 6040), atMillis(8090, 9000, 9040) // 950 ms between the first and the last
	if n := tooMany(late, 2, time.Second, blur); n != 0 {
		t.Errorf("%d too many, though the first was late", n)
	}
	if n := tooMany(early, 2, time.Second, blur); n != 1 {
		t.Errorf("%d too many, want 1: its stall was elsewhere", n)
	}
	steady, soon := atMillis(0, 100, 200, 300, 400), atMillis(0, 100, 150, 300, 400)
	if over := overRate(steady, 10, 0, blur); over > 1.001 {
		t.Errorf("a steady stream exceeds its rate by %.2f", over)
	}
	if over := overRate(soon, 10, 0, blur); over < 1.4 {
		t.Errorf("a job that came too soon is %.2f above", over)
	}
}
