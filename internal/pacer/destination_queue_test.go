package pacer

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// shops are the destinations of a test: what jobs name, if the sink is not "plain".
type shops struct {
	mu    sync.Mutex
	limit map[string]int
	off   map[string]bool

	version map[string]uint64 // counts changes
}

func (s *shops) Of(sink string) func(*delivery.Job) string {
	if sink == "plain" {
		return nil
	}
	return func(j *delivery.Job) string {
		if sink == "hosts" {
			return "host-" + string(j.Payload)
		}
		return ""
	}
}

func (s *shops) Limits(_, name string) DestinationLimits {
	s.mu.Lock()
	defer s.mu.Unlock()
	return DestinationLimits{InFlight: s.limit[name], Disabled: s.off[name], Version: 1 + s.version[name]}
}

// disable disables a destination, or enables it.
func (s *shops) disable(name string, off bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off == nil {
		s.off = map[string]bool{}
	}
	s.off[name] = off
}

// renew has a destination be another one.
func (s *shops) renew(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.version == nil {
		s.version = map[string]uint64{}
	}
	s.version[name]++
}

// street is the gates of destinations as several daemons are told of them, every second.
type street struct {
	sinks Gates
	mu    sync.Mutex
	gates []delivery.Gate
}

func (s *street) MoveGates(ctx context.Context, gates []delivery.Gate) ([]string, error) {
	s.mu.Lock()
	for _, g := range gates {
		if g.Destination != "" {
			s.gates = append(s.gates, g)
		}
	}
	s.mu.Unlock()
	return s.sinks.MoveGates(ctx, gates)
}

// run tells the daemons what is new every second until ctx ends.
func (s *street) run(ctx context.Context, daemons []*Pacer) {
	told := 0
	for ctx.Err() == nil {
		s.mu.Lock()
		fresh := s.gates[told:]
		told = len(s.gates)
		s.mu.Unlock()
		for _, p := range daemons {
			p.SeeDestinations(fresh)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// named has the jobs name destinations.
func named(list []*delivery.Job, names ...string) []*delivery.Job {
	for i, j := range list {
		j.Destination = names[i%len(names)]
	}
	return list
}

// nowhere are the destinations of sinks that have none.
func nowhere(string) func(*delivery.Job) string { return nil }

// withShops gives a pacer destinations.
func withShops(s *shops) func(*Options) {
	return func(o *Options) { o.Destinations, o.DestinationLimits = s.Of, s.Limits }
}

// down has the jobs fail whose destinations begin with a prefix.
func down(prefix string, r delivery.Result) func(int, *delivery.Job) delivery.Result {
	return answering(r, func(j *delivery.Job) bool { return strings.HasPrefix(j.Destination, prefix) })
}

// The failures that a destination may show.
var (
	dead500      = delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination, Detail: "500"}
	dead502      = delivery.Result{Class: delivery.Temporary, By: delivery.ByNobody, Detail: "502"}
	unreachable  = delivery.Result{Class: delivery.Unreachable, Scope: delivery.ScopeDestination}
	unauthorized = delivery.Result{Class: delivery.Misconfigured, Scope: delivery.ScopeDestination}
	gone410      = delivery.Result{Class: delivery.Permanent, Detail: "410"}
	slowDown     = delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeDestination, RetryAfter: 30 * time.Second}
)

// TestDeadAndDeafDestinationsCostTheOthersNothing: of 10,000 destinations, 100 do not work and 10 never answer. Jobs of the others are sent as
// fast as their campaign may send.
func TestDeadAndDeafDestinationsCostTheOthersNothing(t *testing.T) {
	testservices.Simulation(t)
	const destinations, rate, jobsEach = 10_000, 4000, 2
	for name, r := range map[string]delivery.Result{"no connection": unreachable, "500": dead500} {
		t.Run(name, func(t *testing.T) {
			one(t, newBook(campaign("c", rate)), withShops(&shops{}), func(t *testing.T, f *fleet) {
				f.receiver.max = 512
				f.receiver.setAnswer(down("dead", r))
				f.receiver.deaf = func(j *delivery.Job) bool { return strings.HasPrefix(j.Destination, "deaf") }
				lane := newPartition("lane/0")
				list := jobs(lane, delivery.FromLane, "c", 0, jobsEach*destinations)
				for i, j := range list {
					switch n := i % destinations; {
					case n%100 == 7:
						j.Destination = fmt.Sprint("dead-", n)
					case n%1000 == 11:
						j.Destination = fmt.Sprint("deaf-", n)
					default:
						j.Destination = fmt.Sprint("shop-", n)
					}
				}
				rand.New(rand.NewPCG(1, 1)).Shuffle(len(list), func(i, k int) { list[i], list[k] = list[k], list[i] })
				others := len(list) * (destinations - 110) / destinations
				begun := time.Now()
				f.push(t, list)
				for range 1000 {
					if lane.count(delivery.OutcomeDelivered) >= others {
						break
					}
					time.Sleep(10 * time.Millisecond)
				}
				took, ideal := time.Since(begun), time.Duration(others)*time.Second/rate
				if n := lane.count(delivery.OutcomeDelivered); n != others || took > ideal*102/100+100*time.Millisecond {
					t.Errorf("%d of %d of the others in %s, ideal is %s", n, others, took, ideal)
				}
				atMost(t, len(f.daemons[0].destinations.byKey), maxDestinations+512, "destinations are remembered")
			})
		})
	}
}

// push offers jobs of a lane until all are accepted.
func (f *fleet) push(t *testing.T, list []*delivery.Job) {
	t.Helper()
	if err := f.pushTo(t.Context(), 0, list, 5*time.Millisecond); err != nil {
		t.Fatal(err)
	}
}

// pushTo offers jobs of a lane to a daemon piece by piece, and those that are refused again after a pause.
func (f *fleet) pushTo(ctx context.Context, daemon int, list []*delivery.Job, pause time.Duration) error {
	for len(list) > 0 {
		n := min(len(list), 64)
		refused, err := f.daemons[daemon].Offer(ctx, list[:n])
		if err != nil {
			return err
		}
		list = list[n-len(refused):]
		if len(refused) > 0 {
			time.Sleep(pause)
		}
	}
	return nil
}

// toShop offers n jobs of c for the shop from a lane of their own.
func (f *fleet) toShop(t *testing.T, daemon, n int) (lane *partition) {
	t.Helper()
	lane = f.newPartition(delivery.FromLane)
	f.offerTo(t, daemon, named(jobs(lane, delivery.FromLane, "c", 0, n), "shop"))
	return lane
}

// played runs a fleet of daemons with destinations, which tell each other of gates, and timers.
func played(t *testing.T, daemons int, b *book, s *shops, play func(t *testing.T, f *fleet, timer *partition)) {
	t.Helper()
	playedWith(t, daemons, b, s, nil, play)
}

// playedWith is played with more options.
func playedWith(t *testing.T, daemons int, b *book, s *shops, more func(*Options), play func(t *testing.T, f *fleet, timer *partition)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		shared := &street{}
		f := newFleet(daemons, uniform(3, 500*time.Microsecond, 0), b, func(o *Options) {
			withShops(s)(o)
			shared.sinks = o.Gates // any daemon's are as good
			if o.Gates = shared; more != nil {
				more(o)
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		var running sync.WaitGroup
		timer := newPartition("timer/0")
		running.Go(func() { shared.run(ctx, f.daemons) })
		f.timerEvery = 100 * time.Millisecond
		for i := range f.daemons {
			defer f.timersAt(ctx, i, timer)()
		}
		play(t, f, timer)
		cancel()
		running.Wait()
		f.stop()
	})
}

// tried is how many jobs were sent to destinations that begin with a prefix.
func (f *fleet) tried(prefix string) (n int) {
	for _, a := range f.receiver.history() {
		if strings.HasPrefix(a.destination, prefix) {
			n++
		}
	}
	return n
}

// TestADeadDestinationWaitsAlone: a destination that does not work is tried rarely, whatever it answers, and the others of its campaign
// and sink get their jobs. When it works again, all of its jobs are delivered, and its failure has used up no attempt of theirs.
func TestADeadDestinationWaitsAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		r        delivery.Result
		tries    int // in the first minute
		attempts int // that a job may use up
	}{
		"no connection": {unreachable, 5 + 7, 0},
		"a gateway":     {dead502, 5 + 7, 0},
		"500":           {dead500, 5 + 9, 2},
		"credentials":   {unauthorized, 5 + 7, 0},
	} {
		t.Run(name, func(t *testing.T) {
			played(t, 1, newBook(campaign("c", 100), campaign("d", 100)), &shops{}, func(t *testing.T, f *fleet, timer *partition) {
				f.receiver.setAnswer(down("dead", tc.r))
				lane := f.pushed(t, delivery.FromLane, "c", 400, "dead", "a", "b", "e")
				other := f.pushed(t, delivery.FromLane, "d", 200, "a", "b")
				time.Sleep(4 * time.Second)
				exactly(t, lane.count(delivery.OutcomeDelivered), 300, "of the campaign are delivered after 4 s")
				exactly(t, other.count(delivery.OutcomeDelivered), 200, "others are delivered after 4 s")
				atMost(t, other.counts().twice+lane.counts().twice, 0, "jobs were settled twice")
				time.Sleep(56 * time.Second)
				within(t, f.tried("dead"), 7, tc.tries, "tries in a minute")
				for _, a := range f.receiver.history() {
					atMost(t, a.attempt, tc.attempts, "attempts that %s has used up", a.id)
				}
				exactly(t, fmt.Sprint(f.troubles(t)), fmt.Sprint([]delivery.Trouble{{Campaign: "c", Destination: "dead"}}), "troubles of campaigns")
				exactly(t, testutil.ToFloat64(f.daemons[0].metrics.closedDestinations.WithLabelValues("default")), 1, "destinations are closed")
				waits := f.inMemory(t, "c")
				exactly(t, waits.Jobs, waits.Early, "jobs count as ready, and all that is left is for a closed destination")
				f.receiver.setAnswer(nil)
				time.Sleep(maxProbeEvery + mostApart + 30*time.Second)
				exactly(t, lane.count(delivery.OutcomeDelivered)+timer.count(delivery.OutcomeDelivered), 400, "delivered in the end")
				exactly(t, testutil.ToFloat64(f.daemons[0].metrics.closedDestinations.WithLabelValues("default")), 0, "destinations are closed in the end")
			})
		})
	}
}

// TestABacklogForADestinationThatAnswers500: each job tried while a destination answers 500 loses an attempt. It is tried with jobs that
// have not been tried, as long as there are some.
func TestABacklogForADestinationThatAnswers500(t *testing.T) {
	testservices.Simulation(t)
	for _, daemons := range []int{1, 2} {
		t.Run(fmt.Sprint(daemons), func(t *testing.T) {
			playedWith(t, daemons, newBook(campaign("c", 100)), &shops{}, nil, func(t *testing.T, f *fleet, timer *partition) {
				f.receiver.setAnswer(down("dead", dead500))
				lane := f.pushed(t, delivery.FromLane, "c", 200, "dead")
				time.Sleep(time.Hour)
				tries := map[string]int{}
				for _, a := range f.receiver.history() {
					tries[a.id]++
				}
				atMost(t, f.dead(delivery.ReasonAttemptsExhausted), 0, "dead letters")
				atLeast(t, len(tries), 20, "jobs were tried")
				f.receiver.setAnswer(nil)
				time.Sleep(maxProbeEvery + 2*mostApart)
				exactly(t, lane.count(delivery.OutcomeDelivered)+timer.count(delivery.OutcomeDelivered), 200, "delivered in the end")
			})
		})
	}
}

// TestAThrottledDestinationWaitsOnEveryDaemon: for as long as it asks, nothing is sent to it, and the others are. When one daemon finds that it takes
// jobs again, the others need not wait until they try themselves.
func TestAThrottledDestinationWaitsOnEveryDaemon(t *testing.T) {
	played(t, 2, newBook(campaign("c", 200)), &shops{}, func(t *testing.T, f *fleet, timer *partition) {
		f.receiver.setAnswer(down("busy", slowDown))
		lane := f.pushed(t, delivery.FromLane, "c", 6, "busy", "a")
		time.Sleep(1500 * time.Millisecond)
		f.offerTo(t, 1, named(jobs(lane, delivery.FromLane, "c", 100, 100), "busy", "a"))
		f.push(t, named(jobs(lane, delivery.FromLane, "c", 200, 100), "busy", "a"))
		time.Sleep(25 * time.Second)
		atMost(t, f.tried("busy"), 16, "sent to a destination that asks to wait")
		exactly(t, lane.count(delivery.OutcomeDelivered), 103, "others are delivered")
		f.receiver.setAnswer(nil)
		f.daemons[1].SeeDestinations([]delivery.Gate{{Sink: "default", Destination: "busy", At: time.Now()}}) // the other one has found that it is open
		fresh := f.newPartition(delivery.FromLane)
		f.offerTo(t, 1, named(jobs(fresh, delivery.FromLane, "c", 0, 10), "busy"))
		time.Sleep(time.Second)
		exactly(t, fresh.count(delivery.OutcomeDelivered), 10, "delivered within a second of that")
		time.Sleep(time.Minute + mostApart)
		exactly(t, lane.count(delivery.OutcomeDelivered)+timer.count(delivery.OutcomeDelivered), 206, "delivered in the end")
		for _, a := range f.receiver.history() {
			exactly(t, a.attempt, 0, "attempts that %s has used up", a.id)
		}
	})
}

// TestADestinationThatOftenAsksForAMoment: all jobs of a campaign have one destination, which now and then asks for a second, and fails for
// three later on. No job waits for long because it was unlucky several times.
func TestADestinationThatOftenAsksForAMoment(t *testing.T) {
	played(t, 2, newBook(campaign("c", 200)), &shops{}, func(t *testing.T, f *fleet, timer *partition) {
		const n, asks = 3000, 60
		asked, fails := map[string]bool{}, false
		var mu sync.Mutex
		f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
			mu.Lock()
			defer mu.Unlock()
			var i int
			if _, err := fmt.Sscanf(j.ID, "lane/0/%d", &i); err != nil {
				t.Error(err)
			}
			switch {
			case fails:
				return unauthorized
			case i%(n/asks) == 0 && !asked[j.ID]:
				asked[j.ID] = true
				return delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeDestination, RetryAfter: time.Second}
			}
			return delivery.Result{Class: delivery.Delivered}
		})
		fail := func(is bool) { mu.Lock(); defer mu.Unlock(); fails = is }
		lane := f.pushed(t, delivery.FromLane, "c", n, "all")
		time.Sleep(40 * time.Second)
		fail(true)
		time.Sleep(3 * time.Second)
		fail(false)
		time.Sleep((asks + n/200 + 10) * time.Second)
		exactly(t, lane.count(delivery.OutcomeDelivered)+timer.count(delivery.OutcomeDelivered), n, "are delivered, of which %d were asked to wait", len(asked))
	})
}

// TestADisabledDestinationsJobsWait: until it is enabled, also those that were in their queue before.
func TestADisabledDestinationsJobsWait(t *testing.T) {
	s := &shops{}
	played(t, 1, newBook(campaign("c", 200)), s, func(t *testing.T, f *fleet, timer *partition) {
		lane := f.pushed(t, delivery.FromLane, "c", 100, "shop", "a")
		s.disable("shop", true)
		time.Sleep(5 * time.Second)
		before := f.tried("shop")
		atMost(t, before, 5, "sent to a disabled destination")
		exactly(t, lane.count(delivery.OutcomeDelivered), 50+before, "delivered in all")
		time.Sleep(time.Hour)
		exactly(t, f.tried("shop"), before, "sent to it after an hour")
		s.disable("shop", false)
		s.renew("shop")
		time.Sleep(mostApart + 10*time.Second)
		exactly(t, lane.count(delivery.OutcomeDelivered)+timer.count(delivery.OutcomeDelivered), 100, "delivered in the end")
	})
}

// TestCallsToADestinationAreBounded: no more are in flight than it may have, the others pass, and its own go as fast as its calls allow, in order.
func TestCallsToADestinationAreBounded(t *testing.T) {
	s := &shops{limit: map[string]int{"small": 2}}
	played(t, 1, newBook(campaign("c", 500)), s, func(t *testing.T, f *fleet, timer *partition) {
		f.receiver.setLatency(100 * time.Millisecond)
		lane := f.pushed(t, delivery.FromLane, "c", 1000, "small", "a", "b", "d", "e")
		time.Sleep(2200 * time.Millisecond)
		atLeast(t, lane.count(delivery.OutcomeDelivered), 800, "delivered, of 800 others")
		time.Sleep(2800 * time.Millisecond)
		within(t, f.tried("small"), 75, 102, "sent to a destination in 5 s that takes 20 a second")
		exactly(t, f.receiver.mostTo["small"], 2, "calls in flight")
		var order []string
		for _, a := range f.receiver.history() {
			if a.destination == "small" {
				order = append(order, a.id)
			}
		}
		for i := range order[:40] {
			if want := fmt.Sprint("lane/0/", 5*i); order[i] != want {
				t.Fatalf("%s was sent instead of %s: %v", order[i], want, order[:40])
			}
		}
		time.Sleep(20 * time.Second)
		exactly(t, lane.count(delivery.OutcomeDelivered)+timer.count(delivery.OutcomeDelivered), 1000, "delivered in the end")
	})
}

// TestRefusalsOfOneDestinationHoldItAlone: the campaign goes on, and is held if several destinations refuse its jobs.
func TestRefusalsOfOneDestinationHoldItAlone(t *testing.T) {
	for name, tc := range map[string]struct {
		names []string
		dead  int
		held  bool
	}{
		"one":     {[]string{"gone"}, heldRefusals, false},
		"several": {[]string{"gone-1", "gone-2", "gone-3", "gone-4", "gone-5", "gone-6"}, heldRefusals, true},
	} {
		t.Run(name, func(t *testing.T) {
			played(t, 1, newBook(campaign("c", 100)), &shops{}, func(t *testing.T, f *fleet, _ *partition) {
				f.receiver.setAnswer(down("gone", gone410))
				lane, other := newPartition("lane/0"), newPartition("lane/1")
				f.push(t, named(jobs(lane, delivery.FromLane, "c", 0, 200), tc.names...))
				time.Sleep(5 * time.Second)
				list, err := f.daemons[0].Troubles(t.Context())
				list = slices.DeleteFunc(list, func(one delivery.Trouble) bool { return one.Destination != "" })
				if err != nil || (len(list) > 0) != tc.held {
					t.Errorf("troubles: %+v, %v", list, err)
				}
				f.push(t, named(jobs(other, delivery.FromLane, "c", 0, 100), "fine"))
				time.Sleep(10 * time.Second)
				exactly(t, other.count(delivery.OutcomeDelivered), 100, "for another destination are delivered")
				if n := f.outboxes[0].count(delivery.ToDead, delivery.ReasonRefused); n < tc.dead || n > tc.dead+len(tc.names)*2 && !tc.held {
					t.Errorf("%d dead letters", n)
				}
			})
		})
	}
}

// TestADestinationThatIsNotThereIsHeldByAll: if the first answers of a destination all say that nothing is there, five jobs of a daemon die at
// most, and no more once the others are told. Once it has taken a job, such an answer is the job's own.
func TestADestinationThatIsNotThereIsHeldByAll(t *testing.T) {
	for name, tc := range map[string]struct {
		status int
		before bool // a job is taken first
		dead   int
	}{
		"404": {404, false, absentRefusals}, "410": {410, false, absentRefusals},
		"400": {400, false, heldRefusals}, "404 after a delivery": {404, true, heldRefusals},
	} {
		t.Run(name, func(t *testing.T) {
			played(t, 3, newBook(campaign("c", 60)), &shops{}, func(t *testing.T, f *fleet, _ *partition) {
				absent := delivery.Result{Class: delivery.Permanent, Status: tc.status, Detail: fmt.Sprint("HTTP ", tc.status)}
				if tc.before {
					f.toShop(t, 0, 1)
					time.Sleep(time.Second)
				}
				f.receiver.setAnswer(down("shop", absent))
				f.toShop(t, 0, 200)
				time.Sleep(4 * time.Second)
				exactly(t, f.dead(delivery.ReasonRefused), tc.dead, "dead letters")
				f.toShop(t, 1, 60)
				f.toShop(t, 2, 60)
				time.Sleep(4 * time.Second)
				exactly(t, f.dead(delivery.ReasonRefused), tc.dead, "dead letters after the other daemons were told")
				f.receiver.setAnswer(nil)
				time.Sleep(30 * time.Second)
				p := f.toShop(t, 1, 10)
				time.Sleep(2 * time.Second)
				exactly(t, p.count(delivery.OutcomeDelivered), 10, "delivered when it works")
			})
		})
	}
}

// TestAFleetSendsFewJobsToWhatIsNotThere: the more daemons, the fewer jobs each of them sends until it holds a destination that has only said that
// nothing is there, also if all begin at once.
func TestAFleetSendsFewJobsToWhatIsNotThere(t *testing.T) {
	for daemons, most := range map[int]int{1: 5, 3: 6, 10: 20} {
		for _, took := range []time.Duration{5 * time.Millisecond, 700 * time.Millisecond} {
			t.Run(fmt.Sprintf("%d, %s", daemons, took), func(t *testing.T) {
				known := func(o *Options) { o.Fleet = func() int { return daemons } }
				playedWith(t, daemons, newBook(campaign("c", 500)), &shops{}, known, func(t *testing.T, f *fleet, _ *partition) {
					f.receiver.setLatency(took)
					f.receiver.setAnswer(down("shop", delivery.Result{Class: delivery.Permanent, Status: 404, Detail: "HTTP 404"}))
					for i := range f.daemons {
						f.toShop(t, i, 100)
					}
					time.Sleep(900 * time.Millisecond)
					exactly(t, f.tried("shop"), most, "jobs are sent at once, from %d daemons", daemons)
					time.Sleep(time.Minute)
					exactly(t, f.dead(delivery.ReasonRefused), most, "dead letters")
				})
			})
		}
	}
}

// TestFewFirstCallsHoldNothingUp: a destination that does not answer promptly gets as many calls as without other daemons, and one that has
// refused jobs as a small fleet asks for is still held when the fleet has grown.
func TestFewFirstCallsHoldNothingUp(t *testing.T) {
	var daemons atomic.Int64
	grown := func(o *Options) { o.Fleet = func() int { return int(daemons.Load()) } }
	daemons.Store(10)
	playedWith(t, 1, newBook(campaign("c", 500)), &shops{}, grown, func(t *testing.T, f *fleet, _ *partition) {
		f.receiver.setDeaf(true)
		f.toShop(t, 0, 100)
		time.Sleep(2 * time.Second)
		exactly(t, f.tried("shop"), silentFailures, "calls to a destination that does not answer")
	})
	daemons.Store(1)
	playedWith(t, 1, newBook(campaign("c", 500)), &shops{}, grown, func(t *testing.T, f *fleet, _ *partition) {
		f.receiver.setAnswer(down("shop", delivery.Result{Class: delivery.Permanent, Status: 404, Detail: "HTTP 404"}))
		f.toShop(t, 0, 3)
		time.Sleep(2 * time.Second)
		daemons.Store(10)
		f.toShop(t, 0, 100)
		time.Sleep(2 * time.Second)
		exactly(t, f.dead(delivery.ReasonRefused), absentRefusals, "dead letters")
	})
}

// TestAnswersOfDestinationsAreCounted, but for those of jobs that were not sent.
func TestAnswersOfDestinationsAreCounted(t *testing.T) {
	played(t, 1, newBook(campaign("c", 100)), &shops{}, func(t *testing.T, f *fleet, _ *partition) {
		f.receiver.setAnswer(func(_ int, j *delivery.Job) delivery.Result {
			switch {
			case j.Destination == "bad":
				return gone410
			case j.Offset >= 8:
				return delivery.Result{Class: delivery.Rejected}
			}
			return delivery.Result{Class: delivery.Delivered}
		})
		f.pushed(t, delivery.FromLane, "c", 12, "good", "bad")
		time.Sleep(2 * time.Second)
		p := f.daemons[0]
		for labels, want := range map[[2]string]float64{{"good", "delivered"}: 4, {"good", "rejected"}: 2, {"bad", "failed"}: 6} {
			exactly(t, testutil.ToFloat64(p.answered.answers.WithLabelValues("default", labels[0], labels[1])), want, "%v", labels)
		}
	})
}

// TestCountedDestinationsAreBounded: those that answer most have series of their own, which begin at 0, and the sum loses nothing.
func TestCountedDestinationsAreBounded(t *testing.T) {
	c := newDestinationCounts(prometheus.NewRegistry())
	now := instant{local: 1}
	answer := func(name string, n int) {
		for range n {
			c.count(destinationKey{"s", name}, delivery.Result{Class: delivery.Delivered, Took: time.Second}, now)
		}
	}
	value := func(name string) float64 {
		return testutil.ToFloat64(c.answers.WithLabelValues("s", name, "delivered"))
	}
	for i := range maxCounted {
		answer(fmt.Sprint("shop-", i), 10+i)
	}
	answer("large", 1000)
	for i := range 2 * maxRest {
		answer(fmt.Sprint("small-", i), 1)
	}
	if n, series := value(others), testutil.CollectAndCount(c.answers); n != 1000+2*maxRest || series != maxCounted+1 || len(c.rest) > maxRest {
		t.Errorf("%v of others, %d series, %d others", n, series, len(c.rest))
	}
	now.local += countedEvery.Microseconds()
	answer("large", 7)
	answer("shop-0", 5)
	answer("bad\xff", 1)
	for name, want := range map[string]float64{"large": 7, "shop-1": 11, others: 1000 + 2*maxRest + 6} {
		exactly(t, value(name), want, "%s", name)
	}
	exactly(t, testutil.CollectAndCount(c.answers), maxCounted+1, "series")
	c.count(destinationKey{"s", "large"}, delivery.Result{Class: delivery.Interrupted}, now)
	c.count(destinationKey{"s", "large"}, delivery.Result{Class: delivery.Withheld}, now)
	exactly(t, value("large"), 7, "after what is no answer")
	c.count(destinationKey{"s", "large"}, dead500, now)
	list := (&Pacer{answered: c}).Destinations()
	at := slices.IndexFunc(list, func(d DestinationReading) bool { return d.Name == "large" })
	if len(list) != maxCounted || at < 0 || list[at].Answers[delivery.Delivered] != 7 || list[at].Took.Total() != 8 ||
		list[at].Failure.Detail != dead500.Detail {
		t.Errorf("%d of %d: %+v", at, len(list), list)
	}
}

// TestJobsApartTakeLittleMemory: of many jobs for a destination that does not work, few wait in memory, and none for long.
func TestJobsApartTakeLittleMemory(t *testing.T) {
	played(t, 1, newBook(campaign("c", 1000)), &shops{}, func(t *testing.T, f *fleet, _ *partition) {
		f.receiver.setAnswer(down("dead", unreachable))
		in := f.pushed(t, delivery.FromIngress, "c", 3000, "dead")
		for range 20 {
			time.Sleep(500 * time.Millisecond)
			if n := f.inMemory(t).Jobs; n > shutLine+silentFailures && in.counts().settled > 1000 {
				t.Errorf("%d jobs wait in memory", n)
			}
		}
		exactly(t, in.counts().settled, 3000, "offsets are closed after 10 s")
	})
}

// TestDestinationsThatSinksFind: a destination that a job does not name is found in it by its sink, and forgotten with the sink.
func TestDestinationsThatSinksFind(t *testing.T) {
	c := campaign("c", 100)
	c.Sink = "hosts"
	played(t, 1, newBook(c), &shops{limit: map[string]int{"host-x": 1}}, func(t *testing.T, f *fleet, _ *partition) {
		f.receiver.setLatency(time.Second)
		list := jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 30)
		for i, j := range list {
			j.Payload = []byte([]string{"x", "y", "z"}[i%3])
		}
		f.push(t, list)
		time.Sleep(1500 * time.Millisecond)
		exactly(t, f.tried("host-x"), 2, "were sent to the busy one")
		c.Sink = "plain"
		f.book.set(c)
		time.Sleep(20 * time.Second)
		atMost(t, f.tried("host-x"), 3, "were sent to the host of another sink")
		exactly(t, len(f.receiver.history()), 30, "sent")
	})
}

// TestABlockingCampaignWaitsForItsDestinationInIngress: a destination that asks for short waits again and again does not move the jobs of a
// campaign that keeps them in ingress, however long that lasts.
func TestABlockingCampaignWaitsForItsDestinationInIngress(t *testing.T) {
	played(t, 1, newBook(blocking("c", 100)), &shops{}, func(t *testing.T, f *fleet, timer *partition) {
		f.receiver.setAnswer(down("busy", delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeDestination, RetryAfter: 2 * time.Second}))
		ingress := f.pushed(t, delivery.FromIngress, "c", 20, "busy")
		time.Sleep(time.Minute)
		if moved := f.outboxes[0].all(); len(moved) > 0 || ingress.counts().settled > 0 {
			t.Errorf("%d jobs were moved, %d offsets are closed", len(moved), ingress.counts().settled)
		}
		f.daemons[0].Relieve(source{ingress, delivery.FromIngress}, 10) // the window is nearly full
		time.Sleep(10 * time.Second)
		exactly(t, f.outboxes[0].count(delivery.ToTimer, delivery.ReasonDestination), 10, "jobs, the older ones, were moved for the sake of others")
		f.receiver.setAnswer(nil)
		time.Sleep(time.Minute)
		exactly(t, ingress.count(delivery.OutcomeDelivered)+timer.count(delivery.OutcomeDelivered), 20, "jobs arrived")
	})
}

// TestABlockingCampaignAndItsDestinations: a destination takes no jobs of a campaign that keeps its jobs in ingress. Jobs for another
// destination and for another campaign on the same partition go on. Few jobs wait in memory, and all arrive once the destination works
// again.
func TestABlockingCampaignAndItsDestinations(t *testing.T) {
	const seconds, each = 12, 12
	throttled := func(d time.Duration) delivery.Result {
		return delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeDestination, RetryAfter: d}
	}
	for name, tc := range map[string]struct {
		answer delivery.Result // of the destination; delivered if it is zero
		limit  int             // calls at once
		off    bool
		deaf   bool
		absent bool
	}{
		"no connection":          {answer: unreachable},
		"500":                    {answer: dead500},
		"credentials":            {answer: unauthorized},
		"asks for a second":      {answer: throttled(time.Second)},
		"asks for half a minute": {answer: slowDown},
		"asks for five minutes":  {answer: throttled(5 * time.Minute)},
		"out of calls":           {limit: 1},
		"never answers":          {deaf: true},
		"disabled":               {off: true},
		"unknown":                {absent: true},
	} {
		t.Run(name, func(t *testing.T) {
			var absent atomic.Bool
			absent.Store(tc.absent)
			s := &shops{limit: map[string]int{"far": tc.limit}}
			missing := func(o *Options) {
				o.Missing = func(_ string, j *delivery.Job) string {
					if absent.Load() && j.Destination == "far" {
						return "there is none"
					}
					return ""
				}
			}
			book := newBook(blocking("c", 200), campaign("d", 200))
			playedWith(t, 1, book, s, missing, func(t *testing.T, f *fleet, timer *partition) {
				s.disable("far", tc.off)
				if tc.answer.Class != 0 {
					f.receiver.setAnswer(down("far", tc.answer))
				}
				if tc.deaf {
					f.receiver.deaf = func(j *delivery.Job) bool { return j.Destination == "far" }
				}
				if tc.limit > 0 {
					f.receiver.setLatency(200 * time.Millisecond)
				}
				ingress := newPartition("jobs/0")
				first, most := int64(0), int64(0)
				for second := range seconds {
					begun := time.Now()
					list := append(named(jobs(ingress, delivery.FromIngress, "c", first, 2*each), "far", "fine"),
						jobs(ingress, delivery.FromIngress, "d", first+2*each, each)...)
					first += 3 * each
					exactly(t, len(f.hand(t, ingress, list, time.Second)), 0, "second %d: refused, so that the partition stands still", second)
					time.Sleep(time.Until(begun.Add(time.Second)))
					most = max(most, f.inMemory(t, "c").Jobs, f.inMemory(t, "d").Jobs)
					atLeast(t, f.count("d"), second*each, "second %d: of the other campaign were sent", second)
					atLeast(t, f.tried("fine"), second*each, "second %d: for the other destination were sent", second)
				}
				atMost(t, most, shutLine+each, "jobs wait in memory")
				if tc.off {
					exactly(t, f.tried("far"), 0, "sent while it was disabled")
				}
				absent.Store(false)
				f.receiver.setAnswer(nil)
				f.receiver.deaf = nil
				s.disable("far", false)
				s.renew("far")
				n := 0
				for end := time.Now().Add(20 * time.Minute); n < 3*seconds*each && time.Now().Before(end); time.Sleep(time.Second) {
					n = ingress.count(delivery.OutcomeDelivered) + timer.count(delivery.OutcomeDelivered)
				}
				exactly(t, n, 3*seconds*each, "jobs are delivered in the end")
				atMost(t, ingress.counts().twice+timer.counts().twice, 0, "offsets settled twice")
			})
		})
	}
}

// TestACampaignWithFewCallsAtABusyDestination: two campaigns send to one destination, which takes all. One of them may have one call in
// flight (max_in_flight 1), which is enough for its rate: it keeps its rate, whether the other one has one call there or ten.
func TestACampaignWithFewCallsAtABusyDestination(t *testing.T) {
	testservices.Simulation(t)
	for _, rate := range []int64{0, 10, 100, 200} {
		few, many := campaign("few", 10), campaign("many", max(rate, 1))
		few.MaxInFlight = 1
		one(t, newBook(few, many), withShops(&shops{}), func(t *testing.T, f *fleet) {
			f.receiver.max = 64
			f.receiver.setLatency(50 * time.Millisecond)
			lanes := []*partition{newPartition("few"), newPartition("many")}
			var next [2]int64
			for range 300 { // 30 s
				for i, c := range []string{"few", "many"} {
					if i == 1 && rate == 0 {
						continue
					}
					for range 40 {
						r := f.offer(t, f.counted(0, named(jobs(lanes[i], delivery.FromLane, c, next[i], 1), "shop")))
						if r > 0 {
							break
						}
						next[i]++
					}
				}
				time.Sleep(100 * time.Millisecond)
			}
			a := f.count("few")
			atLeast(t, a, 270, "sent with one call at a time of 300 jobs, beside another at %d/s", rate)
		})
	}
}

// TestAJobThatWaitsForItsDestinationSaysSo: also if it is read before its time, as long as it has no later time of its own.
func TestAJobThatWaitsForItsDestinationSaysSo(t *testing.T) {
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	for _, tc := range []struct {
		notBefore time.Time
		why       delivery.Reason
	}{{time.Time{}, delivery.ReasonDestination}, {now.Add(-time.Hour), delivery.ReasonDestination}, {now.Add(time.Hour), delivery.ReasonNotBefore}} {
		j, c := &delivery.Job{}, campaign("c", 10)
		j.Due, j.NotBefore, j.Reason = now.Add(time.Minute), tc.notBefore, string(delivery.ReasonDestination)
		if at, why := readyAt(j, &c, now); why != tc.why || at.Before(j.Due) {
			t.Errorf("not before %s: %s at %s", tc.notBefore, why, at)
		}
	}
}
