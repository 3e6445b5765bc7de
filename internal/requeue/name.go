package requeue

import (
	"time"

	"github.com/pacer/pacer/internal/notation"
)

// DefaultPrefix is the default prefix of the names of pacer's own topics.
const DefaultPrefix = "pacer."

// DefaultTimers returns the default delays of the timer topics.
func DefaultTimers() []time.Duration {
	return []time.Duration{5 * time.Second, 30 * time.Second, 5 * time.Minute, 30 * time.Minute, 6 * time.Hour}
}

// LaneTopic returns the name of the topic whose partitions are the lanes.
func LaneTopic(prefix string) string { return prefix + "lanes" }

// DeadTopic returns the name of the topic of the dead letters.
func DeadTopic(prefix string) string { return prefix + "dead" }

// ReplaysTopic returns the name of the topic that records which dead letters have been replayed.
func ReplaysTopic(prefix string) string { return prefix + "replays" }

// ResultsTopic returns the name of the topic of the results: one event for each job with a final outcome.
func ResultsTopic(prefix string) string { return prefix + "results" }

// TimerTopic returns the name of the topic whose jobs wait for delay, written in the largest exact unit up to hours:
// pacer.timer.5s, pacer.timer.30m, pacer.timer.6h.
func TimerTopic(prefix string, delay time.Duration) string {
	return prefix + "timer." + notation.FormatSpanWithin(delay, time.Hour)
}

// TimerFor returns the timer for a job that is due at due: the longest delay that does not end after due, or the
// shortest delay if all do (or due is zero). A job due further away than the longest delay passes through several
// timers. delays is ascending and not empty.
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
