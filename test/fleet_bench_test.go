package test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/progress"
)

// fleetQuantum is how often a daemon asks for slots.
const fleetQuantum = 25 * time.Millisecond

// fleetTimes are how long daemons have to begin, and how long they are measured.
func fleetTimes() (begin, measured time.Duration) {
	return 2 * time.Second, 10 * time.Second
}

// BenchmarkCosts prints Redis' cost of single calls. They are scripts, their items by the number of asking daemons, with and without
// contention, and the states of quotas, which every daemon reads once a second.
func BenchmarkCosts(b *testing.B) {
	t := newFigureTable(b, "What takes cost Redis", "daemons", "windows", "asking for", "µs/script", "µs/item")
	for _, windows := range []int{0, 1, 5} {
		for _, daemons := range []int{1, 3, 10, 30, 100} {
			for _, rate := range []int64{1_000_000, 2} {
				b.Run(fmt.Sprintf("daemons=%d/windows=%d/rate=%d", daemons, windows, rate), func(b *testing.B) {
					var script, item float64
					for b.Loop() {
						script, item = takeCosts(b, daemons, windows, rate)
					}
					asking := "less than the rate"
					if rate == 2 {
						asking = "more than the rate"
					}
					t.add(daemons, windows, asking, script*1e6, item*1e6)
				})
			}
		}
	}
	peeks := newFigureTable(b, "What reading the states of quotas costs Redis", "windows", "µs/quota")
	for _, windows := range []int{1, 5} {
		b.Run(fmt.Sprintf("peek/windows=%d", windows), func(b *testing.B) {
			r := newLimiterRig(b)
			e, asks, n := r.engine(), benchAsks(1000, windows), 0
			_, err := e.Take(context.Background(), asks)
			noError(b, err)
			var quotas []*delivery.Quota
			for _, a := range asks {
				quotas = append(quotas, a.Campaign.Quotas...)
			}
			r.start()
			for b.Loop() {
				_, err := e.Peek(context.Background(), quotas)
				noError(b, err)
				n += len(quotas)
			}
			peeks.add(windows, (r.usedCPU()-r.cpu)/float64(n)*1e6)
		})
	}
}

// BenchmarkFleet lets the quota engines and the exchange of progress of many daemons work in real time against one Redis,
// without Kafka and sinks: every daemon has jobs of every campaign. It prints what Redis needs beside what the costs of single
// calls, measured before, predict. The table of docs/operations/deploy.md comes from them.
func BenchmarkFleet(b *testing.B) {
	t := newFigureTable(b, "Many daemons, one Redis, in real time", "daemons", "campaigns", "rate", "windows", "items/s", "scripts/s",
		"µs/script", "µs/item", "exchange, %", "predicted, % of a core", "measured")
	type size struct {
		daemons, campaigns, windows int
		rate                        int64
	}
	begin, measured := fleetTimes()
	for _, tc := range []size{{1, 1000, 0, 2}, {10, 200, 1, 2}, {30, 100, 0, 1}, {100, 20, 0, 1}} {
		b.Run(fmt.Sprintf("daemons=%d/campaigns=%d/windows=%d", tc.daemons, tc.campaigns, tc.windows), func(b *testing.B) {
			script, item := takeCosts(b, tc.daemons, tc.windows, tc.rate)
			r := newLimiterRig(b)
			asks := fleetAsks(tc.campaigns, tc.windows, tc.rate)
			snapshot := &delivery.Snapshot{Campaigns: map[string]*delivery.Campaign{}}
			for i := range asks {
				snapshot.Campaigns[asks[i].Campaign.ID] = asks[i].Campaign
			}
			rest := r.exchange(b, tc.daemons, snapshot)
			var items int64
			for b.Loop() {
				ctx, stop := context.WithCancel(context.Background())
				fleet := r.fleet(ctx, tc.daemons, asks, snapshot)
				time.Sleep(begin)
				items = fleet.items()
				r.start()
				time.Sleep(measured)
				items = fleet.items() - items
				cpu, scripts := r.usedCPU()-r.cpu, r.scripts()-r.calls
				stop()
				fleet.wait()
				second := measured.Seconds()
				takes := float64(scripts)/second - float64(tc.daemons)*restScripts
				predicted := takes*script + float64(items)/second*item + rest
				t.add(tc.daemons, tc.campaigns, fmt.Sprintf("%d/s", tc.rate), tc.windows, int64(float64(items)/second), int64(float64(scripts)/second),
					script*1e6, item*1e6, rest*100, predicted*100, cpu/second*100)
			}
		})
	}
}

// restScripts is about how many scripts a daemon runs in a second for the exchange of progress.
const restScripts = 1

// takeCosts returns Redis' seconds for a script and for an item of it, from takes of few and of many items. That many daemons want slots
// of each campaign.
func takeCosts(b *testing.B, daemons, windows int, rate int64) (script, item float64) {
	cost := func(campaigns, takes int) float64 {
		r := newLimiterRig(b)
		asks := fleetAsks(campaigns, windows, rate)
		engines := make([]*limits.Engine, daemons)
		for i := range engines {
			engines[i] = r.engine()
		}
		for i := range takes + daemons {
			if i == daemons { // each is known
				r.start()
			}
			_, _ = engines[i%daemons].Take(context.Background(), asks) // on a busy machine the clock seems to step, which is an error
		}
		return (r.usedCPU() - r.cpu) / float64(takes)
	}
	one, many := cost(1, max(1500, 4*daemons)), cost(100, max(150, 2*daemons))
	item = (many - one) / 99
	return one - item, item
}

// fleetAsks returns one ask per campaign, each with its own quota of that many windows.
func fleetAsks(campaigns, windows int, rate int64) []delivery.Ask {
	asks := benchAsks(campaigns, windows)
	for i := range asks {
		asks[i].Campaign.Rate, asks[i].Campaign.Status = delivery.PerSecond(rate), delivery.StatusActive
		asks[i].Want = 2
	}
	return asks
}

// exchange returns what an exchange of progress a second of each daemon costs Redis, in seconds.
func (r *limiterRig) exchange(b *testing.B, daemons int, snapshot *delivery.Snapshot) float64 {
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	for i := range daemons {
		running.Go(func() { _ = r.tracker(fmt.Sprint("before-", i), snapshot).Run(ctx) })
	}
	begin, measured := fleetTimes()
	time.Sleep(begin)
	r.start()
	time.Sleep(measured / 2)
	cpu := (r.usedCPU() - r.cpu) / (measured / 2).Seconds()
	stop()
	running.Wait()
	noError(b, r.client.FlushDB(context.Background()).Err())
	return cpu
}

// simulated are daemons without Kafka and sinks.
type simulated struct {
	running sync.WaitGroup
	mu      sync.Mutex
	asked   int64 // items
}

func (s *simulated) wait() { s.running.Wait() }

func (s *simulated) items() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// fleet starts daemons that ask for slots of every campaign, once a slot, and exchange their progress.
func (r *limiterRig) fleet(ctx context.Context, daemons int, asks []delivery.Ask, snapshot *delivery.Snapshot) *simulated {
	s := &simulated{}
	for i := range daemons {
		e := r.engine()
		s.running.Go(func() { _ = e.Run(ctx) })
		s.running.Go(func() { _ = r.tracker(fmt.Sprint("daemon-", i), snapshot).Run(ctx) })
		s.running.Go(func() { s.takes(ctx, e, asks) })
	}
	return s
}

func (s *simulated) takes(ctx context.Context, e *limits.Engine, asks []delivery.Ask) {
	due := make([]time.Time, len(asks))
	spacing := time.Duration(asks[0].Campaign.Rate.Spacing()) * time.Microsecond
	for i := range due {
		due[i] = time.Now().Add(rand.N(spacing))
	}
	tick := time.NewTicker(fleetQuantum)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			var list []delivery.Ask
			for i := range asks {
				if !due[i].After(now) {
					due[i] = due[i].Add(max(spacing, fleetQuantum))
					list = append(list, asks[i])
				}
			}
			if len(list) > 0 {
				_, _ = e.Take(ctx, list) // an error is one of the end
			}
			s.mu.Lock()
			s.asked += int64(len(list))
			s.mu.Unlock()
		case <-ctx.Done():
			return
		}
	}
}

// tracker is the exchange of progress of a daemon that has jobs of all campaigns.
func (r *limiterRig) tracker(daemon string, snapshot *delivery.Snapshot) *progress.Tracker {
	var load busyDaemon
	for id := range snapshot.Campaigns {
		load.jobs = append(load.jobs, delivery.MemoryJobs{Campaign: id, Jobs: 20, Units: 20, InHand: 2})
		load.ingress = append(load.ingress, delivery.CampaignCount{Campaign: delivery.CampaignHash(id), Jobs: 10})
		load.tallies = append(load.tallies, delivery.Tally{Campaign: id, Sent: 1_000_000})
	}
	return progress.New(progress.Options{
		Daemon: daemon, Work: load, Exchange: progress.NewRedisExchange(r.client, "p."), Store: load,
		Snapshot: func() *delivery.Snapshot { return snapshot }, Windows: func() []delivery.WindowState { return nil },
		Gates:  func() []delivery.Gate { return nil },
		Sink:   func(string) (string, bool) { return "sink", true },
		Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry(),
	})
}

// busyDaemon is what a tracker asks for.
type busyDaemon struct {
	progress.Store // which is not asked: SaveProgress and what follows need no answer
	jobs           []delivery.MemoryJobs
	ingress        []delivery.CampaignCount
	tallies        []delivery.Tally
}

func (d busyDaemon) Backlog() delivery.LanesBacklog { return delivery.LanesBacklog{Ingress: d.ingress} }
func (d busyDaemon) InMemory(context.Context) ([]delivery.MemoryJobs, error) {
	return d.jobs, nil
}
func (busyDaemon) Answers() map[string][]delivery.Answer { return nil }

func (d busyDaemon) Tallies() []delivery.Tally { return d.tallies }

func (d busyDaemon) AtDestinations(context.Context) (map[string]int64, error) {
	return map[string]int64{}, nil
}
func (d busyDaemon) Troubles(context.Context) ([]delivery.Trouble, error) {
	return nil, nil
}
func (d busyDaemon) SaveProgress(context.Context, []delivery.Progress) error {
	return nil
}

func (d busyDaemon) LoadSettled(context.Context, []string) (map[string]delivery.Settled, error) {
	return nil, nil
}

func (d busyDaemon) LoadOutlooks(context.Context) ([]delivery.Progress, error) {
	return nil, nil
}
