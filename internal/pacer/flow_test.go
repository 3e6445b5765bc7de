package pacer

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// TestAFlowGrowsWithAnswers: a destination that answers gets as many calls as it needs, one that does not a few.
func TestAFlowGrowsWithAnswers(t *testing.T) {
	var f flow
	const most = 512
	exactly(t, f.free(most, 0), silentFailures, "calls at first")
	exactly(t, f.free(32, 0), 2, "calls at first of 32")
	for range 10 { // rounds
		n := f.free(most, 0)
		f.calls.inFlight = n
		for range n {
			f.calls.inFlight--
			f.ended(true, most)
		}
	}
	within(t, f.free(most, 0), most/2, most, "calls after 10 rounds")
	exactly(t, f.free(most, 7), 7, "calls of 7")
	f.ended(false, most)
	exactly(t, f.free(most, 0), silentFailures, "calls after one without an answer")
	f.window = 0
	for range 1000 { // one call at a time
		f.ended(true, most)
	}
	atMost(t, f.free(most, 0), silentFailures, "calls to a destination that needs one at a time")
}

// TestDestinationsAreBounded: the number of idle destinations that are kept is bounded. Those that work are forgotten first, and of each
// kind those used longest ago. The counts of those that are closed are right.
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
		trim := func(most int) {
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
			if !known[name] {
				trim(most - 1)
				order, known[name] = append(order, name), true
			}
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
				d.trip(delivery.GateFailing, maxProbeEvery, now)
				bad[name] = true
			case 3:
				d.succeeded(now)
				delete(bad, name)
			case 4:
				d.line.push(&delivery.Job{Reading: delivery.Reading{Size: 3}}, rapid.Bool().Draw(rt, "front"))
				lines[name]++
			case 5:
				if d.line.len() > 0 {
					d.line.pop(rapid.Bool().Draw(rt, "fewest"))
					lines[name]--
				}
			}
			l.note(d, now)
			order = append(slices.DeleteFunc(order, func(s string) bool { return s == name }), name)
			trim(most)
			jobs := 0
			for _, n := range lines {
				jobs += n
			}
			shut := len(l.shut["s"])
			if len(l.byKey) != len(known) || shut != len(bad) || l.waiting.jobs != jobs || l.waiting.bytes != int64(3*jobs) {
				rt.Fatalf("%d destinations, %d closed, %d jobs of %d bytes; want %v, %v, %d", len(l.byKey), shut, l.waiting.jobs, l.waiting.bytes, known, bad, jobs)
			}
			for name := range known {
				if l.byKey[destinationKey{"s", name}] == nil {
					rt.Fatalf("%s was forgotten; kept are %d of %v", name, len(l.byKey), known)
				}
			}
		}
	})
}
