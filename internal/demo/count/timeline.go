package count

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// ChangeGrace is how long after a change of rate the larger of the two rates counts.
	ChangeGrace = 100 * time.Millisecond
	// LateTolerance is how late a slot may be used; a tenth of the spacing if that is longer.
	LateTolerance = 20 * time.Millisecond
	// ReceiverClock is the error of the receiver's clock: requests sent evenly arrive a little unevenly.
	ReceiverClock = 1.01
)

// RateChange is the send_rate in force from an instant on.
type RateChange struct {
	At   time.Duration
	Rate delivery.Rate
}

// rateStep is an interval of constant rate, in units per second, from at to the next step.
type rateStep struct {
	at    time.Duration
	rate  float64
	total float64 // units allowed from the first step to at
}

// Timeline is the number of units that a campaign may send, as a function of time: the integral of its send_rate.
// Before the first step the first rate counts. It is immutable.
type Timeline struct{ steps []rateStep }

// NewTimeline makes a timeline from the changes, ascending and at least one. For grace after each change the largest
// rate in force within it counts.
func NewTimeline(changes []RateChange, grace time.Duration) Timeline {
	instants := make([]time.Duration, 0, 2*len(changes))
	for _, c := range changes {
		instants = append(instants, c.At, c.At+grace)
	}
	slices.Sort(instants)
	instants = slices.Compact(instants)
	steps := make([]rateStep, len(instants))
	for i, at := range instants {
		steps[i] = rateStep{at: at, rate: largestRate(changes, at-grace, at)}
		if i > 0 {
			before := steps[i-1]
			steps[i].total = before.total + before.rate*(at-before.at).Seconds()
		}
	}
	return Timeline{steps}
}

// largestRate returns the largest rate in force in [from, to]; one that ended at from does not count.
func largestRate(changes []RateChange, from, to time.Duration) float64 {
	largest := 0.0
	for i, c := range changes {
		began := i == 0 || c.At <= to
		ended := i+1 < len(changes) && changes[i+1].At <= from
		if began && !ended {
			largest = max(largest, c.Rate.PerSecond())
		}
	}
	return largest
}

func (t Timeline) step(at time.Duration) rateStep {
	i := sort.Search(len(t.steps), func(i int) bool { return t.steps[i].at > at })
	return t.steps[max(i-1, 0)]
}

// Units returns the integral up to at; negative before the first step.
func (t Timeline) Units(at time.Duration) float64 {
	s := t.step(at)
	return s.total + s.rate*(at-s.at).Seconds()
}

// Rate returns the rate in force at an instant, in units per second.
func (t Timeline) Rate(at time.Duration) float64 { return t.step(at).rate }

// when returns the last instant, at most the given one, whose integral is units.
func (t Timeline) when(units float64, atMost time.Duration) time.Duration {
	i := sort.Search(len(t.steps), func(i int) bool { return t.steps[i].total > units })
	s := t.steps[max(i-1, 0)]
	if s.rate == 0 {
		return atMost
	}
	return min(atMost, s.at+time.Duration((units-s.total)/s.rate*float64(time.Second)))
}

// Excess returns how many units the fullest interval has above the timeline's allowance. It is the largest, over all i <= j, of the
// number of requests i to j less the integral from just before request i to request j. "Just before" is the tolerance of late slots, plus
// blur, by how much the machine may have delayed that request. An interval is within the bound if its excess is at most the largest weight.
//
// One pass suffices: with D(j) = j - I(t_j), the interval from i to j has (j-i+1) - (I(t_j) - I(t_i - late)), so only
// the largest (I(t_i - late) - i) so far matters. Arrivals are ascending.
func Excess(arrivals []time.Duration, t Timeline, blur time.Duration) float64 {
	worst, best := math.Inf(-1), math.Inf(-1)
	for n, at := range arrivals {
		best = max(best, ReceiverClock*t.Units(at-t.Tolerance(at)-blur)-float64(n))
		worst = max(worst, float64(n+1)-ReceiverClock*t.Units(at)+best)
	}
	return worst
}

// Tolerance returns how late a slot may be used at an instant.
func (t Timeline) Tolerance(at time.Duration) time.Duration {
	rate := t.Rate(at)
	if rate == 0 {
		return LateTolerance
	}
	return max(LateTolerance, time.Duration(0.1/rate*float64(time.Second)))
}

// Lateness returns, for each arrival, the least delay with which slots of this timeline explain all arrivals. Going backward, each
// request's slot is its arrival, or earlier: one spacing before the next request's slot. The receiver does not know the slots; this is
// what can be derived from its own clock.
func Lateness(arrivals []time.Duration, t Timeline) []time.Duration {
	late := make([]time.Duration, len(arrivals))
	slot := math.Inf(1) // of the next request, in units
	for i := len(arrivals) - 1; i >= 0; i-- {
		at := arrivals[i]
		slot = min(t.Units(at), slot-1/ReceiverClock)
		late[i] = max(0, at-t.when(slot, at)).Truncate(time.Microsecond) // the rest is rounding
	}
	return late
}

// Percentile returns the value that a share p of the values do not exceed; 0 without values.
func Percentile[T cmp.Ordered](values []T, p float64) T {
	var zero T
	if len(values) == 0 {
		return zero
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(math.Ceil(p*float64(len(sorted))))-1)]
}

// MaxRolling returns the largest number of arrivals within any interval shorter than span. Arrivals are ascending.
func MaxRolling(arrivals []time.Duration, span time.Duration) int {
	most, first := 0, 0
	for last, at := range arrivals {
		for at-arrivals[first] >= span {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}
