package pacer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// TestAShutterFollowsASimpleModel: what the breaker of a destination decides is what the answers since the last success say.
func TestAShutterFollowsASimpleModel(t *testing.T) {
	second := time.Second.Microseconds()
	rapid.Check(t, func(rt *rapid.T) {
		var b destinationBreaker
		var failures []int64 // times of those that count, since the last success
		now, refusals, trips := int64(0), 0, 0
		shutUntil, asked, tripped := int64(0), int64(0), false
		success := func() {
			failures, trips, tripped = nil, 0, false
			shutUntil = min(shutUntil, asked)
		}
		trip := func() {
			if shutUntil <= now {
				trips++
				shutUntil, tripped = now+min(second<<(trips-1), mostShut.Microseconds()), true
			}
		}
		for range rapid.IntRange(1, 80).Draw(rt, "answers") {
			now += rapid.Int64Range(0, 400*millisecond).Draw(rt, "later")
			switch rapid.IntRange(0, 12).Draw(rt, "answer") {
			case 0:
				if got := b.worked(now); got != tripped {
					rt.Fatalf("a success at %d: recovered %t", now, got)
				}
				success()
				refusals = 0
			case 1, 2:
				was := refusals >= heldRefusals
				refusals++
				first, recovered := b.refused(now)
				if first != (refusals == heldRefusals) || recovered != (tripped && !was) {
					rt.Fatalf("refusal %d: first %t, recovered %t, tripped %t", refusals, first, recovered, tripped)
				}
				if !was {
					success()
				}
			case 3:
				until := now + rapid.Int64Range(0, 5*second).Draw(rt, "asked")
				b.wait(until, false, now)
				asked, shutUntil = max(asked, until), max(shutUntil, until)
			default:
				again := rapid.IntRange(0, 3).Draw(rt, "again") == 0
				if !again {
					failures = append(failures, now)
				}
				want := tripped || len(failures) >= outageFailures && now-failures[0] >= outageAfter.Microseconds()
				if got := b.failed(failure{again: again}, now, now); got != want {
					rt.Fatalf("failures %v at %d: outage %t", failures, now, got)
				}
				if want {
					b.trip(delivery.GateFailing, now)
					trip()
				}
			}
			if b.open(now) != (shutUntil > now) || b.tripped != tripped || b.isHeld() != (refusals >= heldRefusals) || b.open(now) && b.openUntil != shutUntil {
				rt.Fatalf("at %d: %+v, want until %d, tripped %t, %d refusals", now, b, shutUntil, tripped, refusals)
			}
		}
	})
}

// TestACallThatIsGivenUpHasLasted: calls that were begun together and got no answer show an outage at once; a success since they were begun does not count.
func TestACallThatIsGivenUpHasLasted(t *testing.T) {
	for name, tc := range map[string]struct {
		worked int64
		want   bool
	}{"never": {0, true}, "just now": {9990 * millisecond, false}} {
		b := destinationBreaker{workedAt: tc.worked}
		outage := false
		for range outageFailures {
			outage = b.failed(failure{}, 0, 10_000*millisecond)
		}
		if outage != tc.want {
			t.Errorf("taken %s: %t", name, outage)
		}
	}
}

// TestShuttersOfSeveralDaemons: what another daemon has found opens it, and what it finds later closes it.
func TestShuttersOfSeveralDaemons(t *testing.T) {
	minute := time.Minute.Microseconds()
	var b destinationBreaker
	b.openedByFleet(minute, delivery.Gate{Cause: delivery.GateFailing, Probe: true}, 0)
	if !b.open(minute-1) || b.open(minute) || !b.halfOpen(minute) || !b.failed(failure{again: true}, 0, minute) {
		t.Errorf("failing elsewhere: %+v", b)
	}
	b.trip(delivery.GateFailing, minute)
	if b.closedByFleet(minute-1, minute+1) || !b.closedByFleet(minute+1, minute+2) || b.open(minute+2) || b.tripped || b.workedAt != minute+1 {
		t.Errorf("closed elsewhere: %+v", b)
	}
	b.openedByFleet(minute, delivery.Gate{Cause: delivery.GateThrottled}, 0)
	if b.worked(1); !b.open(minute - 1) {
		t.Errorf("a success ends a wait that was asked for: %+v", b)
	}
	b = destinationBreaker{}
	b.openedByFleet(1, delivery.Gate{Cause: delivery.GateRefused, Probe: true}, 0)
	if !b.isHeld() {
		t.Errorf("held elsewhere: %+v", b)
	}
}

// TestAFlowGrowsWithAnswers: a destination that answers gets as many calls as it needs, one that does not a few.
func TestAFlowGrowsWithAnswers(t *testing.T) {
	var f flow
	const most = 512
	if n := f.free(most, 0); n != outageFailures {
		t.Errorf("%d calls at first", n)
	}
	if n := f.free(32, 0); n != 2 {
		t.Errorf("%d calls at first of 32", n)
	}
	for range 10 { // rounds
		n := f.free(most, 0)
		f.calls.inFlight = n
		for range n {
			f.calls.inFlight--
			f.ended(true, most)
		}
	}
	if n := f.free(most, 0); n < most/2 || n > most {
		t.Errorf("%d calls after 10 rounds", n)
	}
	if n := f.free(most, 7); n != 7 {
		t.Errorf("%d calls of 7", n)
	}
	f.ended(false, most)
	if n := f.free(most, 0); n != outageFailures {
		t.Errorf("%d calls after one without an answer", n)
	}
	f.window = 0
	for range 1000 { // one call at a time
		f.ended(true, most)
	}
	if n := f.free(most, 0); n > outageFailures {
		t.Errorf("%d calls to a destination that needs one at a time", n)
	}
}

// TestDestinationsAreBounded: whatever is sent where, only so many destinations are kept of which nothing is in flight; those that work are
// forgotten first, and of each kind those that were used longest ago. The counts of those that are closed are right.
func TestDestinationsAreBounded(t *testing.T) {
	const most = 4
	rapid.Check(t, func(rt *rapid.T) {
		l := newDestinations(most)
		var order []string         // of use
		flying := map[string]int{} // calls in flight
		bad := map[string]bool{}   // open or half-open
		lines := map[string]int{}  // jobs that wait
		known := map[string]bool{} // destinations
		now := int64(0)
		trim := func() {
			idle := slices.DeleteFunc(slices.Clone(order), func(s string) bool { return flying[s] > 0 || lines[s] > 0 })
			for len(idle) > most {
				i := max(0, slices.IndexFunc(idle, func(s string) bool { return !bad[s] }))
				gone := idle[i]
				idle = slices.Delete(idle, i, i+1)
				order = slices.DeleteFunc(order, func(s string) bool { return s == gone })
				delete(known, gone)
				delete(bad, gone)
			}
		}
		for range rapid.IntRange(1, 80).Draw(rt, "steps") {
			now += rapid.Int64Range(0, 3000*millisecond).Draw(rt, "later")
			for d := l.due(now); d != nil; d = l.due(now) {
				l.note(d, now)
				order = append(slices.DeleteFunc(order, func(s string) bool { return s == d.name }), d.name)
			}
			name := fmt.Sprint(rapid.IntRange(0, 9).Draw(rt, "destination"))
			d := l.get(destinationKey{"s", name})
			known[name] = true
			switch rapid.IntRange(0, 5).Draw(rt, "step") {
			case 0:
				d.calls.began(now)
				flying[name]++
			case 1:
				if flying[name] > 0 {
					d.calls.ended(now, now)
					flying[name]--
				}
			case 2:
				d.trip(delivery.GateFailing, now)
				bad[name] = true
			case 3:
				d.worked(now)
				delete(bad, name)
			case 4:
				l.push(d, &delivery.Job{Reading: delivery.Reading{Size: 3}}, rapid.Bool().Draw(rt, "front"))
				lines[name]++
			case 5:
				if d.line.len() > 0 {
					l.pop(d)
					lines[name]--
				}
			}
			l.note(d, now)
			order = append(slices.DeleteFunc(order, func(s string) bool { return s == name }), name)
			trim()
			jobs := 0
			for _, n := range lines {
				jobs += n
			}
			shut := len(l.shut["s"])
			if len(l.byKey) != len(known) || shut != len(bad) || l.jobs != jobs || l.bytes != int64(3*jobs) {
				rt.Fatalf("%d destinations, %d closed, %d jobs of %d bytes; want %v, %v, %d", len(l.byKey), shut, l.jobs, l.bytes, known, bad, jobs)
			}
			for name := range known {
				if l.find(destinationKey{"s", name}) == nil {
					rt.Fatalf("%s was forgotten; kept are %d of %v", name, len(l.byKey), known)
				}
			}
		}
	})
}
