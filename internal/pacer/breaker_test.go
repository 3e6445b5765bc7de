package pacer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

const millisecond = int64(1000) // of local time

// TestABreakerFollowsASimpleModel: what it decides is what the answers since the last delivery say, and the fiftieth refusal since then holds it,
// until the next delivery or until it is forgiven. Failures last since their first call began, or since the last delivery if that was later.
func TestABreakerFollowsASimpleModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		var b breaker
		var run []failure // of different jobs, since the last delivery
		now, began, taken, refusals, tripped, id := int64(1), int64(0), int64(0), 0, false, 0
		answered := func() { run, began, tripped = nil, 0, false }
		for range rapid.IntRange(1, 120).Draw(rt, "answers") {
			now += rapid.Int64Range(0, 400*millisecond).Draw(rt, "later")
			switch held := refusals >= heldRefusals; rapid.IntRange(0, 30).Draw(rt, "answer") {
			case 0:
				if got := b.succeeded(now); got != tripped {
					rt.Fatalf("a delivery at %d: recovered %t", now, got)
				}
				answered()
				taken, refusals = now, 0
			case 1, 2:
				for range rapid.SampledFrom([]int{1, 1, heldRefusals - 1, heldRefusals}).Draw(rt, "refusals") {
					refusals++
					if first, _ := b.refused(heldRefusals, now); first != (refusals == heldRefusals) {
						rt.Fatalf("refusal %d in a row: the first that holds: %t", refusals, first)
					}
					if refusals <= heldRefusals {
						answered()
					}
				}
				if refusals >= heldRefusals {
					b.trip(delivery.GateRefused, time.Second, now)
					tripped = true
				}
			case 3:
				if got := b.forgive(now); got != held {
					rt.Fatalf("forgiven after %d refusals: was held %t", refusals, got)
				}
				if refusals = 0; held {
					answered()
					taken = now
				}
			default:
				if !rapid.Bool().Draw(rt, "the same job") {
					id++
				}
				x := failure{job: &delivery.Job{ID: fmt.Sprint(id)}, cause: rapid.SampledFrom(delivery.GateCauses).Draw(rt, "cause")}
				x.answered = x.cause == delivery.GateFailing && rapid.Bool().Draw(rt, "answered")
				x.job.Attempt, x.begun = rapid.IntRange(0, 1).Draw(rt, "attempt"), now-rapid.Int64Range(0, 1000*millisecond).Draw(rt, "lasted")
				same := b.failures > 0 && b.job == x.job.ID
				if b.last == 0 {
					began = max(x.begun, taken)
				}
				if !same && (x.cause != delivery.GateFailing || x.job.Attempt == 0) {
					run = append(run, x)
				}
				want := tripped || opens(run, time.Duration(now-began)*time.Microsecond)
				if got := b.fail(x, now); got != want {
					rt.Fatalf("%v at %d, since %d: opens %t", run, now, began, got)
				}
				if want {
					if done, first := b.trip(x.cause, time.Second, now); done && !tripped && !first {
						rt.Fatal("it opened, and is said to have been open")
					}
					tripped = true
				}
			}
			if b.tripped != tripped || b.open(now) && !tripped || b.openUntil > now+time.Second.Microseconds() || b.isHeld() != (refusals >= heldRefusals) {
				rt.Fatalf("at %d after %d refusals: %+v, want open or half-open %t", now, refusals, b, tripped)
			}
		}
	})
}

// opens is what a run of failures means.
func opens(run []failure, over time.Duration) bool {
	if len(run) == 0 {
		return false
	}
	same, answered := 0, true
	for _, x := range slices.Backward(run) {
		if x.cause != run[len(run)-1].cause {
			break
		}
		same++
	}
	for _, x := range run {
		answered = answered && x.answered
	}
	switch {
	case run[len(run)-1].cause != delivery.GateFailing:
		return same >= 3
	case answered:
		return len(run) >= 50 && over >= 200*time.Millisecond || len(run) >= 5 && over >= time.Minute
	}
	return len(run) >= 5 && over >= 200*time.Millisecond
}

// TestNothingIsTakenBeforeTheFirst: unseen deliveries do not contradict a job that was sent before this process began.
func TestNothingIsTakenBeforeTheFirst(t *testing.T) {
	for _, tc := range []struct {
		taken, since int64
		want         bool
	}{{0, -5, false}, {0, 0, false}, {7, -5, true}, {7, 6, true}, {7, 7, false}} {
		exactly(t, (&breaker{succeededAt: tc.taken}).succeededSince(tc.since), tc.want, "taken at %d, since %d", tc.taken, tc.since)
	}
}

// TestProbesAreEverMoreRare: up to the time that was asked for, or a minute; after a delivery they begin anew.
func TestProbesAreEverMoreRare(t *testing.T) {
	for _, tc := range []struct {
		cause delivery.GateCause
		most  time.Duration
		want  []time.Duration
	}{
		{delivery.GateFailing, probeEvery, []time.Duration{time.Second, time.Second, time.Second}},
		{delivery.GateFailing, maxProbeEvery, []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}},
		{delivery.GateThrottled, 3 * time.Second, []time.Duration{time.Second / 2, time.Second, 2 * time.Second, 3 * time.Second, 3 * time.Second}},
	} {
		var b breaker
		now := int64(0)
		for round := range 2 {
			for i, want := range tc.want {
				if done, first := b.trip(tc.cause, tc.most, now); !done || first != (i == 0) || b.openUntil != now+want.Microseconds() {
					t.Errorf("round %d, probe %d: %t %t %d, want %s", round, i, done, first, b.openUntil-now, want)
				}
				if done, _ := b.trip(tc.cause, tc.most, now); done {
					t.Error("opened while it is open")
				}
				now = b.openUntil
			}
			b.succeeded(now)
		}
	}
}

// TestGatesOfOtherDaemons: what another daemon has found opens a breaker, and what it finds later closes it.
func TestGatesOfOtherDaemons(t *testing.T) {
	minute := time.Minute.Microseconds()
	var b breaker
	b.seeGate(minute, delivery.Gate{Cause: delivery.GateThrottled}, 0)
	if !b.open(minute-1) || b.open(minute) || !b.tripped {
		t.Errorf("throttled elsewhere: %+v", b)
	}
	b.trip(delivery.GateFailing, maxProbeEvery, minute)
	if b.seeOpened(minute-1, minute+1) || !b.seeOpened(minute+1, minute+2) || b.open(minute+2) || b.tripped || b.succeededAt != minute+1 {
		t.Errorf("opened elsewhere: %+v", b)
	}
	b = breaker{}
	b.seeGate(1, delivery.Gate{Cause: delivery.GateRefused}, 0)
	exactly(t, b.isHeld(), true, "held elsewhere")
}
