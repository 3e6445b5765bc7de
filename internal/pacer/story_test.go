package pacer

import (
	"context"
	"fmt"
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

// entry is one job of a story: as it is written now, and where it waits.
type entry struct {
	job      delivery.Job
	due      time.Time
	daemon   int // that reads it
	held     bool
	outcomes int    // for good
	dead     string // why it is a dead letter
}

// story is what happens to the jobs, the destinations and the two daemons of a fleet. It is source, receipt and requeuer of all jobs; an offset
// stands for one reading of one. What the receiver counts is under the lock of the receiver.
type story struct {
	outbox
	source
	shops
	f            *fleet
	answers      map[string]string    // by destination
	off          map[string]time.Time // since when destinations are disabled
	tries, taken map[string]int       // by job
	latest       time.Duration        // of a job of the campaign by, since it was published

	mu      sync.Mutex // guards the rest
	entries []*entry
	read    []*entry // by offset; nil when the daemon has the job no more
	wrong   string
}

func (s *story) Release(offset int64) { s.free(offset, func(*entry) {}) }

// expect notes what is wrong.
func (s *story) expect(right bool, what string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !right {
		s.wrong = fmt.Sprintf(what, args...)
	}
}

// free notes that a daemon has a job no more.
func (s *story) free(offset int64, then func(*entry)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.read[offset]
	if e == nil {
		s.wrong = fmt.Sprintf("the job at %d left its daemon twice", offset)
		return
	}
	s.read[offset], e.held = nil, false
	then(e)
}

func (s *story) Settle(j *delivery.Job, o delivery.Outcome) {
	if o.Final() {
		s.free(j.Offset, func(e *entry) {
			if e.outcomes++; o == delivery.OutcomeDead {
				e.dead = j.Reason
			}
		})
	}
}

func (s *story) Put(j *delivery.Job, to delivery.Reroute) {
	if j.Reason = string(to.Reason); to.Kind == delivery.ToDead {
		j.Settle(delivery.OutcomeDead)
		return
	}
	s.free(j.Offset, func(e *entry) {
		e.job.History, e.job.Due, e.due, e.job.EnqueuedAt, e.job.From = j.History, to.Due, to.Due, delivery.StampOf(time.Now()), delivery.FromLane
		if to.Kind == delivery.ToTimer {
			e.job.From = delivery.FromTimer
			e.job.TimerHops++
		}
	})
	j.Settle(delivery.OutcomeRetried)
}

// publish has jobs wait.
func (s *story) publish(campaign, destination string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for range n {
		j := jobs(s.partition, delivery.FromLane, campaign, int64(len(s.entries)), 1)[0]
		j.Destination = destination
		s.entries = append(s.entries, &entry{job: *j, daemon: len(s.entries) % 2})
	}
}

// pass lets a time pass, in which what waits is offered again and again.
func (s *story) pass(d, every time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(every) {
		for daemon, p := range s.f.daemons {
			var list []*delivery.Job
			s.mu.Lock()
			for _, e := range s.entries {
				if e.daemon == daemon && !e.held && e.outcomes == 0 && !time.Now().Before(e.due) {
					j := e.job
					j.Source, j.Offset, j.ReadAt, j.Receipt = s, int64(len(s.read)), time.Now(), p.Receipt(s)
					e.held, s.read = true, append(s.read, e)
					list = append(list, &j)
				}
			}
			s.mu.Unlock()
			refused, err := p.Offer(context.Background(), list)
			s.expect(err == nil, "offer: %v", err)
			for _, j := range refused {
				s.Release(j.Offset)
			}
		}
	}
}

// drain has the other daemon read the jobs of one that drains.
func (s *story) drain(daemon int) {
	open, err := s.f.daemons[daemon].Drain(context.Background())
	s.expect(open == 0 && err == nil, "drain: %d open, %v", open, err)
	for offset, e := range s.read {
		if e != nil && e.daemon == daemon {
			s.read[offset], e.held = nil, false
		}
	}
	for _, e := range s.entries {
		e.daemon = 1 - daemon
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
	s.f.receiver.mu.Lock()
	defer s.f.receiver.mu.Unlock()
	switch _, off := s.off[e.which]; e.what {
	case "jobs":
		s.publish([]string{"c", "d"}[e.n%2], e.which, e.n)
	case "paused", "active":
		s.f.book.set(as(delivery.Status(e.what), campaign("c", 50)))
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
func (s *story) play(t *testing.T, events []event) string {
	synctest.Test(t, func(*testing.T) {
		streets := &street{}
		s.limit = map[string]int{"small": 1}
		s.f = newFleet(2, uniform(3, 500*time.Microsecond, 0), newBook(campaign("c", 50), campaign("d", 5), campaign("by", 20)), func(o *Options) {
			withShops(&s.shops)(o)
			streets.sinks, o.Requeuer = o.Gates, s
			o.Gates, o.Retry.MaxAttempts = streets, 4
		})
		s.f.receiver.setLatency(300 * time.Millisecond)
		s.f.receiver.setAnswer(s.answer)
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		running.Go(func() { streets.run(ctx, s.f.daemons) })
		for _, name := range []string{"a", "b", "small"} {
			events = append(events, event{what: "works", which: name}, event{what: "enable", which: name})
		}
		for _, e := range append(events, event{what: "active"}) {
			s.pass(e.after, 20*time.Millisecond)
			if s.publish("by", "fine", 2); e.what == "drain" {
				s.drain(e.n % 2)
			} else {
				s.happens(e)
			}
		}
		s.pass(20*time.Minute, time.Second)
		s.compare()
		cancel()
		running.Wait()
		s.f.stop()
	})
	return s.wrong
}

// compare compares what the receiver has counted with what the daemons have made of it.
func (s *story) compare() {
	calls, sent, settled, published := map[string]int64{}, map[string]int64{}, map[string]int64{}, map[string]int64{}
	for _, e := range s.entries {
		id, c := e.job.ID, e.job.Campaign
		published[c], calls[c] = published[c]+1, calls[c]+int64(s.tries[id])
		s.expect(e.outcomes == 1 && s.taken[id] <= 1, "job %s has %d outcomes, and was taken %d times", id, e.outcomes, s.taken[id])
		s.expect(s.taken[id] == 1 || e.dead != "", "job %s was not taken, and is no dead letter", id)
		s.expect(e.dead != string(delivery.ReasonAttemptsExhausted) || s.tries[id] >= 4, "job %s was given up after %d calls", id, s.tries[id])
	}
	for _, p := range s.f.daemons {
		for _, tally := range p.Tallies() {
			sent[tally.Campaign] += tally.Sent
			settled[tally.Campaign] += tally.Settled.Total()
		}
	}
	delete(sent, "") // of destinations
	delete(settled, "")
	s.expect(maps.Equal(sent, calls) && maps.Equal(settled, published), "of %v with calls %v the daemons have counted %v and %v",
		published, calls, settled, sent)
	s.expect(s.f.receiver.mostTo["small"] <= 2, "%d calls at once to a destination that may have one of each daemon", s.f.receiver.mostTo["small"])
	s.expect(s.latest < 5*time.Second, "a job of a campaign that nothing holds up was sent after %s", s.latest)
}

// TestWhateverDestinationsAnswer: destinations answer anything and are changed, and daemons stop. Each job is taken once, or is a dead letter. The
// daemons count what the receiver has counted. The jobs of another campaign go on.
func TestWhateverDestinationsAnswer(t *testing.T) {
	testservices.Simulation(t)
	happenings := []string{"jobs", "jobs", "jobs", "jobs", "renew", "disable", "enable", "paused", "active", "drain"}
	what := rapid.SampledFrom(append(happenings, slices.Sorted(maps.Keys(answers))...))
	which, after, n := rapid.SampledFrom([]string{"a", "b", "small"}), rapid.IntRange(0, 3000), rapid.IntRange(1, 30)
	rapid.Check(t, func(rt *rapid.T) {
		events := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) event {
			return event{time.Duration(after.Draw(rt, "after")) * time.Millisecond, what.Draw(rt, "what"), which.Draw(rt, "which"), n.Draw(rt, "n")}
		}), 1, 40).Draw(rt, "events")
		s := &story{source: source{newPartition("story"), delivery.FromLane}, answers: map[string]string{}}
		s.tries, s.taken, s.off = map[string]int{}, map[string]int{}, map[string]time.Time{}
		if wrong := s.play(t, events); wrong != "" {
			rt.Fatalf("%s: %v", wrong, events)
		}
	})
}
