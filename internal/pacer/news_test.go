package pacer

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
)

// TestADaemonWithAnOldCatalogKeepsNewRates: a daemon that has all jobs of a campaign and cannot read the catalog sends at
// the rate that the other daemons know, soon after it has changed, though none of these has a job of it.
func TestADaemonWithAnOldCatalogKeepsNewRates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		old, b := newBook(campaign("c", 100)), newBook(campaign("c", 100))
		old.snapshot.LoadedAt = time.Now()
		cut := true
		f := newFleet(2, uniform(3, 500*time.Microsecond, 0), b, func(o *Options) {
			if cut { // the first daemon
				o.Catalog, cut = old, false
			}
		})
		defer f.stop()
		ctx, cancel := context.WithCancel(context.Background())
		var feeding sync.WaitGroup
		feeding.Go(func() { f.feed(ctx, 0, "c", newPartition("lane/0")) })
		time.Sleep(2 * time.Second)
		for _, rate := range []int64{20, 300, 50, 0} {
			b.set(campaign("c", rate))
			time.Sleep(2 * time.Second) // toldAfter, and a round
			begun := time.Since(f.receiver.began).Microseconds()
			time.Sleep(4 * time.Second)
			want := 4 * rate
			if got := between(f.receiver.history(), begun, begun+4_000_000); got < want-want/20-1 || got > want+want/20+1 {
				t.Errorf("%d sent in 4 s at %d/s", got, rate)
			}
		}
		cancel()
		feeding.Wait()
	})
}

// TestNewsAreToldOnceTheStoreAnswers: while the store is down, news are kept, and only the last state is told.
func TestNewsAreToldOnceTheStoreAnswers(t *testing.T) {
	b := newBook(campaign("c", 100))
	one(t, b, nil, func(t *testing.T, f *fleet) {
		down := func(is bool) {
			f.store.mu.Lock()
			defer f.store.mu.Unlock()
			f.store.down = is
		}
		takes := func() int {
			f.store.mu.Lock()
			defer f.store.mu.Unlock()
			return f.store.takes
		}
		down(true)
		for rate := range int64(10) {
			b.set(campaign("c", 10+rate))
			time.Sleep(300 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		if n := takes(); n != 0 {
			t.Fatalf("%d takes", n)
		}
		down(false)
		time.Sleep(3 * time.Second)
		if n := takes(); n != 1 {
			t.Errorf("%d takes for one campaign", n)
		}
		f.store.mu.Lock()
		reply := f.store.model.Take(f.store.now(), "other", []delivery.Ask{{Campaign: &delivery.Campaign{ID: "c", Revision: 1}}})
		f.store.mu.Unlock()
		if got := reply.Items[0].Rate; got != delivery.PerSecond(19) {
			t.Errorf("the store knows %v", got)
		}
	})
}

// TestTheStoreIsNotToldOfIdleCampaigns: when all campaigns of a large catalog change at once, the store is told of those that
// somebody has jobs of, and of the others when somebody gets some.
func TestTheStoreIsNotToldOfIdleCampaigns(t *testing.T) {
	const n = maxLooked + 100
	all := func(rate int64) (list []delivery.Campaign) {
		for i := range n {
			list = append(list, campaign(fmt.Sprint("c", i), rate))
		}
		return list
	}
	var busy atomic.Int64 // how many of them have jobs
	busy.Store(10)
	b := newBook(all(100)...)
	tune := func(o *Options) {
		o.HasJobs = func(id string) bool {
			i, err := strconv.ParseInt(id[1:], 10, 64)
			return err == nil && i < busy.Load()
		}
	}
	one(t, b, tune, func(t *testing.T, f *fleet) {
		told := func() (told int64) {
			f.store.mu.Lock()
			defer f.store.mu.Unlock()
			for i := range n {
				reply := f.store.model.Take(f.store.now(), "other", []delivery.Ask{{Campaign: &delivery.Campaign{ID: fmt.Sprint("c", i), Revision: 1}}})
				if reply.Items[0].Rate == delivery.PerSecond(50) {
					told++
				}
			}
			return told
		}
		synctest.Wait() // the daemon has seen the catalog as it was
		b.set(all(50)...)
		time.Sleep(time.Minute)
		if got := told(); got != 10 {
			t.Errorf("the store was told of %d campaigns, 10 of which have jobs", got)
		}
		busy.Store(15)
		time.Sleep(time.Minute)
		if got := told(); got != 15 {
			t.Errorf("the store was told of %d campaigns, 15 of which have jobs", got)
		}
		f.daemons[0].inbox.do(func(instant) {
			for id := range f.daemons[0].upkeep.news {
				was := f.daemons[0].upkeep.news[id]
				was.due -= newsFor.Microseconds()
				f.daemons[0].upkeep.news[id] = was
			}
		})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got, left := told(), len(f.daemons[0].upkeep.news); got != 15 || left != 0 {
			t.Errorf("later the store was told of %d campaigns, and %d are remembered", got, left)
		}
	})
}

// TestAStormOfChangesCostsAHorizonEach: when a rate changes, the slots that daemons hold in the middle of the timeline are
// lost: at most a horizon for each change, whatever their number.
func TestAStormOfChangesCostsAHorizonEach(t *testing.T) {
	harness.Simulation(t)
	const length = 4 * time.Second
	for _, every := range []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, time.Second} {
		for _, daemons := range []int{1, 3} {
			synctest.Test(t, func(t *testing.T) {
				b := newBook(campaign("c", 500))
				f := newFleet(daemons, uniform(3, 500*time.Microsecond, 0), b, nil)
				ctx, cancel := context.WithCancel(context.Background())
				var feeding sync.WaitGroup
				for i := range daemons {
					feeding.Go(func() { f.feed(ctx, i, "c", newPartition(fmt.Sprint("lane/", i))) })
				}
				time.Sleep(time.Second)
				for k := range int64(length / every) {
					b.set(campaign("c", 500+(k+1)%2))
					time.Sleep(every)
				}
				cancel()
				feeding.Wait()
				f.stop()
				sent := float64(between(f.receiver.history(), 1_000_000, 1_000_000+length.Microseconds()))
				ideal := 500 * length.Seconds()
				lost := float64(length/every) * 500 * 0.08
				t.Logf("%d daemons, a change every %v: %.0f %% of the ideal", daemons, every, 100*sent/ideal)
				if sent < ideal-lost-2 || daemons == 1 && sent < 0.95*ideal {
					t.Errorf("%d daemons, a change every %v: %.0f sent, ideally %.0f", daemons, every, sent, ideal)
				}
			})
		}
	}
}
