package requeue

import (
	"fmt"
	"slices"
	"strconv"
	"time"
)

// DefaultPrefix begins the names of the topics that pacer owns unless the configuration says otherwise.
const DefaultPrefix = "pacer."

// DefaultTimers are the delays of the timer topics unless the configuration says otherwise.
func DefaultTimers() []time.Duration {
	return []time.Duration{5 * time.Second, 30 * time.Second, 5 * time.Minute, 30 * time.Minute, 6 * time.Hour}
}

// LaneTopic is the topic whose partitions are the lanes.
func LaneTopic(prefix string) string { return prefix + "lanes" }

// DeadTopic is the topic of the dead letters.
func DeadTopic(prefix string) string { return prefix + "dead" }

// ReplaysTopic is the topic that remembers which dead letters have been replayed.
func ReplaysTopic(prefix string) string { return prefix + "replays" }

// ResultsTopic is the topic of the results: one event for each job that is settled for good.
func ResultsTopic(prefix string) string { return prefix + "results" }

// TimerTopic is the topic whose jobs wait for delay, spelled in the largest exact unit: pacer.timer.5s,
// pacer.timer.30m, pacer.timer.6h.
func TimerTopic(prefix string, delay time.Duration) string {
	return prefix + "timer." + spell(delay)
}

// spell writes d as a whole number of the largest unit that is exact, so that a delay has one spelling.
func spell(d time.Duration) string {
	for _, u := range []struct {
		size time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d%u.size == 0 {
			return strconv.FormatInt(int64(d/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
}

// TimerFor picks the timer for a job that is due at due: the longest delay that does not overshoot, or the
// shortest one when even that does (or due is zero). A job due further away than the longest delay passes through
// several timers. delays is ascending and not empty.
func TimerFor(delays []time.Duration, now, due time.Time) time.Duration {
	best := delays[0]
	if due.IsZero() {
		return best
	}
	left := due.Sub(now)
	for _, d := range delays[1:] {
		if d <= left {
			best = d
		}
	}
	return best
}

// sortedTimers returns the delays in ascending order, or an error that names the field.
func sortedTimers(delays []time.Duration) ([]time.Duration, error) {
	if len(delays) == 0 {
		return DefaultTimers(), nil
	}
	sorted := slices.Clone(delays)
	slices.Sort(sorted)
	for i, d := range sorted {
		if d < time.Millisecond || d%time.Millisecond != 0 {
			return nil, fmt.Errorf("timers: a delay must be a whole number of milliseconds above zero, got %s", d)
		}
		if i > 0 && d == sorted[i-1] {
			return nil, fmt.Errorf("timers: %s is listed twice", d)
		}
	}
	return sorted, nil
}
