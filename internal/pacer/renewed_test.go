package pacer

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// reports notes what a pacer reports of destinations.
type reports struct {
	mu    sync.Mutex
	fails []time.Time
	gone  int
	works int
}

func (r *reports) Fails(_, _ string, since time.Time, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fails = append(r.fails, since)
}

func (r *reports) Gone(_, _, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.gone++
}

func (r *reports) Works(_, _ string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.works++
}

func (r *reports) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("fails %d, gone %d, works %d", len(r.fails), r.gone, r.works)
}

// TestWhatIsReportedOfADestination: each call that shows that it does not work, since when, and each job that it takes.
func TestWhatIsReportedOfADestination(t *testing.T) {
	wants := delivery.Result{Class: delivery.Misconfigured, Scope: delivery.ScopeDestination, Gone: true, Detail: "410"}
	for name, tc := range map[string]struct {
		answer  delivery.Result
		reports string // of 20 jobs within a second
	}{
		"works":     {delivery.Result{Class: delivery.Delivered}, "fails 0, gone 0, works 20"},
		"rejects":   {delivery.Result{Class: delivery.Rejected}, "fails 0, gone 0, works 20"},
		"throttles": {slowDown, "fails 0, gone 0, works 0"},
		"refuses":   {gone410, "fails 0, gone 0, works 0"}, // twenty jobs only
		"dead":      {unreachable, "fails 1, gone 0, works 0"},
		"gone":      {wants, "fails 0, gone 2, works 0"},
	} {
		t.Run(name, func(t *testing.T) {
			told := &reports{}
			one(t, newBook(campaign("c", 20)), func(o *Options) { withShops(&shops{})(o); o.DestinationReports = told }, func(t *testing.T, f *fleet) {
				f.receiver.setAnswer(down("shop", tc.answer))
				begun := time.Now()
				f.push(t, named(jobs(newPartition("lane/0"), delivery.FromLane, "c", 0, 20), "shop"))
				time.Sleep(1200 * time.Millisecond)
				exactly(t, told.String(), tc.reports, "reports")
				for _, since := range told.fails {
					if since.Before(begun) || since.After(begun.Add(200*time.Millisecond)) {
						t.Errorf("it is said to fail from %s on", since.Sub(begun))
					}
				}
			})
		})
	}
}

// TestAChangedDestinationIsTriedAtOnce: what was found of its old address is forgotten, by each daemon, and answers to calls from before say nothing.
func TestAChangedDestinationIsTriedAtOnce(t *testing.T) {
	s := &shops{}
	played(t, 2, newBook(campaign("c", 200)), s, func(t *testing.T, f *fleet, _ *partition) {
		f.receiver.setAnswer(down("shop", unreachable))
		f.toShop(t, 0, 50)
		time.Sleep(32 * time.Second) // the next try is at 63 s
		f.receiver.setAnswer(nil)
		s.renew("shop")
		for daemon := range 2 {
			fresh := f.toShop(t, daemon, 20)
			time.Sleep(5 * time.Second)
			exactly(t, fresh.count(delivery.OutcomeDelivered), 20, "daemon %d: new jobs are delivered within five seconds", daemon)
		}
		f.receiver.setLatency(time.Second)
		f.receiver.setAnswer(down("shop", delivery.Result{Class: delivery.Misconfigured, Scope: delivery.ScopeDestination, Gone: true}))
		late := f.toShop(t, 0, 4)
		time.Sleep(500 * time.Millisecond) // they are under way
		f.receiver.setAnswer(nil)
		f.receiver.setLatency(time.Millisecond)
		s.renew("shop")
		time.Sleep(15 * time.Second)
		exactly(t, late.count(delivery.OutcomeDelivered), 4, "jobs are delivered that the old address did not want")
	})
}

// TestADaemonThatReadsAChangeLate tries the old address meanwhile, and what it finds closes the new one on no other daemon for long.
func TestADaemonThatReadsAChangeLate(t *testing.T) {
	for name, tc := range map[string]struct {
		late time.Duration // after the others
		open time.Duration // when those that knew the destination before send to it at the latest, and then those that did not
		all  time.Duration
	}{
		"a second":    {time.Second, 900 * time.Millisecond, 2500 * time.Millisecond},
		"ten seconds": {10 * time.Second, 11500 * time.Millisecond, 11700 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				views, shared := []*shops{{}, {}, {}}, &street{}
				i := 0
				b := newBook(campaign("c", 200))
				f := newFleet(3, uniform(3, 500*time.Microsecond, 0), b, func(o *Options) {
					withShops(views[i])(o)
					shared.sinks, o.Gates = o.Gates, shared
					i++
				})
				ctx, cancel := context.WithCancel(context.Background())
				var running sync.WaitGroup
				running.Go(func() { shared.run(ctx, f.daemons) })
				delivered := func(daemon int) {
					t.Helper()
					p := f.toShop(t, daemon, 3)
					time.Sleep(100 * time.Millisecond)
					exactly(t, p.count(delivery.OutcomeDelivered), 3, "daemon %d: delivered", daemon)
				}
				delivered(0)
				delivered(1)
				f.receiver.setAnswer(func(daemon int, _ *delivery.Job) delivery.Result {
					if daemon == 1 && views[1].Limits("", "shop").Version == 1 {
						return unreachable
					}
					return delivery.Result{Class: delivery.Delivered}
				})
				views[0].renew("shop")
				views[2].renew("shop")
				b.set(campaign("other", 1)) // another snapshot
				time.AfterFunc(tc.late, func() { views[1].renew("shop"); b.set(campaign("other", 2)) })
				changed := time.Now()
				f.toShop(t, 1, 60)
				delivered(0)
				time.Sleep(tc.open - time.Since(changed))
				delivered(0)
				time.Sleep(tc.all - time.Since(changed))
				delivered(2)
				cancel()
				running.Wait()
				f.stop()
			})
		})
	}
}
