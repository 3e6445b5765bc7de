package pacer

import (
	"context"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// story is what happens to destinations. What the receiver counts is under the lock of the receiver.
type story struct {
	*world
	shops
	answers      map[string]string    // by destination
	off          map[string]time.Time // since when destinations are disabled
	tries, taken map[string]int       // by job
	latest       time.Duration        // of a job of the campaign by, since it was published
}

// publishes has jobs wait.
func (s *story) publishes(campaign, destination string, n int) {
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	for range n {
		s.publish(campaign, delivery.Header{Key: delivery.HeaderDestination, Value: []byte(destination)})
	}
}

// pass lets a time pass, in which what waits is offered again and again.
func (s *story) pass(d, every time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		s.read()
	}
}

// event is what happens after a pause, to a destination or a daemon.
type event struct {
	after       time.Duration
	what, which string
	n           int
}

// answers are what a destination may answer for a while.
var answers = map[string]delivery.Result{
	"500": dead500, "502": dead502, "no connection": unreachable, "credentials": unauthorized, "wait": slowDown, "works": {},
	"a moment": {Class: delivery.Throttled, Scope: delivery.ScopeDestination, RetryAfter: time.Second}, "rejects": {Class: delivery.Rejected},
	"refuses": {Class: delivery.Permanent, Detail: "400"},
}

// happens lets an event happen.
func (s *story) happens(e event) {
	s.receiver.mu.Lock()
	defer s.receiver.mu.Unlock()
	switch _, off := s.off[e.which]; e.what {
	case "jobs":
		s.publishes([]string{"c", "d"}[e.n%2], e.which, e.n)
	case "paused", "active":
		s.book.set(as(delivery.Status(e.what), campaign("c", 50)))
	case "enable", "renew": // by another address
		delete(s.off, e.which)
		s.disable(e.which, false)
		s.renew(e.which)
	case "disable":
		if s.disable(e.which, true); !off {
			s.off[e.which] = time.Now()
		}
	default:
		s.answers[e.which] = e.what
	}
}

// answer is that of the receiver.
func (s *story) answer(_ int, j *delivery.Job) delivery.Result {
	r := answers[s.answers[j.Destination]]
	if s.tries[j.ID]++; r.Class == delivery.Delivered || r.Class == delivery.Rejected {
		s.taken[j.ID]++
	}
	since, off := s.off[j.Destination]
	s.expect(!off || time.Since(since) < 310*time.Millisecond, "a job was sent to %s, which is disabled", j.Destination)
	if j.Campaign == "by" {
		s.latest = max(s.latest, time.Since(j.FirstRead))
	}
	return r
}

// play lets the events happen, then ends all that holds jobs up, and says what is wrong.
func (s *story) play(t *testing.T, events []event) (wrong string) {
	synctest.Test(t, func(*testing.T) {
		streets := &street{}
		s.limit = map[string]int{"small": 1}
		s.world = newWorld(1, newBook(campaign("c", 50), campaign("d", 5), campaign("by", 20)), 0, func(o *Options) {
			withShops(&s.shops)(o)
			streets.sinks = o.Gates
			o.Gates, o.Retry.MaxAttempts = streets, 4
		})
		s.receiver.setLatency(300 * time.Millisecond)
		s.receiver.setAnswer(s.answer)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { streets.run(ctx, s.daemons) })
		for _, name := range []string{"a", "b", "small"} {
			events = append(events, event{what: "works", which: name}, event{what: "enable", which: name})
		}
		for _, e := range append(events, event{what: "active"}) {
			s.pass(e.after, 20*time.Millisecond)
			switch s.publishes("by", "fine", 2); e.what {
			case "restart":
				s.restart(e.n % 2)
			case "move":
				s.move(s.logs[e.n%len(s.logs)])
			default:
				s.happens(e)
			}
		}
		s.pass(20*time.Minute, time.Second)
		cancel()
		running.Wait()
		if wrong = s.end(); wrong == "" {
			wrong = s.compare()
		}
	})
	return wrong
}

// compare compares what the receiver has counted with what the daemons have made of it.
func (s *story) compare() string {
	calls, sent, settled, published := map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}
	for id, j := range s.jobs {
		published[j.campaign], calls[j.campaign] = published[j.campaign]+1, calls[j.campaign]+int64(s.tries[id])
		s.expect(s.taken[id] == 1 || s.taken[id] == 0 && j.dead != "", "job %s was taken %d times, and is a dead letter for %q", id, s.taken[id], j.dead)
		s.expect(j.dead != delivery.ReasonAttemptsExhausted || s.tries[id] >= 4, "job %s was given up after %d calls", id, s.tries[id])
	}
	for _, p := range s.daemons {
		for _, tally := range p.Tallies() {
			sent[tally.Campaign] += tally.Sent
			settled[tally.Campaign] += tally.Settled.Total()
		}
	}
	delete(sent, "") // of destinations
	delete(settled, "")
	s.expect(maps.Equal(sent, calls) && maps.Equal(settled, published), "of %v with calls %v the daemons have counted %v and %v",
		published, calls, settled, sent)
	s.expect(s.receiver.mostTo["small"] <= 2, "%d calls at once to a destination that may have one of each daemon", s.receiver.mostTo["small"])
	s.expect(s.latest < 5*time.Second, "a job of a campaign that nothing holds up was sent after %s", s.latest)
	return s.wrong
}

// TestWhateverDestinationsAnswer: destinations answer anything and are changed, and daemons stop. Each job is taken once, or is a dead letter. The
// daemons count what the receiver has counted. The jobs of another campaign go on.
func TestWhateverDestinationsAnswer(t *testing.T) {
	testservices.Simulation(t)
	happenings := []string{"jobs", "jobs", "jobs", "jobs", "renew", "disable", "enable", "paused", "active", "restart", "move"}
	what := rapid.SampledFrom(append(happenings, slices.Sorted(maps.Keys(answers))...))
	which, after, n := rapid.SampledFrom([]string{"a", "b", "small"}), rapid.IntRange(0, 3000), rapid.IntRange(1, 30)
	rapid.Check(t, func(rt *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) event {
			return event{time.Duration(after.Draw(rt, "after")) * time.Millisecond, what.Draw(rt, "what"), which.Draw(rt, "which"), n.Draw(rt, "n")}
		}), 1, 40).Draw(rt, "events")
		s := &story{answers: map[string]string{}, off: map[string]time.Time{}, tries: map[string]int{}, taken: map[string]int{}}
		if wrong := s.play(t, events); wrong != "" {
			rt.Fatalf("%s: %v", wrong, events)
		}
	})
}
