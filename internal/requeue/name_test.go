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
	if got := LaneTopic("a-"); got != "a-lanes" {
		t.Errorf("LaneTopic = %s", got)
	}
	if got := DeadTopic("a-"); got != "a-dead" {
		t.Errorf("DeadTopic = %s", got)
	}
}

func TestTimerFor(t *testing.T) {
	now := time.Date(2026, 11, 21, 0, 0, 0, 0, time.UTC)
	for _, c := range []struct{ left, want time.Duration }{
		{-time.Hour, 5 * time.Second},
		{0, 5 * time.Second},
		{4 * time.Second, 5 * time.Second},
		{5 * time.Second, 5 * time.Second},
		{30*time.Second - 1, 5 * time.Second},
		{30 * time.Second, 30 * time.Second},
		{4 * time.Minute, 30 * time.Second},
		{31 * time.Minute, 30 * time.Minute},
		{240 * time.Hour, 6 * time.Hour},
	} {
		if got := TimerFor(DefaultTimers(), now, now.Add(c.left)); got != c.want {
			t.Errorf("due in %s: timer %s, want %s", c.left, got, c.want)
		}
	}
	if got := TimerFor(DefaultTimers(), now, time.Time{}); got != 5*time.Second {
		t.Errorf("no due time: timer %s, want 5s", got)
	}
}

// A job that is passed on from timer to timer comes back neither before it is due nor later than the shortest
// delay after it.
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
			at = at.Add(TimerFor(delays, at, due))
		}
		if late := at.Sub(due); late >= delays[0] {
			t.Fatalf("%s late with delays %s", late, delays)
		}
	})
}
