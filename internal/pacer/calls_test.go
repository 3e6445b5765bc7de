package pacer

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// flight is a campaign whose calls are bounded, alone in one daemon, with more jobs than it can send.
type flight struct {
	calls  int
	rate   int64
	length time.Duration
	lasts  func() time.Duration // a call
	during func(f *fleet)       // what else happens; may be nil
}

// flown is what became of it.
type flown struct {
	sent      []arrival // after the first second
	most      int       // calls in flight
	forfeited float64
	behind    bool // sending counted as behind for want of CPU
}

func (x *flight) run(t *testing.T) (got flown) {
	c := delivery.Campaign{ID: "c", Rate: delivery.PerSecond(x.rate), MaxInFlight: x.calls}
	one(t, newBook(c), nil, func(t *testing.T, f *fleet) {
		f.receiver.latency = x.lasts
		stop := f.feedAll("c")
		if x.during != nil {
			x.during(f)
		}
		time.Sleep(time.Second + x.length - time.Since(f.receiver.began))
		stop()
		f.stop()
		for _, a := range f.receiver.history() {
			if a.at >= 1_000_000 && a.at < 1_000_000+x.length.Microseconds() {
				got.sent = append(got.sent, a)
			}
		}
		got.most, got.forfeited = f.receiver.mostTo[""], testutil.ToFloat64(f.daemons[0].metrics.forfeited)
		got.behind = f.daemons[0].sends.lateAt != 0
	})
	return got
}

// TestCallsNotSlotsAreBounded: with N calls of a latency L, a campaign sends N/L jobs a second, or its rate if that is less.
// Never are there more calls, and few slots are given up.
func TestCallsNotSlotsAreBounded(t *testing.T) {
	testservices.Simulation(t)
	for _, lasts := range []time.Duration{
		500 * time.Microsecond, 640 * time.Microsecond, 5 * time.Millisecond, 14 * time.Millisecond, 30 * time.Millisecond,
		100 * time.Millisecond, 2 * time.Second,
	} {
		for _, calls := range []int{1, 2, 8, 64} {
			for _, rate := range []int64{40, 1500, 10_000} {
				t.Run(fmt.Sprintf("%d calls of %v at %d per second", calls, lasts, rate), func(t *testing.T) {
					x := flight{calls: calls, rate: rate, length: max(time.Second, 10*lasts), lasts: func() time.Duration { return lasts }}
					got := x.run(t)
					possible := min(float64(rate), float64(calls)/lasts.Seconds()) * x.length.Seconds()
					atLeast(t, float64(len(got.sent)), 0.9*possible-1, "sent of %.0f", possible)
					atMost(t, got.most, calls, "calls at once")
					atMost(t, got.forfeited, 0.4*possible+1, "slots given up while %d jobs were sent", len(got.sent))
					if got.behind {
						t.Error("sending counts as behind for want of CPU")
					}
				})
			}
		}
	}
}

// TestCallsOfUnequalLength: the same if calls last from no time to twice their mean, and that changes tenfold, up and down.
func TestCallsOfUnequalLength(t *testing.T) {
	testservices.Simulation(t)
	rapid.Check(t, func(rt *rapid.T) {
		mean := float64(rapid.IntRange(500, 5000).Draw(rt, "latency in microseconds")) * float64(time.Microsecond)
		calls := rapid.IntRange(1, 16).Draw(rt, "calls")
		rate := rapid.Int64Range(200, 5000).Draw(rt, "rate")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1))
		var now float64
		x := flight{calls: calls, rate: rate, length: 3 * time.Second, lasts: func() time.Duration { return time.Duration(random.Float64() * 2 * now) }}
		now = mean
		x.during = func(f *fleet) {
			for _, to := range []float64{10 * mean, mean} {
				time.Sleep(time.Second)
				f.receiver.mu.Lock()
				now = to
				f.receiver.mu.Unlock()
			}
		}
		got := x.run(t)
		if got.most > calls {
			rt.Fatalf("%d calls at once", got.most)
		}
		var parts [3]float64
		for _, a := range got.sent {
			parts[min(2, a.at/1_000_000-1)]++
		}
		for i, lasts := range []float64{10 * mean, mean, mean} {
			possible := min(float64(rate), float64(calls)*float64(time.Second)/lasts)
			possible *= 1 - 20*mean/float64(time.Second) // calls that began before the change
			if parts[i] < 0.7*possible-4 {
				rt.Fatalf("%.0f sent of %.0f in second %d", parts[i], possible, i+1)
			}
		}
	})
}

// TestSlotsThatAwaitACall: slots that pass because no call is free are no sign of a busy machine, so that nothing that gives way to
// sending stops for them.
func TestSlotsThatAwaitACall(t *testing.T) {
	one(t, newBook(campaign("c", 500)), nil, func(t *testing.T, f *fleet) {
		f.receiver.max = 16
		f.receiver.setLatency(time.Second)
		f.offer(t, jobs(newPartition("lanes/3"), delivery.FromLane, "c", 0, 900))
		time.Sleep(10500 * time.Millisecond)
		behind := make(chan bool)
		p := f.daemons[0]
		p.inbox.do(func(now instant) { behind <- p.sends.behind(now) })
		if <-behind || f.outboxes[0].throttled > 0 {
			t.Errorf("relaying has been stopped %d times", f.outboxes[0].throttled)
		}
		atLeast(t, f.count("c"), 160, "jobs are sent")
	})
}

// TestSinkIsKeptBusy: campaigns whose rates are beyond what their sink can take keep its calls in use, although slots are lost
// that come due while none is free. Equal campaigns get equal parts, and slow ones their rates.
func TestSinkIsKeptBusy(t *testing.T) {
	testservices.Simulation(t)
	const (
		million    = 1_000_000
		warm, ends = 250 * time.Millisecond, 750 * time.Millisecond
	)
	for _, tc := range []struct {
		calls int
		lasts time.Duration // a call
		takes time.Duration // a take
		rates []int64       // of the campaigns
		least float64       // of what is possible
	}{
		{64, 4 * time.Millisecond, time.Millisecond, []int64{million}, 0.97},
		{64, 4 * time.Millisecond, 4 * time.Millisecond, []int64{million}, 0.97},
		{64, 4 * time.Millisecond, 8 * time.Millisecond, []int64{million}, 0.9},
		{256, 14 * time.Millisecond, time.Millisecond, []int64{million}, 0.97},
		{64, 4 * time.Millisecond, time.Millisecond, []int64{million, million, million}, 0.97},
		{64, 4 * time.Millisecond, time.Millisecond, []int64{million, 100, 1000}, 0.97},
	} {
		t.Run(fmt.Sprintf("%d calls of %v, takes of %v, rates %v", tc.calls, tc.lasts, tc.takes, tc.rates), func(t *testing.T) {
			b, ids := newBook(), []string(nil)
			for i, rate := range tc.rates {
				ids = append(ids, fmt.Sprint(i))
				b.set(campaign(ids[i], rate))
			}
			one(t, b, nil, func(t *testing.T, f *fleet) {
				f.store.latency = func() time.Duration { return tc.takes / 2 }
				f.receiver.max = tc.calls
				f.receiver.setLatency(tc.lasts)
				stop := f.feedAll(ids...)
				time.Sleep(ends - time.Since(f.receiver.began))
				stop()
				f.stop()
				sent, all := map[string]float64{}, 0.0
				for _, a := range f.receiver.history() {
					if a.at >= warm.Microseconds() && a.at < ends.Microseconds() {
						sent[a.campaign]++
						all++
					}
				}
				possible := float64(tc.calls) / tc.lasts.Seconds() * (ends - warm).Seconds()
				atLeast(t, all, tc.least*possible, "sent of %.0f", possible)
				for i, rate := range tc.rates {
					if n, part := sent[fmt.Sprint(i)], min(float64(rate)*(ends-warm).Seconds(), possible/float64(len(tc.rates))); n < 0.9*tc.least*part {
						t.Errorf("%.0f sent of %.0f of campaign %d", n, part, i)
					}
				}
			})
		})
	}
}

// TestSendersAreReused: as many goroutines as calls at once, the same again for the next calls, some of many afterwards, none in the end.
func TestSendersAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		var begun, ended atomic.Int64
		s := newSenders(func(dispatch) {
			begun.Add(1)
			time.Sleep(time.Second)
			ended.Add(1)
		}, &running)
		for _, calls := range []int{20, 20, 2 * maxIdle} {
			for range calls {
				s.start(dispatch{})
			}
			synctest.Wait()
			if begun.Load() != ended.Load()+int64(calls) {
				t.Fatalf("%d begun, %d ended: a call waits for another", begun.Load(), ended.Load())
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if s.idle != min(calls, maxIdle) {
				t.Fatalf("%d goroutines after %d calls at once", s.idle, calls)
			}
		}
		s.start(dispatch{})
		s.close()
		running.Wait()
		if n := int64(41 + 2*maxIdle); begun.Load() != n || ended.Load() != n {
			t.Errorf("%d begun, %d ended of %d", begun.Load(), ended.Load(), n)
		}
	})
}
