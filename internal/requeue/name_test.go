package requeue

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestTopicNames(t *testing.T) {
	for d, want := range map[time.Duration]string{
		5 * time.Second: "pacer.timer.5s", 30 * time.Second: "pacer.timer.30s", 5 * time.Minute: "pacer.timer.5m",
		30 * time.Minute: "pacer.timer.30m", 6 * time.Hour: "pacer.timer.6h", 60 * time.Second: "pacer.timer.1m",
		90 * time.Second: "pacer.timer.90s", 250 * time.Millisecond: "pacer.timer.250ms", 24 * time.Hour: "pacer.timer.24h",
	} {
		if got := TimerTopic("pacer.", d); got != want {
			t.Errorf("TimerTopic(%s) = %s, want %s", d, got, want)
		}
	}
}

// A job goes to the longest timer that does not end after it is due. Passed on from timer to timer, it comes back neither before it is due nor
// later than the shortest delay after it.
func TestPassingThroughTimersEndsOnTime(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		delays := slices.Sorted(slices.Values(rapid.SliceOfNDistinct(rapid.Map(rapid.IntRange(1, 100_000),
			func(s int) time.Duration { return time.Duration(s) * time.Second }), 1, 6, rapid.ID[time.Duration]).Draw(t, "delays")))
		now := time.Unix(1_800_000_000, 0)
		due := now.Add(time.Duration(rapid.Int64Range(1, int64(100*time.Hour)).Draw(t, "left")))
		at := now
		for hops := 0; at.Before(due); hops++ {
			if hops > 400_000 {
				t.Fatalf("does not end")
			}
			delay := TimerFor(delays, at, due)
			if slices.ContainsFunc(delays, func(d time.Duration) bool { return d <= due.Sub(at) && d > delay }) || delay > max(due.Sub(at), delays[0]) {
				t.Fatalf("due in %s: timer %s of %s", due.Sub(at), delay, delays)
			}
			at = at.Add(delay)
		}
		if d := TimerFor(delays, now, time.Time{}); d != delays[0] {
			t.Fatalf("no due time: timer %s of %s", d, delays)
		}
		if late := at.Sub(due); late >= delays[0] {
			t.Fatalf("%s late with delays %s", late, delays)
		}
	})
}
