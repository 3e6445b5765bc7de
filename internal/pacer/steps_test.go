package pacer

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// steps answers as a request of three steps does: the first ends at once, the second is polled so many times, every while,
// and the third ends the job.
func steps(polls int32, every time.Duration, repeatable bool) func(int, *delivery.Job) delivery.Result {
	return func(_ int, j *delivery.Job) delivery.Result {
		switch s := j.State; {
		case s == nil:
			return delivery.Result{Class: delivery.Pending, State: &delivery.State{Step: "poll", Vars: []byte(`{"id":"` + j.ID + `"}`)}, Repeatable: repeatable}
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

// timers offer the jobs that the daemon puts into timers again when they are due, until ctx ends, and return how many there
// have been.
func (f *fleet) timers(ctx context.Context, daemon int) (stop func() int) {
	src, next, offset, done := newPartition("timer"), 0, int64(0), make(chan struct{})
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer close(done)
		var waiting []put
		for ctx.Err() == nil {
			out := f.outboxes[daemon]
			out.mu.Lock()
			for _, p := range out.puts[next:] {
				next++
				if p.to.Kind == delivery.ToTimer {
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
				j.From, j.Source, j.Offset, j.Receipt, j.ReadAt = delivery.FromTimer, src, offset, src, time.Now()
				j.TimerHops++
				offset++
				j.Reason, j.Due, j.Call = string(p.to.Reason), p.to.Due, delivery.Call{}
				due = append(due, &j)
				return true
			})
			if _, err := f.daemons[daemon].Offer(ctx, f.counted(daemon, due)); err != nil {
				return
			}
			select {
			case <-time.After(5 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	}()
	return func() int { cancel(); <-done; return src.count(delivery.OutcomeDelivered) }
}

// steps are the arrivals at a step of the campaign; "" is the first.
func (f *fleet) steps(campaign, step string) (list []int64) {
	for _, a := range f.receiver.history() {
		if a.campaign == campaign && a.step == step {
			list = append(list, a.at)
		}
	}
	return list
}

// most is the largest number of instants, in order, within a second.
func most(list []int64) (n int) {
	first := 0
	for i, at := range list {
		for list[first] <= at-1_000_000 {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// TestOnlyTheFirstStepTakesASlot: the first steps go at the campaign's rate and by its quota, the others go as well, and
// every one once.
func TestOnlyTheFirstStepTakesASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		quota := &delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: time.Hour, Limit: 60}}}
		c := campaign("c", 20)
		c.Quotas = []*delivery.Quota{quota}
		f := newFleet(1, uniform(3, 500*time.Microsecond, 0), newBook(c), nil)
		defer f.stop()
		f.receiver.setAnswer(steps(2, 300*time.Millisecond, true))
		in := newPartition("in")
		list := f.counted(0, jobs(in, delivery.FromLane, "c", 0, 60))
		for len(list) > 0 {
			list, _ = f.daemons[0].Offer(t.Context(), list)
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		first, polls, last := f.steps("c", ""), f.steps("c", "poll"), f.steps("c", "close")
		if n := in.count(delivery.OutcomeDelivered); n != 60 || len(first) != 60 || len(polls) != 180 || len(last) != 60 {
			t.Fatalf("delivered %d; %d first, %d polls, %d last", n, len(first), len(polls), len(last))
		}
		if n := most(first); n > 21 {
			t.Errorf("%d first steps within a second", n)
		}
		if tallies := f.daemons[0].Tallies(); len(tallies) != 1 || tallies[0].Sent != 60 {
			t.Errorf("tallies: %+v", tallies)
		}
	})
}

// TestStateIsStoredBeforeTheNextStep: unless a step may be repeated, its job comes back from a timer, with its state.
func TestStateIsStoredBeforeTheNextStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(1, uniform(3, 500*time.Microsecond, 0), newBook(campaign("c", 100)), nil)
		defer f.stop()
		f.receiver.setAnswer(steps(1, time.Minute, false))
		stop := f.timers(t.Context(), 0)
		in := newPartition("in")
		f.offer(t, jobs(in, delivery.FromIngress, "c", 0, 10))
		time.Sleep(2 * time.Second)
		if n := in.count(delivery.OutcomeRetried); n != 10 || len(f.steps("c", "poll")) != 10 || len(f.steps("c", "close")) != 0 {
			t.Fatalf("after 2 s: %d in timers, %d polls", n, len(f.steps("c", "poll")))
		}
		time.Sleep(time.Minute)
		n := stop()
		f.stop()
		for _, p := range f.outboxes[0].puts {
			if p.to.Kind != delivery.ToTimer || p.to.Reason != delivery.ReasonStep || p.job.State == nil || string(p.job.State.Vars) != `{"id":"`+p.job.ID+`"}` {
				t.Fatalf("put: %+v, state %+v", p.to, p.job.State)
			}
		}
		if n != 10 || len(f.steps("c", "")) != 10 || len(f.steps("c", "poll")) != 20 || len(f.steps("c", "close")) != 10 {
			t.Errorf("delivered %d; %d first, %d polls, %d last", n, len(f.steps("c", "")), len(f.steps("c", "poll")), len(f.steps("c", "close")))
		}
	})
}
