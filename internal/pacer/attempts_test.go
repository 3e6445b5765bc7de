package pacer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Jobs that all fail, with an answer of the destination's own, come to their end one by one, though nothing tells them from
// an outage: of one campaign, and of several, on one daemon and on three.
func TestALumpOfBadJobsComesToItsEnd(t *testing.T) {
	for _, daemons := range []int{1, 3} {
		for _, campaigns := range [][]string{{"a"}, {"a", "b", "c"}} {
			t.Run(fmt.Sprint(daemons, campaigns), func(t *testing.T) {
				b := newBook(campaign("a", 100), campaign("b", 100), campaign("c", 100))
				synctest.Test(t, func(t *testing.T) {
					f := newFleet(daemons, uniform(3, 500*time.Microsecond, 0), b, impatient)
					defer f.stop()
					defer f.talk()()
					f.receiver.setAnswer(func(int, *delivery.Job) delivery.Result {
						return delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}
					})
					n := 24 / len(campaigns)
					for _, id := range campaigns {
						f.share(t, id, n)
					}
					time.Sleep(3 * time.Minute)
					if dead := f.dead(delivery.ReasonAttemptsExhausted); dead != 24 {
						t.Errorf("%d dead letters of 24", dead)
					}
				})
			})
		}
	}
}

// The last jobs of a campaign that fail together, after all others were delivered.
func TestALumpAtTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFleet(3, uniform(3, 500*time.Microsecond, 0), newBook(campaign("c", 100)), impatient)
		defer f.stop()
		defer f.talk()()
		f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
			if j.Offset >= 489 {
				return delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}
			}
			return delivery.Result{Class: delivery.Delivered}
		})
		lanes := f.share(t, "c", 600)
		time.Sleep(200 * time.Second) // 111 jobs, three probes a second
		if n := f.dead(delivery.ReasonAttemptsExhausted); n != 111 || delivered(lanes) != 489 {
			t.Errorf("%d dead letters of 111, %d delivered of 489", n, delivered(lanes))
		}
	})
}

// In an outage, the last jobs of a campaign use up no attempts, however few they are: no connection, no answer, or that of a
// gateway.
func TestFewJobsSurviveAnOutage(t *testing.T) {
	for name, r := range map[string]delivery.Result{
		"unreachable": {Class: delivery.Unreachable},
		"unanswered":  {Class: delivery.Temporary, By: delivery.ByNobody},
	} {
		for _, n := range []int{1, 2, 4, 5, 20} {
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				one(t, newBook(campaign("c", 100)), impatient, func(t *testing.T, f *fleet) {
					before := f.share(t, "c", 50)
					time.Sleep(time.Second)
					if delivered(before) != 50 {
						t.Fatalf("%d of 50 delivered", delivered(before))
					}
					f.receiver.setAnswer(func(int, *delivery.Job) delivery.Result { return r })
					lane := newPartition("lane/1")
					f.offer(t, jobs(lane, delivery.FromLane, "c", 100, n))
					time.Sleep(10 * time.Minute)
					f.receiver.setAnswer(nil)
					time.Sleep(10 * time.Second)
					if got := lane.count(delivery.OutcomeDelivered); got != n {
						t.Errorf("%d of %d delivered after the outage: %+v", got, n, f.outboxes[0].all())
					}
				})
			})
		}
	}
}

// A job that never reaches its destination, or never gets an answer, is given up if the sink takes others, also between its
// attempts, and after it was in a timer.
func TestAJobAloneWithoutAnAnswer(t *testing.T) {
	for name, r := range map[string]delivery.Result{
		"unreachable": {Class: delivery.Unreachable},
		"unanswered":  {Class: delivery.Temporary, By: delivery.ByNobody},
	} {
		t.Run(name, func(t *testing.T) {
			one(t, newBook(campaign("c", 10)), impatient, func(t *testing.T, f *fleet) {
				timer := newPartition("timer/0")
				bad := jobs(timer, delivery.FromTimer, "c", 0, 1)
				bad[0].Reason, bad[0].EnqueuedAt = string(delivery.ReasonRetry), time.Now().Add(-time.Second)
				f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
					if j.From == delivery.FromTimer {
						return r
					}
					return delivery.Result{Class: delivery.Delivered}
				})
				f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 1))
				time.Sleep(500 * time.Millisecond)
				f.offer(t, bad)
				f.share(t, "c", 150)
				time.Sleep(20 * time.Second)
				if n := f.dead(delivery.ReasonAttemptsExhausted); n != 1 {
					t.Errorf("%d dead letters of 1; %d calls", n, f.count("c"))
				}
			})
		})
	}
}
