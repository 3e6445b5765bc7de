package simulate

import (
	"fmt"
	"slices"
	"strings"
)

// limiter is an algorithm with its state.
type limiter interface {
	// take returns how many of the next want jobs go at now, and when to ask again. now never falls. A want of 0 says that there is
	// nothing to send at present. Microseconds since the start.
	take(now, want int64) (units, next int64)
}

// Algorithm is one way to limit a rate.
type Algorithm struct {
	Name  string // as a person types it
	Title string // what it is, in a few words
	start func(rate int64) limiter
}

// Algorithms are all algorithms, in the order of the report.
func Algorithms() []Algorithm {
	return []Algorithm{
		{"leaky-bucket", "leaky bucket", leakyBucket},
		{"token-bucket-empty", "token bucket, empty at the start", emptyTokenBucket},
		{"token-bucket-full", "token bucket, full at the start", fullTokenBucket},
		{"gcra", "GCRA with a burst of one second's jobs", newGCRA},
		{"fixed-window", "fixed window", fixedWindow},
		{"sliding-window", "sliding window of two counters", newTwoCounters},
		{"sliding-log", "sliding log", slidingLog},
		{"sliding-ring", "pacer's sliding window, a ring of buckets", slidingRing},
		{"slots", "pacer's slots", newSlots},
	}
}

// Select picks algorithms by their names, or by the first words of them: token-bucket stands for both of those. The
// order is that of Algorithms. No names pick all.
func Select(names []string) ([]Algorithm, error) {
	all := Algorithms()
	if len(names) == 0 {
		return all, nil
	}
	for _, name := range names {
		if !slices.ContainsFunc(all, func(a Algorithm) bool { return a.answersTo(name) }) {
			return nil, fmt.Errorf("there is no algorithm %q; there are %s", name, strings.Join(namesOf(all), ", "))
		}
	}
	return slices.DeleteFunc(all, func(a Algorithm) bool { return !slices.ContainsFunc(names, a.answersTo) }), nil
}

func (a Algorithm) answersTo(name string) bool {
	return a.Name == name || strings.HasPrefix(a.Name, name+"-")
}

func namesOf(algorithms []Algorithm) []string {
	names := make([]string, len(algorithms))
	for i, a := range algorithms {
		names[i] = a.Name
	}
	return names
}
