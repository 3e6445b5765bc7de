package pacer

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

const millisecond = int64(1000) // of local time

// A circuit is closed, open for a second after it was opened, and half-open from then on, until a job works.
func TestCircuit(t *testing.T) {
	var c campaignBreaker
	if !c.closed() || c.worked(0) {
		t.Error("the zero value is not closed")
	}
	if done, first := c.open(5 * millisecond); !done || !first || c.openUntil != 1005*millisecond {
		t.Errorf("opened: %t, first: %t, until %d", done, first, c.openUntil)
	}
	if done, first := c.open(1004 * millisecond); done || first || c.openUntil != 1005*millisecond {
		t.Errorf("opened again while it is open: %t, first: %t, until %d", done, first, c.openUntil)
	}
	if done, first := c.open(1005 * millisecond); !done || first || c.openUntil != 2005*millisecond {
		t.Errorf("half-open, a failure: %t, first: %t, until %d", done, first, c.openUntil)
	}
	c.add(0)
	if !c.worked(0) || c.worked(0) || !c.closed() || c.failures != 0 {
		t.Errorf("a success leaves %+v", c)
	}
	c.wait(3000 * millisecond)
	if c.worked(2999*millisecond) || c.openUntil != 3000*millisecond {
		t.Errorf("a success ends a wait that was asked for: %+v", c)
	}
	if c.worked(3000*millisecond) || !c.closed() {
		t.Errorf("a success after a wait leaves %+v", c)
	}
}

// Many failures in a moment are no outage, nor are few in a long time.
func TestFailuresInARowHaveToLast(t *testing.T) {
	for name, tc := range map[string]struct {
		failures int
		each     time.Duration
		want     bool
	}{
		"too few":       {4, time.Second, false},
		"too short":     {100, time.Millisecond, false},
		"both just met": {5, 50 * time.Millisecond, true},
		"a moment less": {5, 50*time.Millisecond - 1000, false},
	} {
		var s failureRun
		now := int64(0)
		for i := range tc.failures {
			now = int64(i) * tc.each.Microseconds()
			s.add(now)
		}
		if got := s.outage(now); got != tc.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// What a breaker decides is what the failures since the last success say, whatever came in between: those of one campaign
// alone open its circuit, those of several, or without an answer, are the sink's.
func TestABreakerKnowsWhoseFailuresTheyAre(t *testing.T) {
	type failed struct {
		failure
		at int64
	}
	const after = outageFailures
	long := func(list []failed, now int64) bool {
		return len(list) >= after && now-list[0].at >= outageAfter.Microseconds()
	}
	rapid.Check(t, func(rt *rapid.T) {
		var b breaker
		circuits := map[string]*campaignBreaker{"a": {}, "b": {}, "c": {}}
		var sink []failed                 // since the last success, or the last time a campaign was to blame
		campaign := map[string][]failed{} // since its last success
		now, tripped := int64(0), false
		for range rapid.IntRange(1, 60).Draw(rt, "calls") {
			now += rapid.Int64Range(0, 150*millisecond).Draw(rt, "later")
			id := rapid.SampledFrom([]string{"a", "b", "c"}).Draw(rt, "campaign")
			c := circuits[id]
			if rapid.IntRange(0, 9).Draw(rt, "works") < 2 {
				c.worked(now)
				tell, recovered := b.worked()
				if recovered != tripped || tell != tripped {
					rt.Fatalf("a success at %d: tell %t, recovered %t, tripped %t", now, tell, recovered, tripped)
				}
				sink, tripped = nil, false
				delete(campaign, id)
				continue
			}
			f := failed{failure{id, rapid.Bool().Draw(rt, "again"), rapid.IntRange(0, 5).Draw(rt, "sink") == 0, false}, now}
			if f.sink || !f.again {
				sink, campaign[id] = append(sink, f), append(campaign[id], f)
			}
			several := false
			for _, s := range sink {
				several = several || s.sink || s.campaign != sink[0].campaign
			}
			want := tolerated
			switch {
			case tripped, several && long(sink, now):
				want = sinkFails
			case long(campaign[id], now):
				want = campaignFails
			}
			if got := b.failed(c, f.failure, now); got != want {
				rt.Fatalf("%+v after %+v, of the campaign %+v: verdict %d, want %d", f, sink, campaign[id], got, want)
			}
			switch want {
			case sinkFails:
				if done, _ := b.trip(delivery.GateFailing, now); done {
					b.open(now+halfOpenEvery.Microseconds(), false)
				}
				tripped = b.tripped
			case campaignFails:
				c.open(now)
				sink = nil
			}
		}
	})
}

// Failures that the destination itself answered, each of another job, close nothing until they are too many to be bad jobs.
func TestAnswersOfTheDestinationAreUndecided(t *testing.T) {
	for name, tc := range map[string]struct {
		campaigns []string
		unheard   int // the call without such an answer; -1: none
		want      int // calls before anything is closed
		verdict   verdict
	}{
		"one campaign":      {[]string{"a"}, -1, maxUndecided, campaignFails},
		"several campaigns": {[]string{"a", "b"}, -1, maxUndecided, sinkFails},
		"one unanswered":    {[]string{"a"}, 0, outageFailures - 1, campaignFails},
	} {
		var b breaker
		circuits := map[string]*campaignBreaker{"a": {}, "b": {}}
		calls, now := 0, int64(0)
		for ; calls < 2*maxUndecided; calls++ {
			id := tc.campaigns[calls%len(tc.campaigns)]
			now += 100 * millisecond
			f := failure{campaign: id, answered: calls != tc.unheard}
			if v := b.failed(circuits[id], f, now); v > undecided {
				if v != tc.verdict {
					t.Errorf("%s: verdict %d", name, v)
				}
				break
			}
			f.again = true // adds nothing
			if v := b.failed(circuits[id], f, now); v > undecided && calls != tc.unheard {
				t.Errorf("%s: verdict %d by a job that failed before, after %d", name, v, calls)
			}
		}
		if calls != tc.want {
			t.Errorf("%s: closed by call %d, want %d", name, calls, tc.want)
		}
	}
}

// One campaign's failures are the sink's if the sink cannot be reached.
func TestASinkThatCannotBeReachedFailsForAll(t *testing.T) {
	for unreached, want := range map[int]verdict{-1: campaignFails, 0: sinkFails, 3: sinkFails} {
		var b breaker
		var c campaignBreaker
		got := tolerated
		for i := range outageFailures {
			if got != tolerated {
				t.Errorf("verdict %d after %d failures", got, i)
			}
			got = b.failed(&c, failure{campaign: "a", sink: i == unreached}, int64(i)*100*millisecond)
		}
		if got != want {
			t.Errorf("call %d unreached: verdict %d, want %d", unreached, got, want)
		}
	}
}

// A breaker that failures opened is closed by a success, except for as long as the destination asked to wait.
func TestASuccessDoesNotEndTheWaitThatWasAskedFor(t *testing.T) {
	var b breaker
	b.open(300*millisecond, true)
	if tell, recovered := b.worked(); tell || recovered || b.openUntil != 300*millisecond {
		t.Errorf("tell %t, recovered %t, open until %d", tell, recovered, b.openUntil)
	}
	if done, _ := b.trip(delivery.GateFailing, 299*millisecond); done {
		t.Error("an open breaker is tripped: the failure is of a call that was under way")
	}
	if done, first := b.trip(delivery.GateFailing, 300*millisecond); !done || !first {
		t.Error("a breaker whose time is over is not tripped")
	}
	b.open(1300*millisecond, false)
	b.open(500*millisecond, true) // sooner than that
	if done, first := b.trip(delivery.GateFailing, 1400*millisecond); !done || first {
		t.Errorf("half-open, a failure: %t, first: %t", done, first)
	}
	b.open(2400*millisecond, false)
	if tell, recovered := b.worked(); !tell || !recovered || b.openUntil != 500*millisecond {
		t.Errorf("tell %t, recovered %t, open until %d", tell, recovered, b.openUntil)
	}
	b.elsewhere = true
	if tell, recovered := b.worked(); !tell || recovered {
		t.Errorf("closed elsewhere: tell %t, recovered %t", tell, recovered)
	}
}

// Calls of the gate are made one at a time and in order; those that say the same are one.
func TestGateCallsAreMadeInOrder(t *testing.T) {
	var g gateCalls
	probe := delivery.Closure{Cause: delivery.GateFailing, For: time.Second, Probe: true}
	wait := func(d time.Duration, probe bool) gateCall {
		return gateCall{Closure: delivery.Closure{For: d, Probe: probe}}
	}
	g.add(gateCall{Closure: probe})
	first, ok := g.next()
	if !ok || first.Closure != probe {
		t.Fatalf("%+v, %t", first, ok)
	}
	g.add(wait(time.Second, false))
	g.add(wait(time.Minute, true))
	g.add(wait(2*time.Second, false))
	g.add(gateCall{open: true})
	if c, ok := g.next(); ok {
		t.Errorf("%+v while a call is under way", c)
	}
	for _, want := range []gateCall{wait(time.Minute, true), {open: true}} {
		g.calling = false
		if c, ok := g.next(); !ok || c.Closure != want.Closure || c.open != want.open {
			t.Errorf("%+v, %t, want %+v", c, ok, want)
		}
	}
	g.calling = false
	if _, ok := g.next(); ok || !g.idle() {
		t.Error("a call too many")
	}
}

// Other daemons' successes with a campaign say that failures here are the jobs' own, if they are later than the first of
// them; for some seconds, as long as there are new ones.
func TestSuccessesElsewhereCloseACircuit(t *testing.T) {
	var b breaker
	var c campaignBreaker
	now := int64(0)
	fail := func(want verdict) {
		t.Helper()
		now += 100 * millisecond
		if got := b.failed(&c, failure{campaign: "a"}, now); got != want {
			t.Errorf("at %d: verdict %d, want %d", now, got, want)
		}
	}
	for range outageFailures - 1 {
		fail(tolerated)
	}
	fail(campaignFails)
	c.open(now)
	if c.fleetDelivered(c.since-1, now) || c.closed() {
		t.Error("a success before the first failure closes the circuit")
	}
	if !c.fleetDelivered(c.since, now) || !c.closed() {
		t.Error("a success after the first failure does not close the circuit")
	}
	for range 3 * outageFailures {
		fail(tolerated)
	}
	c.fleetDelivered(now, now) // it goes on
	for end := now + elsewhereFor.Microseconds() - 100*millisecond; now < end; {
		fail(tolerated)
	}
	fail(campaignFails)
}
