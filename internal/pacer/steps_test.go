package pacer

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

// steps answers like a request of three steps: the first ends at once, the second is polled several times at an interval, and the third
// ends the job.
func steps(polls int32, every time.Duration, repeatable bool) func(int, *delivery.Job) delivery.Result {
	return func(_ int, j *delivery.Job) delivery.Result {
		switch s := j.State; {
		case s == nil:
			begun := &delivery.State{Step: "poll", Vars: []byte(`{"id":"` + j.ID + `"}`)}
			return delivery.Result{Class: delivery.Pending, State: begun, Repeatable: repeatable}
		case s.Step == "poll" && s.Waits < polls:
			next := *s
			next.Waits++
			return delivery.Result{Class: delivery.Pending, State: &next, RetryAfter: every, Repeatable: true}
		case s.Step == "poll":
			return delivery.Result{Class: delivery.Pending, State: &delivery.State{Step: "close", Vars: s.Vars}, Repeatable: repeatable}
		}
		return delivery.Result{Class: delivery.Delivered}
	}
}

// timers offer the jobs that the daemon puts into timers again when they are due, and those of lanes at once, until ctx ends, and return
// how many of them were delivered.
func (f *fleet) timers(ctx context.Context, daemon int) (stop func() int) {
	return f.timersAt(ctx, daemon, newPartition("timer"))
}

// timersAt does so at a partition.
func (f *fleet) timersAt(ctx context.Context, daemon int, src *partition) (stop func() int) {
	next, offset, done := 0, int64(daemon)<<32, make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(done)
		var waiting []put
		for ctx.Err() == nil {
			out := f.outboxes[daemon]
			out.mu.Lock()
			for _, p := range out.puts[next:] {
				next++
				if p.to.Kind != delivery.ToDead {
					waiting = append(waiting, p)
				}
			}
			out.mu.Unlock()
			var due []*delivery.Job
			waiting = slices.DeleteFunc(waiting, func(p put) bool {
				if p.to.Due.After(time.Now()) {
					return false
				}
				j := *p.job
				if j.FoundDestination() {
					j.Destination = ""
				}
				if j.From = delivery.FromTimer; p.to.Kind == delivery.ToLane {
					j.From = delivery.FromLane
				} else {
					j.TimerHops++
				}
				j.Source, j.Offset, j.Receipt, j.ReadAt = source{src, j.From}, offset, src, time.Now()
				offset++
				j.Reason, j.Due, j.Call, j.EnqueuedAt = string(p.to.Reason), p.to.Due, delivery.Call{}, delivery.StampOf(p.at)
				due = append(due, &j)
				return true
			})
			if len(due) > 0 {
				if _, err := f.daemons[daemon].Offer(ctx, f.counted(daemon, due)); err != nil {
					return
				}
			}
			select {
			case <-time.After(max(f.timerEvery, 5*time.Millisecond)):
			case <-ctx.Done():
			}
		}
	}()
	return func() int { cancel(); <-done; return src.count(delivery.OutcomeDelivered) }
}

// steps are the arrivals at a step of the campaign; "" is the first.
func (f *fleet) steps(campaign, step string) (list []arrival) {
	for _, a := range f.receiver.history() {
		if a.campaign == campaign && a.step == step {
			list = append(list, a)
		}
	}
	return list
}

// TestOnlyTheFirstStepTakesASlot: the first steps go at the campaign's rate and by its quota, the others go as well, and
// every one once.
func TestOnlyTheFirstStepTakesASlot(t *testing.T) {
	c := under("c", 20, delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: time.Hour, Limit: 60}}})
	one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(steps(2, 300*time.Millisecond, true))
		in := newPartition("in")
		f.push(t, f.counted(0, jobs(in, delivery.FromLane, "c", 0, 60)))
		time.Sleep(10 * time.Second)
		first, polls, last := f.steps("c", ""), f.steps("c", "poll"), f.steps("c", "close")
		if n := in.count(delivery.OutcomeDelivered); n != 60 || len(first) != 60 || len(polls) != 180 || len(last) != 60 {
			t.Fatalf("delivered %d; %d first, %d polls, %d last", n, len(first), len(polls), len(last))
		}
		atMost(t, mostIn(first, 1_000_000), 21, "first steps within a second")
		if tallies := f.daemons[0].Tallies(); len(tallies) != 1 || tallies[0].Sent != 60 {
			t.Errorf("tallies: %+v", tallies)
		}
	})
}

// TestStateIsStoredBeforeTheNextStep: unless a step may be repeated, its job comes back from a timer, with its state.
func TestStateIsStoredBeforeTheNextStep(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(steps(1, time.Minute, false))
		stop := f.timers(t.Context(), 0)
		in := f.offered(t, delivery.FromIngress, "c", 10)
		time.Sleep(2 * time.Second)
		if n := in.count(delivery.OutcomeRetried); n != 10 || len(f.steps("c", "poll")) != 10 || len(f.steps("c", "close")) != 0 {
			t.Fatalf("after 2 s: %d in timers, %d polls", n, len(f.steps("c", "poll")))
		}
		time.Sleep(time.Minute)
		n := stop()
		f.stop()
		for _, p := range f.outboxes[0].puts {
			if p.to.Kind != delivery.ToTimer || p.to.Reason != delivery.ReasonStep || p.job.State == nil ||
				string(p.job.State.Vars) != `{"id":"`+p.job.ID+`"}` {
				t.Fatalf("put: %+v, state %+v", p.to, p.job.State)
			}
		}
		if n != 10 || len(f.steps("c", "")) != 10 || len(f.steps("c", "poll")) != 20 || len(f.steps("c", "close")) != 10 {
			t.Errorf("delivered %d; %d first, %d polls, %d last", n, len(f.steps("c", "")), len(f.steps("c", "poll")), len(f.steps("c", "close")))
		}
	})
}

// TestPollsKeepToTheirCeiling: with more polls than the ceiling allows none are lost, memory holds few of them, and another
// campaign is not delayed.
func TestPollsKeepToTheirCeiling(t *testing.T) {
	few := func(o *Options) { o.FollowUps, o.MaxQueueBytes = map[string]int{"default": 50}, 100<<10 }
	one(t, newBook(campaign("c", 400), campaign("d", 5)), few, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(steps(1, time.Second, true))
		stop := f.timers(t.Context(), 0)
		in := map[string]*partition{"c": newPartition("c"), "d": newPartition("d")}
		offer := func(c string, n int) {
			list := f.counted(0, jobs(in[c], delivery.FromLane, c, 0, n))
			for _, j := range list {
				j.Size = 600
			}
			f.push(t, list)
		}
		go offer("d", 10)
		offer("c", 400)
		memory := int64(0)
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			memory = max(memory, f.inMemory(t).Jobs)
		}
		atMost(t, memory, 400, "jobs in memory: as many as are sent before they are open for too long, and the queue")
		atLeast(t, len(f.steps("d", "close")), 8, "jobs of the other campaign at their last step")
		time.Sleep(2 * time.Minute)
		all := append(f.steps("c", "poll"), f.steps("c", "close")...)
		all = append(append(all, f.steps("d", "poll")...), f.steps("d", "close")...)
		atMost(t, mostIn(all, 1_000_000), 52, "calls within a second")
		done := stop() + in["c"].count(delivery.OutcomeDelivered) + in["d"].count(delivery.OutcomeDelivered)
		exactly(t, done, 410, "delivered")
		exactly(t, len(f.steps("c", "")), 400, "first steps")
	})
}

// TestManyPollsHoldNoMemory: jobs whose next poll is not near are in timers, and hold neither memory nor calls.
func TestManyPollsHoldNoMemory(t *testing.T) {
	one(t, newBook(campaign("c", 10_000)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(steps(3, time.Minute, true))
		in := f.pushed(t, delivery.FromLane, "c", 5000)
		time.Sleep(20 * time.Second)
		exactly(t, len(f.steps("c", "")), 5000, "first steps")
		if m := f.inMemory(t); m.Jobs > 0 || m.InHand > 0 {
			t.Errorf("held: %+v", m)
		}
		exactly(t, in.count(delivery.OutcomeRetried), 5000, "in timers")
	})
}

// TestBetweenSteps: a pause, a resume, a cancellation and an expiry act between steps.
func TestBetweenSteps(t *testing.T) {
	one(t, newBook(campaign("c", 1000)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(steps(1<<30, 500*time.Millisecond, true))
		stop := f.timers(t.Context(), 0)
		in := newPartition("in")
		list := jobs(in, delivery.FromIngress, "c", 0, 20)
		for _, j := range list[:5] {
			j.ExpiresAt = time.Now().Add(10 * time.Second)
		}
		f.offer(t, list)
		set := func(s delivery.Status) {
			f.book.set(as(s, campaign("c", 1000)))
			time.Sleep(600 * time.Millisecond) // calls in flight end, and what was about to be sent is gone
		}
		time.Sleep(3 * time.Second)
		set(delivery.StatusPaused)
		before := len(f.receiver.history())
		atLeast(t, before, 80, "calls")
		time.Sleep(time.Minute)
		exactly(t, len(f.receiver.history()), before, "calls while the campaign was paused")
		exactly(t, f.outboxes[0].count(delivery.ToDead, delivery.ReasonExpired), 5, "expired")
		set(delivery.StatusActive)
		time.Sleep(2 * time.Minute)
		atLeast(t, len(f.receiver.history())-before, 15, "calls after the pause")
		set(delivery.StatusCancelled)
		time.Sleep(time.Minute)
		after := len(f.receiver.history())
		time.Sleep(time.Minute)
		exactly(t, len(f.receiver.history()), after, "calls after the campaign was cancelled")
		exactly(t, len(f.steps("c", "")), 20, "first steps")
		stop()
		exactly(t, f.inMemory(t).Jobs, 0, "held")
	})
}

// TestFollowUpsAndFirstStepsShareTheCalls: when a sink has few calls, neither waits for the other for ever.
func TestFollowUpsAndFirstStepsShareTheCalls(t *testing.T) {
	one(t, newBook(campaign("c", 200)), func(o *Options) { o.FollowUps = map[string]int{"default": 1000} }, func(t *testing.T, f *fleet) {
		f.receiver.max = 2
		f.receiver.setLatency(100 * time.Millisecond)
		f.receiver.setAnswer(steps(1<<30, 0, true))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		f.feed(ctx, 0, "c", newPartition("in"))
		atLeast(t, len(f.steps("c", "")), 50, "first steps")
		atLeast(t, len(f.steps("c", "poll")), 50, "polls")
		atMost(t, f.receiver.mostTo[""], 2, "calls at once")
	})
}

// TestAGateStopsSteps: while the sink asks to wait, no step is made, and a failing one is probed by a step when there is nothing
// else.
func TestAGateStopsSteps(t *testing.T) {
	one(t, newBook(campaign("c", 1000)), nil, func(t *testing.T, f *fleet) {
		works := steps(3, 200*time.Millisecond, true)
		f.receiver.setAnswer(works)
		stop := f.timers(t.Context(), 0)
		in := newPartition("in")
		f.offer(t, f.counted(0, jobs(in, delivery.FromIngress, "c", 0, 20)))
		time.Sleep(300 * time.Millisecond)
		f.receiver.setAnswer(always(delivery.Result{Class: delivery.Throttled, RetryAfter: 10 * time.Second}))
		time.Sleep(time.Second)
		before := len(f.receiver.history())
		time.Sleep(7 * time.Second)
		atMost(t, len(f.receiver.history())-before, 4, "calls while the gate was closed")
		f.receiver.setAnswer(always(delivery.Result{Class: delivery.Unreachable}))
		time.Sleep(20 * time.Second)
		before = len(f.receiver.history())
		time.Sleep(10 * time.Second)
		within(t, len(f.receiver.history())-before, 3, 15, "probes in ten seconds")
		f.receiver.setAnswer(works)
		time.Sleep(2 * time.Minute)
		exactly(t, stop()+in.count(delivery.OutcomeDelivered), 20, "delivered")
	})
}

// TestFollowUps: each job leaves once, the ceiling bounds the calls, campaigns that may send do so, and the counts are right.
func TestFollowUps(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		perSecond := rapid.SampledFrom([]int{1, 7, 100, 5000}).Draw(rt, "a second")
		f := newFollowUps(perSecond)
		queues := []*queue{newQueue("a"), newQueue("b"), newQueue("c")}
		here := map[*delivery.Job]bool{}
		var sent []int64
		now, made, size := int64(1_000_000), int64(0), int64(0)
		gone := func(j *delivery.Job) {
			size -= j.Size
			delete(here, j)
		}
		for range rapid.IntRange(1, 100).Draw(rt, "steps") {
			q := queues[rapid.IntRange(0, 2).Draw(rt, "campaign")]
			switch rapid.IntRange(0, 6).Draw(rt, "step") {
			case 0, 1, 2:
				made++
				j := &delivery.Job{ID: fmt.Sprint(made), Campaign: q.id, Reading: delivery.Reading{Size: made}}
				f.push(q, j)
				here[j], size = true, size+made
			case 3, 4:
				only, before := rapid.Bool().Draw(rt, "only this one may send"), f.next
				may := func(campaign string) bool { return !only || campaign == q.id }
				j := f.nextJob(now, func(q *queue) bool { return may(q.id) })
				switch {
				case j == nil:
					for other := range here {
						if before <= now && may(other.Campaign) {
							rt.Fatalf("%s was not taken", other.ID)
						}
					}
				case !here[j] || !may(j.Campaign):
					rt.Fatalf("%s was taken", j.ID)
				default:
					gone(j)
					sent = append(sent, now)
				}
			case 5:
				for _, j := range takeOut(&f, func(_ int64, j *delivery.Job) bool { return j.Campaign == q.id }) {
					gone(j)
				}
			case 6:
				now += rapid.Int64Range(1, 700_000).Draw(rt, "later")
			}
			if f.ready != len(here) || f.size != size {
				rt.Fatalf("%d ready, %d bytes; want %d, %d", f.ready, f.size, len(here), size)
			}
			for from := range sent {
				last := len(sent) - 1
				if allowed := int64(perSecond)*(sent[last]-sent[from]+followUpSlack.Microseconds())/1_000_000 + 2; int64(last-from+1) > allowed {
					rt.Fatalf("%d calls in %d µs", last-from+1, sent[last]-sent[from])
				}
			}
		}
	})
}

// TestBook: jobs in timers are told to come back one behind the other when there are more than the ceiling allows, and at their
// own time when there are not.
func TestBook(t *testing.T) {
	f := newFollowUps(10)
	a, b := newQueue("a"), newQueue("b")
	const second = int64(1_000_000)
	exactly(t, f.book(a, 5*second, false, 0), 5*second, "its own time")
	var last int64
	for i := range 100 {
		at := f.book(a, 0, true, 0)
		if at <= last || at > int64(i+2)*second/10 {
			t.Fatalf("job %d: %d after %d", i, at, last)
		}
		last = at
	}
	atMost(t, f.book(b, 0, true, 0), second/2, "the first of another campaign")
	atLeast(t, f.book(a, second, false, 0), last+1, "one that would pass the others")
	exactly(t, f.book(a, 60*second, false, 0), 60*second, "one whose time is behind them")
	if f.forget(20 * second); len(f.booked) != 0 && f.booked["b"] != 0 {
		t.Errorf("remembered: %d", len(f.booked))
	}
	for range 100_000 {
		last = f.book(a, 0, true, 0)
	}
	atMost(t, last, maxBooked.Microseconds(), "the last of many")
}
