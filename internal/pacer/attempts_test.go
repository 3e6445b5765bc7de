package pacer

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// A destination that answers 500 for ten minutes costs a job of a backlog, or one that arrives meanwhile, at most an attempt. The same
// holds for a daemon that has only a few of the jobs, while another has many.
func TestABacklogSurvivesAnOutageOfAnswers(t *testing.T) {
	testservices.Simulation(t)
	for name, tc := range map[string]struct {
		daemons   int
		campaigns []string
		few       int // jobs of a campaign of its own, on the first daemon; the backlog is then on the others
		stream    int // jobs a second
	}{
		"one daemon":             {1, []string{"a"}, 0, 0},
		"three daemons":          {3, []string{"a"}, 0, 0},
		"several campaigns":      {1, []string{"a", "b", "c"}, 0, 0},
		"few jobs on one of two": {2, []string{"a"}, 20, 0},
		"jobs that arrive":       {1, []string{"a"}, 0, 10},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(campaign("a", 100), campaign("b", 100), campaign("c", 100), campaign("few", 100))
			several(t, tc.daemons, b, nil, func(t *testing.T, f *fleet) {
				f.receiver.setAnswer(always(delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}))
				backlog, on := 3000, 0
				if tc.stream > 0 {
					backlog = 1
				}
				if tc.few > 0 {
					on = 1
				}
				var left [][]*delivery.Job
				add := func(id string, n int) {
					lane := newPartition(fmt.Sprint("lane/", id, len(left)))
					left = append(left, jobs(lane, delivery.FromLane, id, 0, n))
				}
				for _, id := range tc.campaigns {
					for range tc.daemons - on {
						add(id, backlog/len(tc.campaigns)/(tc.daemons-on))
					}
				}
				for second := range 600 { // what does not fit waits in its lane
					if second == 5 && tc.few > 0 { // the news of the others takes a moment
						f.offer(t, jobs(newPartition("lane/few"), delivery.FromLane, "few", 0, tc.few))
					}
					if tc.stream > 0 {
						add("a", tc.stream)
					}
					for i := range left {
						if len(left[i]) > 0 {
							left[i], _ = f.daemons[(i+on)%tc.daemons].Offer(t.Context(), left[i])
						}
					}
					time.Sleep(time.Second)
				}
				calls := len(f.receiver.history())
				f.receiver.setAnswer(nil)
				time.Sleep(2 * time.Minute)
				atMost(t, f.dead(delivery.ReasonAttemptsExhausted), 0, "dead letters")
				atMost(t, calls, 4000, "calls during the outage")
			})
		})
	}
}

// A job that never gets an answer, with nothing to compare it with, comes to its end, too; but not in an outage of minutes.
func TestTheLastJobIsNotSentForEver(t *testing.T) {
	testservices.Simulation(t)
	for _, n := range []int{1, 4, 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			one(t, newBook(campaign("c", 100)), impatient, func(t *testing.T, f *fleet) {
				f.receiver.setAnswer(always(delivery.Result{Class: delivery.Temporary, By: delivery.ByNobody}))
				f.share(t, "c", n)
				time.Sleep(unansweredFor - time.Minute)
				exactly(t, f.dead(delivery.ReasonAttemptsExhausted), 0, "dead letters before %s", unansweredFor)
				time.Sleep(3 * time.Minute)
				exactly(t, f.dead(delivery.ReasonAttemptsExhausted), n, "dead letters; %d calls", f.count("c"))
			})
		})
	}
}

// In an outage, jobs use up no attempts, however few they are, and one is tried about once a second: no connection, no answer, or that of a gateway.
func TestAnOutageKillsNoJob(t *testing.T) {
	for name, r := range map[string]delivery.Result{
		"unreachable": {Class: delivery.Unreachable},
		"unanswered":  {Class: delivery.Temporary, By: delivery.ByNobody},
	} {
		for _, n := range []int{1, 2, 4, 5, 20, 80} {
			t.Run(fmt.Sprint(name, n), func(t *testing.T) {
				one(t, newBook(campaign("c", 100)), impatient, func(t *testing.T, f *fleet) {
					before := f.share(t, "c", 50)
					time.Sleep(time.Second)
					exactly(t, delivered(before), 50, "delivered before")
					f.receiver.setAnswer(always(r))
					lane := f.offered(t, delivery.FromLane, "c", n)
					time.Sleep(10 * time.Minute)
					if n > 1 { // a job alone is tried as often as its retries say
						within(t, f.count("c")-50, 500, 10*60+40, "calls in ten minutes of outage")
					}
					f.receiver.setAnswer(nil)
					time.Sleep(10 * time.Second)
					exactly(t, lane.count(delivery.OutcomeDelivered), n, "delivered after the outage: %+v", f.outboxes[0].all())
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
				bad[0].Reason, bad[0].EnqueuedAt = string(delivery.ReasonRetry), delivery.StampOf(time.Now().Add(-time.Second))
				f.receiver.setAnswer(answering(r, func(j *delivery.Job) bool { return j.From == delivery.FromTimer }))
				f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 1))
				time.Sleep(500 * time.Millisecond)
				f.offer(t, bad)
				f.share(t, "c", 150)
				time.Sleep(20 * time.Second)
				exactly(t, f.dead(delivery.ReasonAttemptsExhausted), 1, "dead letters of 1; %d calls", f.count("c"))
			})
		})
	}
}
