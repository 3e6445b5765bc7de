package pacer

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// A destination that answers 500 for ten minutes costs a job of a backlog at most an attempt. The same holds for a daemon that has only a few of
// the jobs, while another has many. TestOutages has jobs that arrive meanwhile.
func TestABacklogSurvivesAnOutageOfAnswers(t *testing.T) {
	testservices.Simulation(t)
	for name, tc := range map[string]struct {
		daemons   int
		campaigns []string
		few       int // jobs of a campaign of its own, on the first daemon; the backlog is then on the other
	}{
		"one daemon":             {1, []string{"a"}, 0},
		"three daemons":          {3, []string{"a"}, 0},
		"several campaigns":      {1, []string{"a", "b", "c"}, 0},
		"few jobs on one of two": {2, []string{"a"}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBook(campaign("a", 100), campaign("b", 100), campaign("c", 100), campaign("few", 100))
			several(t, tc.daemons, b, nil, func(t *testing.T, f *fleet) {
				f.receiver.setAnswer(always(delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination}))
				var among []int // all
				if tc.few > 0 {
					among = []int{1}
				}
				for _, id := range tc.campaigns {
					f.share(t, id, 3000/len(tc.campaigns), among...)
				}
				time.Sleep(5 * time.Second)
				f.share(t, "few", tc.few, 0)
				time.Sleep(10 * time.Minute)
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

// A sink that fails the jobs of several campaigns and succeeds with none does not work: it is tried once a second. The campaigns take turns then: what
// fails one campaign's jobs does not keep it closed for all.
func TestFailuresOfSeveralCampaignsCloseTheGate(t *testing.T) {
	one(t, newBook(campaign("a", 100), campaign("b", 100), campaign("good", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(failing("a", "b", "good"))
		for _, id := range []string{"a", "b", "good"} {
			f.offered(t, delivery.FromLane, id, 400)
		}
		time.Sleep(2 * time.Second)
		before := len(f.receiver.history())
		atMost(t, before, 60+5, "calls in 2 s of a sink that does not work: 0.2 s of the rates, and one a second")
		time.Sleep(8 * time.Second)
		within(t, len(f.receiver.history())-before, 7, 9, "calls in the next 8 s: one a second")
		before = f.count("good")
		f.receiver.setAnswer(failing("a", "b"))
		time.Sleep(6 * time.Second)
		atLeast(t, f.count("good")-before, 150, "good: sent in 6 s")
	})
}

// TestCampaignsThatFailOneAfterTheOther: a sink that fails one campaign's jobs and then another's, and takes none, does not work, and one line says
// so. That holds also for calls that end by their timeouts, whether those of both end together, or all of one before the first of the other.
func TestCampaignsThatFailOneAfterTheOther(t *testing.T) {
	for _, tc := range []struct {
		deaf  bool
		apart time.Duration
	}{
		{true, 0}, {true, 20 * time.Millisecond}, {true, 50 * time.Millisecond}, {true, 100 * time.Millisecond}, {true, time.Second},
		{false, 1500 * time.Millisecond},
	} {
		said := &lines{}
		one(t, newBook(campaign("a", 100), campaign("b", 100)), said.keep, func(t *testing.T, f *fleet) {
			f.receiver.setAnswer(failing("a", "b"))
			f.receiver.setDeaf(tc.deaf)
			f.offered(t, delivery.FromLane, "a", 100)
			time.Sleep(tc.apart)
			exactly(t, said.count("the sink does not work"), 0, "%s: lines say that the sink does not work while one campaign fails", tc.apart)
			f.offered(t, delivery.FromLane, "b", 100)
			time.Sleep(12 * time.Second)
			exactly(t, said.count("the sink does not work"), 1, "%s apart: lines say that the sink does not work", tc.apart)
			f.receiver.setAnswer(nil)
			f.receiver.setDeaf(false)
			time.Sleep(5 * time.Second)
			atLeast(t, f.count("a")+f.count("b"), 200, "%s apart: jobs were sent", tc.apart)
		})
	}
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

// refusing has the sink refuse every job of the campaign for good.
func refusing(campaign string) func(int, *delivery.Job) delivery.Result {
	refused := delivery.Result{Class: delivery.Permanent, Status: 400, Detail: "HTTP 400"}
	return answering(refused, func(j *delivery.Job) bool { return j.Campaign == campaign })
}

// A campaign whose jobs are all refused is held after fifty; one a second is tried, none of them the same one, and none is
// lost. Others of the sink do not notice. When a job is taken the campaign goes on by itself.
func TestRefusalsInARowHoldACampaign(t *testing.T) {
	var log lines
	one(t, newBook(campaign("c", 200), campaign("good", 50)), log.logged, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(refusing("c"))
		lane := f.offered(t, delivery.FromLane, "c", 300)
		f.share(t, "good", 450)
		time.Sleep(10 * time.Second)
		exactly(t, f.dead(delivery.ReasonRefused), heldRefusals, "dead letters")
		within(t, f.count("c"), heldRefusals+8, heldRefusals+12, "tried in 10 s: %d and one a second", heldRefusals)
		exactly(t, f.count("good"), 450, "good: sent")
		tried := map[string]bool{}
		for _, a := range sorted(f.receiver.history(), "c") {
			if tried[a.id] {
				t.Errorf("%s was tried twice", a.id)
			}
			tried[a.id] = true
		}
		log.says(t, "level=ERROR", 1)
		held := f.troubles(t)
		if len(held) != 1 || held[0].Campaign != "c" || !held[0].Refused {
			t.Errorf("%+v", held)
		}
		f.receiver.setAnswer(nil)
		time.Sleep(4 * time.Second)
		waiting := f.outboxes[0].count(delivery.ToTimer, delivery.ReasonRetry)
		if n := lane.count(delivery.OutcomeDelivered); n+waiting+heldRefusals != 300 || waiting > 15 {
			t.Errorf("%d delivered and %d in timers of 250", n, waiting)
		}
		exactly(t, f.dead(delivery.ReasonRefused), heldRefusals, "dead letters")
		exactly(t, len(f.troubles(t)), 0, "troubles")
	})
}

// While a campaign is held for refusals, none of its jobs is given up for failures either.
func TestAHeldCampaignGivesNoJobUp(t *testing.T) {
	one(t, newBook(campaign("c", 200)), func(o *Options) { o.Retry.MaxAttempts = 1 }, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(refusing("c"))
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 200))
		time.Sleep(2 * time.Second)
		f.receiver.setAnswer(failing("c"))
		time.Sleep(5 * time.Second)
		exactly(t, f.dead(delivery.ReasonAttemptsExhausted), 0, "dead letters of a campaign that is held")
	})
}

// Any change of the campaign's row by people ends the hold at once; a step of its schedule does not.
func TestAChangeEndsTheHold(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*delivery.Campaign)
		want   int // dead letters
	}{
		"a new revision": {func(*delivery.Campaign) {}, 2 * heldRefusals},
		"another rate":   {func(c *delivery.Campaign) { c.Rate = delivery.PerSecond(150) }, 2 * heldRefusals},
		"a rate of a daemon's that spreads what is left": {func(c *delivery.Campaign) {
			c.FinishBy, c.FinishRate, c.Repaced = time.Now().Add(time.Hour), delivery.PerSecond(150), 1
		}, heldRefusals},
		"none": {nil, heldRefusals},
	} {
		t.Run(name, func(t *testing.T) {
			c := campaign("c", 200)
			c.Ramp = &delivery.Ramp{Start: 100_000_000, Add: 1_000_000, Per: time.Second, Every: time.Second}
			one(t, newBook(), nil, func(t *testing.T, f *fleet) {
				c.Ramp.Since = time.Now()
				f.book.set(c)
				f.receiver.setAnswer(refusing("c"))
				f.share(t, "c", 180)
				time.Sleep(5 * time.Second)
				if tc.change != nil {
					next := c
					tc.change(&next)
					f.book.set(next)
				}
				time.Sleep(2 * time.Second)
				exactly(t, f.dead(delivery.ReasonRefused), tc.want, "dead letters")
			})
		})
	}
}
