package pacer

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

const millisecond = int64(1000) // of local time

// TestABreakerFollowsASimpleModel: what it decides is what the answers since the last delivery say.
func TestABreakerFollowsASimpleModel(t *testing.T) {
	type seen struct {
		cause    delivery.GateCause
		answered bool
	}
	rapid.Check(t, func(rt *rapid.T) {
		var b breaker
		var run []seen // of different jobs, since the last delivery
		now, began, refusals, tripped, id := int64(1), int64(0), 0, false, 0
		taken := func() { run, began, tripped = nil, 0, false }
		for range rapid.IntRange(1, 120).Draw(rt, "answers") {
			now += rapid.Int64Range(0, 400*millisecond).Draw(rt, "later")
			switch rapid.IntRange(0, 30).Draw(rt, "answer") {
			case 0:
				if got := b.succeeded(now); got != tripped {
					rt.Fatalf("a delivery at %d: recovered %t", now, got)
				}
				taken()
				refusals = 0
			case 1, 2:
				held := refusals >= heldRefusals
				refusals++
				if first, _ := b.refused(heldRefusals, now); first != (refusals == heldRefusals) {
					rt.Fatalf("refusal %d: first %t", refusals, first)
				}
				if !held {
					taken()
				}
			default:
				x := seen{rapid.SampledFrom(delivery.GateCauses).Draw(rt, "cause"), rapid.Bool().Draw(rt, "answered")}
				x.answered = x.answered && x.cause == delivery.GateFailing
				attempt := rapid.IntRange(0, 1).Draw(rt, "attempt")
				if !rapid.Bool().Draw(rt, "the same job") {
					id++
				}
				j := &delivery.Job{ID: fmt.Sprint(id)}
				j.Attempt = attempt
				same := b.failures > 0 && b.job == j.ID
				if began == 0 {
					began = now
				}
				if !same && (x.cause != delivery.GateFailing || attempt == 0) {
					run = append(run, x)
				}
				want := tripped || opens(run, func(x seen) (delivery.GateCause, bool) { return x.cause, x.answered }, time.Duration(now-began)*time.Microsecond)
				if got := b.fail(failure{job: j, cause: x.cause, answered: x.answered, begun: now}, now); got != want {
					rt.Fatalf("%v at %d, since %d: opens %t", run, now, began, got)
				}
				if want {
					if done, first := b.trip(x.cause, time.Second, now); done && !tripped && !first {
						rt.Fatal("it opened, and is said to have been open")
					}
					tripped = true
				}
			}
			if b.tripped != tripped || b.open(now) && !tripped || b.openUntil > now+time.Second.Microseconds() {
				rt.Fatalf("at %d: %+v, want open or half-open %t", now, b, tripped)
			}
		}
	})
}

// opens is what a run of failures means.
func opens[T any](run []T, of func(T) (delivery.GateCause, bool), over time.Duration) bool {
	if len(run) == 0 {
		return false
	}
	last, _ := of(run[len(run)-1])
	same, answered := 0, true
	for i := len(run) - 1; i >= 0; i-- {
		if cause, _ := of(run[i]); cause != last {
			break
		}
		same++
	}
	for _, x := range run {
		_, own := of(x)
		answered = answered && own
	}
	switch {
	case last != delivery.GateFailing:
		return same >= 3
	case answered:
		return len(run) >= 50 && over >= 200*time.Millisecond || len(run) >= 5 && over >= time.Minute
	}
	return len(run) >= 5 && over >= 200*time.Millisecond
}

// TestACallThatIsGivenUpHasLasted: calls that began together and got no answer open it at once; a delivery since they began does not count.
func TestACallThatIsGivenUpHasLasted(t *testing.T) {
	for name, tc := range map[string]struct {
		taken int64
		want  bool
	}{"never": {0, true}, "just now": {9990 * millisecond, false}} {
		b := breaker{succeededAt: tc.taken}
		opened := false
		for i := range silentFailures {
			opened = b.fail(failure{job: &delivery.Job{ID: fmt.Sprint(i)}, cause: delivery.GateFailing}, 10_000*millisecond)
		}
		exactly(t, opened, tc.want, "taken %s", name)
	}
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
	if !b.isHeld() {
		t.Errorf("held elsewhere: %+v", b)
	}
}
