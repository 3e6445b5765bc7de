package pacer

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"slices"
	"sort"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// fleet runs daemons over one store, one receiver and one catalog in virtual time.
type fleet struct {
	store      *store
	receiver   *receiver
	book       *book
	outboxes   []*outbox
	daemons    []*Pacer
	stop       func()
	timerEvery time.Duration // how often timers are looked at; 0: as often as can be
	partitions int           // that newPartition has made
}

// settings are those of a daemon that is alone, without what a test sets.
func settings() Options {
	o := Defaults()
	o.Backlog, o.Fleet = func(string) int64 { return 0 }, func() int { return 0 }
	o.Owns, o.Shows = func(time.Time) bool { return true }, anyOf
	o.Destinations, o.DestinationReports, o.Missing = nowhere, &reports{}, func(string, *delivery.Job) string { return "" }
	o.Logger, o.Registerer = slog.New(slog.DiscardHandler), prometheus.NewRegistry()
	return o
}

// anyOf says yes to all.
func anyOf(string) bool { return true }

func newFleet(n int, latency func() time.Duration, b *book, adjust func(*Options)) *fleet {
	b.snapshot.LoadedAt = time.Now() // the bubble's time
	f := &fleet{store: newStore(latency), receiver: newReceiver(), book: b}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range n {
		c, out := f.store.client(), &outbox{}
		o := settings()
		o.Limiter, o.Gates, o.Sinks, o.Requeuer, o.Catalog = c, c, daemonSinks{f.receiver, i}, out, b
		o.Backlog = b.backlog
		o.Retry.Jitter = 0
		if adjust != nil {
			adjust(&o)
		}
		p := New(o)
		f.outboxes = append(f.outboxes, out)
		f.daemons = append(f.daemons, p)
		running.Go(func() { _ = p.Run(ctx) })
	}
	f.stop = func() { cancel(); running.Wait() }
	return f
}

// feed keeps the campaign's queue of one daemon filled from a lane until ctx ends.
func (f *fleet) feed(ctx context.Context, daemon int, campaign string, offered *partition) {
	var next int64
	for ctx.Err() == nil {
		refused, err := f.daemons[daemon].Offer(ctx, f.counted(daemon, jobs(offered, delivery.FromLane, campaign, next, 64)))
		if err != nil {
			return
		}
		next += int64(64 - len(refused))
		if len(refused) == 0 {
			continue
		}
		wait := 7 * time.Millisecond
		if len(refused) > 32 { // there is little room: what is offered would mostly be made for nothing
			wait = 29 * time.Millisecond
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
		}
	}
}

// feedAll feeds the campaigns' queues of all daemons until it is stopped.
func (f *fleet) feedAll(campaigns ...string) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var feeding sync.WaitGroup
	for i := range f.daemons {
		for _, id := range campaigns {
			feeding.Go(func() { f.feed(ctx, i, id, newPartition(fmt.Sprintf("lane/%s/%d", id, i))) })
		}
	}
	return func() { cancel(); feeding.Wait() }
}

// change is a rate that holds from a time on, microseconds since the receiver began.
type change struct {
	at   int64
	rate int64
}

// overRate is by how much the arrivals, in order of time, exceed the largest rate in force in any rolling second. A new
// rate counts from its change on, an old one until `grace` after it, when the last slots granted under it are due.
func overRate(sent []arrival, changes []change, grace int64) (worst int64, where int64) {
	first := 0
	for i, a := range sent {
		for sent[first].at <= a.at-1_000_000 {
			first++
		}
		var most int64
		for k, c := range changes {
			end := int64(1) << 62
			if k+1 < len(changes) {
				end = changes[k+1].at + grace
			}
			if c.at <= a.at && end > a.at-1_000_000 {
				most = max(most, c.rate)
			}
		}
		if over := int64(i-first+1) - most; over > worst {
			worst, where = over, a.at
		}
	}
	return worst, where
}

// keepsRate expects no rolling second above the rate by more than over.
func keepsRate(t *testing.T, sent []arrival, rate, over int64) {
	t.Helper()
	more, at := overRate(sent, []change{{0, rate}}, 0)
	atMost(t, more, over, "above %d/s in the second before %d us", rate, at)
}

func sorted(sent []arrival, campaign string) []arrival {
	var list []arrival
	for _, a := range sent {
		if a.campaign == campaign {
			list = append(list, a)
		}
	}
	sort.Slice(list, func(i, j int) bool { return list[i].at < list[j].at })
	return list
}

// plan is one random run of the pacing core.
type plan struct {
	daemons int
	latency time.Duration
	jitter  time.Duration
	seed    uint64
	changes []change
	length  time.Duration
	ramp    func() delivery.Campaign // whose schedule makes the changes; nil: the catalog does
}

func drawPlan(rt *rapid.T) plan {
	pl := plan{
		daemons: rapid.IntRange(1, 5).Draw(rt, "daemons"),
		latency: time.Duration(rapid.IntRange(0, 3000).Draw(rt, "latency")) * time.Microsecond,
		jitter:  time.Duration(rapid.SampledFrom([]int{0, 0, 200, 2000}).Draw(rt, "jitter")) * time.Microsecond,
		seed:    rapid.Uint64().Draw(rt, "seed"),
		length:  4 * time.Second,
	}
	at := int64(0)
	for range rapid.IntRange(1, 5).Draw(rt, "rates") {
		pl.changes = append(pl.changes, change{at, rapid.OneOf(rapid.Int64Range(20, 3000), rapid.Int64Range(20, 300)).Draw(rt, "rate")})
		at += rapid.Int64Range(300_000, 2_000_000).Draw(rt, "after")
	}
	return pl
}

// run plays the plan and says what broke.
func (pl plan) run(t *testing.T) (failure string) {
	synctest.Test(t, func(*testing.T) {
		c := campaign("c", pl.changes[0].rate)
		if pl.ramp != nil {
			c = pl.ramp()
		}
		b := newBook(c)
		f := newFleet(pl.daemons, uniform(pl.seed, pl.latency, pl.jitter), b, nil)
		stop := f.feedAll("c")
		for _, c := range pl.changes[1:] {
			if time.Sleep(time.Duration(c.at)*time.Microsecond - time.Since(f.receiver.began)); pl.ramp == nil {
				b.set(campaign("c", c.rate))
			}
		}
		time.Sleep(pl.length - time.Since(f.receiver.began))
		stop()
		f.stop()
		failure = pl.judge(sorted(f.receiver.history(), "c"))
	})
	return failure
}

func (pl plan) judge(sent []arrival) string {
	// The error of a daemon's estimate of its distance to the store moves a slot by that much, never more.
	allowed := int64(1)
	for _, c := range pl.changes {
		allowed = max(allowed, 1+(c.rate*pl.jitter.Microseconds()+999_999)/1_000_000)
	}
	if over, where := overRate(sent, pl.changes, 80_000); over > allowed {
		return fmt.Sprintf("%d above the largest rate in the second before %d us", over, where)
	}
	// A change may cost the time of a refund and a take, and a spacing. It acts within 200 ms.
	var due, lost float64
	for i, c := range pl.changes {
		end := pl.length.Microseconds()
		if i+1 < len(pl.changes) {
			end = min(end, pl.changes[i+1].at)
		}
		if from := c.at + 200_000; i > 0 && end > from {
			want := float64(c.rate) * float64(end-from) / 1e6
			if got, off := float64(between(sent, from, end)), 1+float64(allowed); got < want-off || got > want+off {
				return fmt.Sprintf("%.0f sent from 200 ms after %d us on, want %.0f", got, c.at, want)
			}
		}
		if end > c.at {
			due += float64(c.rate) * float64(end-c.at) / 1e6
			lost += 2 + float64(c.rate)*0.03
		}
	}
	lost += float64(pl.changes[0].rate) * .2 // the phase of a new timeline
	if got := float64(len(sent)); got < due-lost {
		return fmt.Sprintf("sent %.0f of %.0f", got, due)
	}
	return ""
}

// TestRateIsKept: with any number of daemons, any latency of the store and any changes of the rate, no rolling second carries more than
// the largest rate in force, plus 1. The slots are used.
func TestRateIsKept(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pl := drawPlan(rt)
		if failure := pl.run(t); failure != "" {
			rt.Fatalf("%s\n%+v", failure, pl)
		}
	})
}

// TestSlotsAreUsedAndShared: at a steady rate at least 99.9 % of the slots are used, and saturated daemons get equal
// shares, within 5 %.
func TestSlotsAreUsedAndShared(t *testing.T) {
	testservices.Simulation(t)
	for _, daemons := range []int{1, 3, 5} {
		for _, rate := range []int64{10, 60, 150, 1500} {
			t.Run(fmt.Sprintf("%d daemons at %d per second", daemons, rate), func(t *testing.T) {
				several(t, daemons, newBook(campaign("c", rate)), nil, func(t *testing.T, f *fleet) {
					length := 5 * time.Second
					if rate <= 60 {
						length = 30 * time.Second
					}
					stop := f.feedAll("c")
					time.Sleep(length)
					stop()
					sent := slices.DeleteFunc(sorted(f.receiver.history(), "c"), func(a arrival) bool { return a.at < 1_000_000 || a.at >= length.Microseconds() })
					want := float64(rate) * (length.Seconds() - 1)
					atLeast(t, float64(len(sent)), 0.999*want-1, "of %.0f slots used", want)
					shares := make([]float64, daemons)
					for _, a := range sent {
						shares[a.daemon]++
					}
					fair := float64(len(sent)) / float64(daemons)
					for i, n := range shares {
						if n < 0.95*fair-1 || n > 1.05*fair+1 {
							t.Errorf("daemon %d sent %.0f, a fair share is %.0f: %v", i, n, fair, shares)
						}
					}
					keepsRate(t, sent, rate, 1)
				})
			})
		}
	}
}

// TestChangesOfRateCostLittle: a rate that changes every tenth of a second, to anything between 50 and 5,000/s, is sent for
// nine tenths at least, by one daemon or by three: slots that are handed back are granted again.
func TestChangesOfRateCostLittle(t *testing.T) {
	testservices.Simulation(t)
	const every, warm, length = 100 * time.Millisecond, time.Second, 10 * time.Second
	for _, daemons := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d daemons", daemons), func(t *testing.T) {
			b := newBook(campaign("c", 1000))
			several(t, daemons, b, nil, func(t *testing.T, f *fleet) {
				f.store.latency = uniform(1, 400*time.Microsecond, 200*time.Microsecond)
				random := rand.New(rand.NewPCG(1, 1))
				stop := f.feedAll("c")
				changes, due := []change{{0, 1000}}, 0.0
				until := func(at int64) {
					time.Sleep(time.Duration(at)*time.Microsecond - time.Since(f.receiver.began))
					last := changes[len(changes)-1]
					due += float64(last.rate) * float64(at-max(last.at, warm.Microseconds())) / 1e6
				}
				for at := warm; at < warm+length; at += every {
					next := (at + time.Duration(random.Int64N(int64(every)))).Microseconds()
					until(next)
					changes = append(changes, change{next, int64(50 * math.Pow(100, random.Float64()))})
					b.set(delivery.Campaign{ID: "c", Rate: delivery.PerSecond(changes[len(changes)-1].rate)})
				}
				end := (warm + length).Microseconds()
				until(end)
				stop()
				f.stop()
				all := sorted(f.receiver.history(), "c")
				atLeast(t, float64(between(all, warm.Microseconds(), end)), 0.9*due, "sent of %.0f", due)
				over, _ := overRate(all, changes, 20_000)
				atMost(t, over, 1, "above the rate")
			})
		})
	}
}
