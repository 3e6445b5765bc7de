package retry

import (
	"context"
	"errors"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

func TestBackoffDoubles(t *testing.T) {
	b := Backoff{Initial: 100 * time.Millisecond, Max: time.Second}
	for failures, want := range map[int]time.Duration{
		-1: 100 * time.Millisecond, 0: 100 * time.Millisecond, 1: 100 * time.Millisecond, 2: 200 * time.Millisecond,
		4: 800 * time.Millisecond, 5: time.Second, 1 << 40: time.Second,
	} {
		if got := b.Delay(failures); got != want {
			t.Errorf("after %d failures: %s, want %s", failures, got, want)
		}
	}
	if got := (Backoff{}).Delay(7); got != 0 {
		t.Errorf("the zero value waits %s", got)
	}
}

// TestBackoffStaysInItsBounds: for all settings, a delay is not negative and at most Max * (1 + Jitter).
func TestBackoffStaysInItsBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := Backoff{
			Initial: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "initial")),
			Max:     time.Duration(rapid.Int64Range(1, math.MaxInt64/4).Draw(t, "max")),
			Jitter:  rapid.Float64Range(0, 1).Draw(t, "jitter"),
		}
		failures := rapid.IntRange(0, 100).Draw(t, "failures")
		plain := Backoff{Initial: b.Initial, Max: b.Max}.Delay(failures)
		got, slack := b.Delay(failures), time.Duration(b.Jitter*float64(plain))+1
		if plain <= 0 || plain > b.Max || got < plain-slack || got > plain+slack {
			t.Fatalf("%+v after %d failures: %s, without jitter %s", b, failures, got, plain)
		}
	})
}

func TestSleepEndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		if err := Sleep(t.Context(), time.Minute); err != nil || time.Since(began) != time.Minute {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := Sleep(ctx, time.Minute); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("%v after %s", err, time.Since(began))
		}
		if err := Sleep(ctx, 0); err == nil {
			t.Error("an ended context is no error")
		}
	})
}

func TestOutageIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var o Outage
		if _, over := o.Worked(); over || o.Failures() != 0 || o.Lasts() != 0 {
			t.Error("the zero value fails")
		}
		for i := range 3 {
			if first := o.Failed(); first != (i == 0) {
				t.Errorf("failure %d: first %v", i, first)
			}
			time.Sleep(time.Second)
		}
		if n := o.Failures(); n != 3 || o.Lasts() != 3*time.Second {
			t.Errorf("%d failures in %s", n, o.Lasts())
		}
		if lasted, over := o.Worked(); !over || lasted != 3*time.Second {
			t.Errorf("over %v after %s", over, lasted)
		}
		if _, over := o.Worked(); over {
			t.Error("over twice")
		}
	})
}

func TestEveryCallsUntilTheContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
		defer cancel()
		began, calls := time.Now(), 0
		Every(ctx, time.Second, func(now time.Time) {
			if calls++; now.Sub(began) != time.Duration(calls)*time.Second {
				t.Errorf("call %d after %s", calls, now.Sub(began))
			}
		})
		if calls != 3 || time.Since(began) != 3500*time.Millisecond {
			t.Errorf("%d calls, ended after %s", calls, time.Since(began))
		}
	})
}
