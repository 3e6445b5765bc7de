package pacer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// impatient has failed jobs tried again soon, and given up after four attempts.
func impatient(o *Options) { o.Retry.MaxAttempts, o.Retry.Initial = 4, 200*time.Millisecond }

// lines are what daemons log.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) count(what string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.text.String(), what)
}

// says expects n lines, or parts of them.
func (l *lines) says(t *testing.T, what string, n int) {
	t.Helper()
	if got := l.count(what); got != n {
		l.mu.Lock()
		defer l.mu.Unlock()
		t.Errorf("%d times %q in the log, want %d:\n%s", got, what, n, l.text.String())
	}
}

// keep keeps what is logged.
func (l *lines) keep(o *Options) { o.Logger = slog.New(slog.NewTextHandler(l, nil)) }

// logged is impatient, too.
func (l *lines) logged(o *Options) {
	impatient(o)
	l.keep(o)
}

// share offers n jobs of a campaign from lanes, each in turn to another of these daemons, as soon as there is room; without
// any, to all.
func (f *fleet) share(t *testing.T, campaign string, n int, among ...int) (lanes []*partition) {
	t.Helper()
	if len(among) == 0 {
		for d := range f.daemons {
			among = append(among, d)
		}
	}
	for i, d := range among {
		lane := newPartition(fmt.Sprintf("lane/%s/%d", campaign, d))
		lanes = append(lanes, lane)
		var mine []*delivery.Job
		for _, j := range jobs(lane, delivery.FromLane, campaign, 0, n) {
			if int(j.Offset)%len(among) == i {
				mine = append(mine, j)
			}
		}
		mine = f.counted(d, mine)
		go func() {
			_ = f.pushTo(t.Context(), d, mine, 50*time.Millisecond)
		}()
	}
	return lanes
}

// dead is how many jobs became dead letters for the reason.
func (f *fleet) dead(why delivery.Reason) (n int) {
	for _, o := range f.outboxes {
		n += o.count(delivery.ToDead, why)
	}
	return n
}

func delivered(lanes []*partition) (n int) {
	for _, l := range lanes {
		n += l.count(delivery.OutcomeDelivered)
	}
	return n
}

// nth answers every nth offset of a lane with r, and takes the others.
func nth(n int64, r delivery.Result) func(int, *delivery.Job) delivery.Result {
	return answering(r, func(j *delivery.Job) bool { return j.Offset%n == 0 })
}

// Jobs that always fail are given up after their attempts: all of a campaign or of several, the last ones, and some among others.
func TestJobsThatAlwaysFailComeToTheirEnd(t *testing.T) {
	fails := func(by delivery.Answerer) delivery.Result { return delivery.Result{Class: delivery.Temporary, By: by} }
	lump := fails(delivery.ByDestination)
	for _, daemons := range []int{1, 3} {
		for name, tc := range map[string]struct {
			campaigns  []string
			jobs       int // of each
			answer     func(int, *delivery.Job) delivery.Result
			dead, good int
			minutes    time.Duration // when they are all that is left, one a second is tried
		}{
			"all of a campaign":    {[]string{"a"}, 111, always(lump), 111, 0, 10},
			"all of three":         {[]string{"a", "b", "c"}, 37, always(lump), 111, 0, 10},
			"the last ones":        {[]string{"a"}, 600, answering(lump, func(j *delivery.Job) bool { return j.Offset >= 489 }), 111, 489, 10},
			"some, not answered":   {[]string{"a"}, 1000, nth(9, fails(delivery.ByNobody)), 112, 888, 30},
			"some, by whomever":    {[]string{"a"}, 1000, nth(9, fails(delivery.ByUnknown)), 112, 888, 30},
			"some, by destination": {[]string{"a"}, 1000, nth(9, lump), 112, 888, 30},
		} {
			t.Run(fmt.Sprint(daemons, " ", name), func(t *testing.T) {
				b := newBook(campaign("a", 100), campaign("b", 100), campaign("c", 100))
				several(t, daemons, b, impatient, func(t *testing.T, f *fleet) {
					f.receiver.setAnswer(tc.answer)
					var lanes []*partition
					for _, id := range tc.campaigns {
						lanes = append(lanes, f.share(t, id, tc.jobs)...)
					}
					time.Sleep(tc.minutes * time.Minute)
					exactly(t, f.dead(delivery.ReasonAttemptsExhausted), tc.dead, "dead letters")
					exactly(t, delivered(lanes), tc.good, "delivered")
				})
			})
		}
	}
}

// Jobs whose receiver never answers cost the others of their campaign no more than the rate that their attempts use up.
func TestJobsThatAreNeverAnswered(t *testing.T) {
	several(t, 3, newBook(campaign("c", 100)), impatient, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(nth(100, delivery.Result{Class: delivery.Temporary, By: delivery.ByNobody}))
		f.receiver.hangs = func(j *delivery.Job) bool { return j.Offset%100 == 0 }
		lanes := f.share(t, "c", 3000)
		time.Sleep(33 * time.Second) // 30 s for the first attempts, 0.9 s for the others of 1 % of them
		exactly(t, delivered(lanes), 2970, "delivered")
		time.Sleep(20 * time.Minute)
		exactly(t, f.dead(delivery.ReasonAttemptsExhausted), 30, "dead letters")
	})
}

// Whatever a sink says of pacer's credentials, no job is given up; the gate is closed and probed, and one Error line says it.
func TestMisconfiguredSink(t *testing.T) {
	var log lines
	several(t, 3, newBook(campaign("c", 500)), log.logged, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(always(delivery.Result{Class: delivery.Misconfigured, Status: 401, Detail: "HTTP 401"}))
		lanes := f.share(t, "c", 3000)
		time.Sleep(2 * time.Second)
		before := len(f.receiver.history())
		time.Sleep(8 * time.Second)
		within(t, len(f.receiver.history())-before, 6, 9, "calls in 8 s of a sink that refuses the credentials: one a second")
		f.receiver.setAnswer(nil)
		time.Sleep(8 * time.Second)
		moved := 0
		for _, o := range f.outboxes {
			moved += o.count(delivery.ToTimer, delivery.ReasonRetry)
		}
		if n := delivered(lanes); n+moved != 3000 || moved > 200 {
			t.Errorf("%d delivered and %d in timers of 3000", n, moved)
		}
		log.says(t, "level=ERROR", 1)
		for _, why := range delivery.DeadReasons {
			exactly(t, f.dead(why), 0, "dead letters")
		}
	})
}

// A job that alone is refused for credentials waits alone, ever longer, and others are sent as if it were not there.
func TestOneJobThatIsRefusedForCredentials(t *testing.T) {
	var log lines
	one(t, newBook(campaign("c", 100)), log.logged, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(nth(10, delivery.Result{Class: delivery.Misconfigured, Status: 403}))
		lane := f.offered(t, delivery.FromLane, "c", 200)
		time.Sleep(2200 * time.Millisecond)
		exactly(t, lane.count(delivery.OutcomeDelivered), 180, "delivered")
		exactly(t, f.outboxes[0].count(delivery.ToTimer, delivery.ReasonRetry), 20, "refused ones are in timers")
		log.says(t, "level=WARN", 1)
	})
}

// The first refusal of credentials in a minute is one line, which names the sink and what to do.
func TestTheFirstRefusalOfCredentials(t *testing.T) {
	var log lines
	one(t, newBook(campaign("c", 100)), log.logged, func(t *testing.T, f *fleet) {
		refused := delivery.Result{Class: delivery.Misconfigured, Status: 401, Detail: "HTTP 401"}
		f.receiver.setAnswer(answering(refused, func(j *delivery.Job) bool { return j.Offset != 1 }))
		lane := newPartition("lane/0")
		send := func(offset int64, want string) {
			t.Helper()
			before := log.count("level=")
			f.offer(t, jobs(lane, delivery.FromLane, "c", offset, 1))
			time.Sleep(500 * time.Millisecond)
			if n := log.count("level=") - before; n != 1 && want != "" || n != 0 && want == "" {
				t.Errorf("%d lines", n)
			}
			if want != "" && log.count(want) == 0 {
				t.Errorf("not %q:\n%s", want, log.text.String())
			}
		}
		send(0, "correct the sink's configuration, or the destination\" sink=default campaign=c")
		time.Sleep(2 * logEvery)
		send(1, "")
		send(2, "sink=default campaign=c job=lane/0/2")
		send(3, "")
	})
}

// A destination that asks for a day is tried again after max_retry_after, by one job a second, and a line says so.
func TestALongWaitIsNotBelieved(t *testing.T) {
	testservices.Simulation(t)
	var log lines
	one(t, newBook(campaign("a", 10), campaign("b", 10)), func(o *Options) {
		log.logged(o)
		o.MaxRetryAfter = map[string]time.Duration{"default": time.Minute}
	}, func(t *testing.T, f *fleet) {
		f.receiver.setAnswer(always(delivery.Result{Class: delivery.Throttled, RetryAfter: 24 * time.Hour}))
		defer f.timers(t.Context(), 0)()
		f.offer(t, jobs(newPartition("lane/a"), delivery.FromLane, "a", 0, 3))
		time.Sleep(59 * time.Second)
		within(t, len(f.receiver.history()), 3, 10, "calls in the first minute")
		log.says(t, "asked=24h0m0s wait=1m0s", 1)
		time.Sleep(6 * time.Minute)
		within(t, f.count("a"), 8, 20, "tries in seven minutes: one a minute in the end")
	})
}

// TestALongThrottleIsATrouble: the sink has asked a campaign, or a destination, to wait for more than a minute and has taken nothing meanwhile.
// Then that is why nothing is sent. A short wait is no trouble.
func TestALongThrottleIsATrouble(t *testing.T) {
	for scope, want := range map[delivery.Scope]delivery.Trouble{
		delivery.ScopeCampaign:    {Campaign: "c"},
		delivery.ScopeDestination: {Campaign: "c", Destination: "busy"},
	} {
		one(t, newBook(campaign("c", 100)), withShops(&shops{}), func(t *testing.T, f *fleet) {
			f.receiver.setAnswer(always(delivery.Result{Class: delivery.Throttled, Scope: scope, RetryAfter: 20 * time.Second}))
			defer f.timers(t.Context(), 0)()
			f.offer(t, named(jobs(newPartition("lane/c"), delivery.FromLane, "c", 0, 100), want.Destination))
			time.Sleep(30 * time.Second)
			exactly(t, len(f.troubles(t)), 0, "troubles after half a minute")
			time.Sleep(time.Minute)
			exactly(t, fmt.Sprint(f.troubles(t)), fmt.Sprint([]delivery.Trouble{want}), "troubles")
			f.receiver.setAnswer(nil)
			time.Sleep(time.Minute)
			exactly(t, len(f.troubles(t)), 0, "troubles once jobs are taken")
		})
	}
}

// TestALimitOfASecondIsNotLogged: a sink that takes 20 jobs in each second of the 100 that are sent, and asks to wait until the next, is no news.
func TestALimitOfASecondIsNotLogged(t *testing.T) {
	for _, scope := range []delivery.Scope{delivery.ScopeSink, delivery.ScopeCampaign} {
		var log lines
		one(t, newBook(campaign("c", 100)), log.keep, func(t *testing.T, f *fleet) {
			left, begun := 20, time.Now()
			f.receiver.setAnswer(func(int, *delivery.Job) delivery.Result {
				if left--; time.Since(begun) > time.Second {
					left, begun = 20, time.Now()
				}
				if left < 0 {
					return delivery.Result{Class: delivery.Throttled, Scope: scope, RetryAfter: time.Second}
				}
				return delivery.Result{Class: delivery.Delivered}
			})
			defer f.timers(t.Context(), 0)()
			f.stream(t.Context(), t, "c", 0, 20, time.Now().Add(30*time.Second))
			log.says(t, "level=", 0)
		})
	}
}

// unheard is a store that hears of no gate for a while.
type unheard struct {
	Gates
	until time.Time

	mu     sync.Mutex
	closed []delivery.Gate
}

func (u *unheard) MoveGates(ctx context.Context, gates []delivery.Gate) ([]string, error) {
	if time.Now().Before(u.until) {
		return nil, errors.New("it does not answer")
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.closed = slices.DeleteFunc(slices.Clone(gates), func(g delivery.Gate) bool { return g.Until.IsZero() })
	return u.Gates.MoveGates(ctx, gates)
}

// list returns the gates that are closed.
func (u *unheard) list() []delivery.Gate {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.closed
}

// TestAWaitThatTheStoreHasNotHeardOf is kept by the daemon whose sink asked for it, which tells the store with its next try.
func TestAWaitThatTheStoreHasNotHeardOf(t *testing.T) {
	var gates *unheard
	adjust := func(o *Options) {
		gates = &unheard{Gates: o.Gates, until: time.Now().Add(5 * time.Second)}
		o.Gates = gates
	}
	one(t, newBook(campaign("c", 100)), adjust, func(t *testing.T, f *fleet) {
		f.receiver.max = 4
		f.receiver.setAnswer(always(delivery.Result{Class: delivery.Throttled, RetryAfter: 4 * time.Minute}))
		f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 100))
		for range 20 {
			time.Sleep(time.Second)
			f.daemons[0].SeeGates(gates.list())
		}
		atMost(t, f.count("c"), 4+5, "requests in twenty seconds, of which five are tries")
		exactly(t, len(gates.list()), 1, "gates are closed at the store")
		f.receiver.setAnswer(nil)
		time.Sleep(time.Minute)
		exactly(t, len(gates.list()), 0, "gates are closed at the store once it takes jobs again")
		atLeast(t, f.count("c"), 100, "sent")
	})
}

// TestNewJobsGoOnceAGateIsOpened: at once, whatever this daemon has found of the sink before.
func TestNewJobsGoOnceAGateIsOpened(t *testing.T) {
	for name, answer := range map[string]delivery.Result{
		"asked to wait":     {Class: delivery.Throttled, RetryAfter: 4 * time.Minute},
		"was not reachable": {Class: delivery.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			one(t, newBook(campaign("c", 10)), nil, func(t *testing.T, f *fleet) {
				f.receiver.setAnswer(always(answer))
				f.offer(t, jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 10))
				time.Sleep(40 * time.Second)
				f.receiver.setAnswer(nil)
				f.store.mu.Lock()
				f.store.model.CloseGate(f.store.now(), "default", f.store.now()+180_000*millisecond, delivery.GateThrottled)
				f.store.mu.Unlock()
				closed := []delivery.Gate{{Sink: "default", Until: time.Now().Add(3 * time.Minute)}}
				for range 10 {
					time.Sleep(time.Second)
					f.daemons[0].SeeGates(closed)
				}
				f.store.mu.Lock()
				f.store.model.OpenGate("default")
				f.store.mu.Unlock()
				f.daemons[0].SeeGates(nil)
				fresh := newPartition("in/0")
				f.offer(t, jobs(fresh, delivery.FromIngress, "c", 0, 10))
				time.Sleep(3 * time.Second)
				exactly(t, fresh.count(delivery.OutcomeDelivered), 10, "new jobs that are sent")
			})
		})
	}
}

// TestScopesOfFailures: failures that are about a recipient stop none but its jobs, those about a campaign only that campaign, and those about the
// sink or its destination all campaigns of that sink. For as long as the failures last a job is tried now and then, and afterwards all goes on.
func TestScopesOfFailures(t *testing.T) {
	for _, class := range []delivery.ResultClass{delivery.Throttled, delivery.Unreachable, delivery.Misconfigured} {
		for _, tc := range []struct {
			about        string
			scope        delivery.Scope
			mine, others int // jobs that are sent meanwhile
		}{
			{"a recipient", delivery.ScopeRecipient, 100, 100}, {"the campaign", delivery.ScopeCampaign, 0, 100},
			{"the destination", delivery.ScopeDestination, 0, 0}, {"the sink", delivery.ScopeSink, 0, 0},
		} {
			t.Run(fmt.Sprint(class, ", about ", tc.about), func(t *testing.T) {
				far := campaign("far", 100)
				far.Sink = "another"
				one(t, newBook(campaign("c", 100), campaign("other", 100), far), nil, func(t *testing.T, f *fleet) {
					f.receiver.setAnswer(answering(delivery.Result{Class: class, Scope: tc.scope, RetryAfter: 4 * time.Second}, func(j *delivery.Job) bool {
						return j.Campaign != "far" && tc.others == 0 || j.Campaign == "c" && (tc.mine == 0 || j.Offset < 10)
					}))
					lane := f.offered(t, delivery.FromLane, "c", 10)
					time.Sleep(400 * time.Millisecond)
					f.offer(t, jobs(lane, delivery.FromLane, "c", 10, 100))
					other := f.offered(t, delivery.FromLane, "other", 100)
					f.offered(t, delivery.FromLane, "far", 100)
					before := f.count("c")
					time.Sleep(1100 * time.Millisecond)
					within(t, f.count("c")-before, tc.mine, tc.mine+12, "jobs of the campaign were sent")
					within(t, f.count("other"), tc.others, tc.others+2, "jobs of another campaign were sent")
					exactly(t, f.count("far"), 100, "jobs to another sink were sent")
					f.receiver.setAnswer(nil)
					time.Sleep(8 * time.Second)
					atLeast(t, lane.count(delivery.OutcomeDelivered), 100, "jobs of the campaign were taken in the end")
					exactly(t, other.count(delivery.OutcomeDelivered), 100, "jobs of another campaign were taken in the end")
					keepsRate(t, sorted(f.receiver.history(), "other"), 100, 1)
				})
			})
		}
	}
}

// TestAContradictedFailureClosesNothing: calls that hang fail after their sink has taken another job that was sent later. Other jobs go on.
func TestAContradictedFailureClosesNothing(t *testing.T) {
	one(t, newBook(campaign("hangs", 20), campaign("fine", 100)), nil, func(t *testing.T, f *fleet) {
		f.receiver.hangs = func(j *delivery.Job) bool { return j.Campaign == "hangs" }
		f.receiver.setAnswer(answering(delivery.Result{Class: delivery.Unreachable, Scope: delivery.ScopeSink}, func(j *delivery.Job) bool {
			return j.Campaign == "hangs"
		}))
		fine := newPartition("lane/fine")
		f.offer(t, jobs(newPartition("lane/hangs"), delivery.FromLane, "hangs", 0, 10)) // until 0.45 s, and they fail until 1.45 s
		time.Sleep(600 * time.Millisecond)
		f.offer(t, jobs(fine, delivery.FromLane, "fine", 0, 1))
		time.Sleep(850 * time.Millisecond)
		f.offer(t, jobs(fine, delivery.FromLane, "fine", 1, 20))
		time.Sleep(400 * time.Millisecond)
		exactly(t, f.count("fine"), 21, "jobs were sent")
	})
}

// A normal refusal settles its job as rejected: no retry, an attempt that counts, and a sign that the sink works. However many come in a row, they
// hold nothing. It is no dead letter, unless the sink is set to keep what is rejected. The destination's answer goes with the job.
func TestRejectedJobs(t *testing.T) {
	for _, keep := range []bool{false, true} {
		one(t, newBook(campaign("c", 200)), nil, func(t *testing.T, f *fleet) {
			rejected := delivery.Result{Class: delivery.Rejected, Keep: keep, Provider: &delivery.Provider{Code: "UNREGISTERED"}}
			f.receiver.setAnswer(answering(rejected, func(j *delivery.Job) bool { return j.Offset%2 == 0 || j.Offset >= 300 }))
			lane := newPartition("lane/0")
			list := f.counted(0, jobs(lane, delivery.FromLane, "c", 0, 500))
			f.push(t, list)
			time.Sleep(4 * time.Second)
			exactly(t, lane.counts().settled, 500, "settled")
			for _, j := range list {
				if taken := j.Offset%2 == 1 && j.Offset < 300; j.Attempt != 1 || (j.Call.Provider != nil) == taken {
					t.Fatalf("%s: attempt %d, %+v", j.ID, j.Attempt, j.Call)
				}
			}
			settled, letters := delivery.Settled{delivery.OutcomeDelivered: 150, delivery.OutcomeRejected: 350}, 0
			if keep {
				settled, letters = delivery.Settled{delivery.OutcomeDelivered: 150, delivery.OutcomeDead: 350}, 350
			}
			exactly(t, len(f.outboxes[0].all()), letters, "written elsewhere")
			exactly(t, f.dead(delivery.ReasonRejected), letters, "dead letters")
			exactly(t, f.daemons[0].Tallies()[0].Settled, settled, "counted")
			exactly(t, len(f.troubles(t)), 0, "troubles")
		})
	}
}
