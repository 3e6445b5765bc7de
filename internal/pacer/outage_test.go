package pacer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// failing has the sink fail every job of the campaigns.
func failing(campaigns ...string) func(int, *delivery.Job) delivery.Result {
	return answering(dead502, func(j *delivery.Job) bool { return slices.Contains(campaigns, j.Campaign) })
}

// A campaign whose jobs all fail has its circuit open: one a second is tried and no attempt is used up. The others on its sink do not
// notice, whether the same daemon sends them or, where it has nothing else to send, another.
func TestOneCampaignsFailuresAreItsOwn(t *testing.T) {
	for _, daemons := range []int{1, 2} {
		t.Run(fmt.Sprint(daemons, " daemons"), func(t *testing.T) {
			said := &lines{}
			several(t, daemons, newBook(campaign("bad", 100), campaign("good", 100)), said.keep, func(t *testing.T, f *fleet) {
				f.receiver.setAnswer(failing("bad"))
				f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "bad", 0, 200))
				f.offerTo(t, daemons-1, jobs(newPartition("in/0"), delivery.FromIngress, "good", 0, 450))
				time.Sleep(5 * time.Second)
				good := sorted(f.receiver.history(), "good")
				exactly(t, len(good), 450, "good: sent in 5 s")
				within(t, f.count("bad"), 20, 30, "bad: tried in 5 s: 0.2 s of its rate, and one a second")
				for _, a := range f.receiver.history() {
					atMost(t, a.attempt, 1, "%s: attempts used up", a.id)
				}
				takes, unknown := said.count("this campaign's jobs and takes others"), said.count("is not known to take others")
				if daemons == 1 && (takes != 1 || unknown != 0) || daemons == 2 && (takes != 0 || unknown != 1) { // one that has no others
					t.Errorf("%d lines say that it takes others, and %d that this is not known", takes, unknown)
				}
				f.receiver.setAnswer(nil)
				before := f.count("bad")
				time.Sleep(2 * time.Second)
				atLeast(t, f.count("bad")-before, 80, "bad: sent in the 2 s after the sink takes its jobs")
			})
		})
	}
}

// A sink that fails the jobs of several campaigns and succeeds with none does not work: it is tried once a second.
func TestFailuresOfSeveralCampaignsCloseTheGate(t *testing.T) {
	one(t, newBook(campaign("a", 100), campaign("b", 100), campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(failing("a", "b", "c"))
		lane := newPartition("lane/0")
		for i, id := range []string{"a", "b", "c"} {
			f.offer(t, jobs(lane, delivery.FromLane, id, int64(i*100), 100))
		}
		time.Sleep(2 * time.Second)
		before := len(f.receiver.history())
		if before > 60+5 { // 0.2 s of their rates, and one a second
			t.Errorf("%d calls in 2 s of a sink that does not work", before)
		}
		time.Sleep(8 * time.Second)
		within(t, len(f.receiver.history())-before, 7, 9, "calls in the next 8 s: one a second")
	})
}

// TestCampaignsThatFailOneAfterTheOther: a sink that fails one campaign's jobs and then another's, and takes none, does not work.
func TestCampaignsThatFailOneAfterTheOther(t *testing.T) {
	said := &lines{}
	one(t, newBook(campaign("a", 100), campaign("b", 100)), said.keep, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(failing("a", "b"))
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "a", 0, 100))
		time.Sleep(1500 * time.Millisecond)
		atMost(t, said.count("the sink does not work"), 0, "lines say that the sink does not work while one campaign fails")
		f.offer(t, jobs(newPartition("lane/1"), delivery.FromLane, "b", 0, 100))
		time.Sleep(500 * time.Millisecond)
		exactly(t, said.count("the sink does not work"), 1, "lines say that the sink does not work")
		f.receiver.setAnswer(nil)
		time.Sleep(5 * time.Second)
		atLeast(t, f.count("a")+f.count("b"), 200, "jobs were sent")
	})
}

// TestCampaignsThatAreNotAnswered: the calls of two campaigns begin together and end together by their timeouts. The sink does not work, also if all
// of one campaign have ended when the first of the other does.
func TestCampaignsThatAreNotAnswered(t *testing.T) {
	for _, apart := range []time.Duration{0, 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		said := &lines{}
		one(t, newBook(campaign("a", 100), campaign("b", 100)), said.keep, func(t *testing.T, f *fleet) {
			f.receiver.setDeaf(true)
			f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "a", 0, 100))
			time.Sleep(apart)
			f.offer(t, jobs(newPartition("lane/1"), delivery.FromLane, "b", 0, 100))
			time.Sleep(12 * time.Second)
			exactly(t, said.count("the sink does not work"), 1, "%s apart: lines say that the sink does not work", apart)
		})
	}
}

// While a breaker is half-open, the campaigns take turns: what fails one campaign's jobs does not keep it closed for all.
func TestCampaignsTakeTurnsWhileHalfOpen(t *testing.T) {
	one(t, newBook(campaign("a", 100), campaign("b", 100), campaign("good", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(failing("a", "b", "good"))
		lane := newPartition("lane/0")
		for i, id := range []string{"a", "b", "good"} {
			f.offer(t, jobs(lane, delivery.FromLane, id, int64(i*400), 400))
		}
		time.Sleep(3 * time.Second)
		before := f.count("good")
		f.receiver.setAnswer(failing("a", "b"))
		time.Sleep(6 * time.Second)
		atLeast(t, f.count("good")-before, 150, "good: sent in 6 s")
	})
}

// A job that comes back from a timer goes ahead of a window full of others, and does not go to the end of a lane.
func TestReturnedJobsGoAhead(t *testing.T) {
	const rate = 20
	one(t, newBook(campaign("c", rate)), func(o *Options) { o.MaxOpenAge = time.Second }, func(t *testing.T, f *fleet) {
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 2*rate))
		time.Sleep(100 * time.Millisecond)
		timer := newPartition("timer/0")
		returned := jobs(timer, delivery.FromTimer, "c", 1000, rate/2)
		f.offer(t, returned)
		time.Sleep(time.Second)
		exactly(t, timer.count(delivery.OutcomeDelivered), len(returned), "sent within a second: %+v", timer.counts())
	})
}

// Many jobs that fail again and again take turns with the others of their campaign, whose circuit stays closed.
func TestReturnedJobsTakeTurns(t *testing.T) {
	one(t, newBook(campaign("c", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(answering(delivery.Result{Class: delivery.Temporary, Detail: "500"}, func(j *delivery.Job) bool {
			return j.From == delivery.FromTimer
		}))
		lane, timer := newPartition("lane/0"), newPartition("timer/0")
		list := jobs(timer, delivery.FromTimer, "c", 0, 100)
		for _, j := range list {
			j.Attempt = 1
		}
		f.offer(t, list)
		f.offer(t, jobs(lane, delivery.FromLane, "c", 0, 100))
		time.Sleep(2200 * time.Millisecond)
		atLeast(t, lane.count(delivery.OutcomeDelivered), 99, "others delivered")
		for _, j := range f.receiver.history() {
			atMost(t, j.attempt, 2, "%s: attempts", j.id)
		}
	})
}
