package limits

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
)

// live is daemons that ask in real time and keep their slots as the scheduler does: a slot is used when it is surely due,
// at once or late, and expires after the tolerance.
type live struct {
	t        testing.TB
	campaign *delivery.Campaign
	began    time.Time
	mu       sync.Mutex
	sent     []int64 // instants since began; under mu
}

// join starts a daemon that works until ctx ends.
func (l *live) join(ctx context.Context, wg *sync.WaitGroup, shards Shards, ledger Ledger) {
	e, err := New(Options{
		Shards: shards, Ledger: ledger, Registerer: prometheus.NewRegistry(),
		Quotas: func() []*delivery.Quota { return l.campaign.Quotas },
	})
	must(l.t, err)
	wg.Go(func() {
		if err := e.Run(ctx); err != nil {
			l.t.Error(err)
		}
	})
	wg.Go(func() { l.ask(ctx, e) })
}

func (l *live) ask(ctx context.Context, e *Engine) {
	ahead := int64(-1 << 62) // of the store's clock, at least
	for ctx.Err() == nil {
		a := ask(l.campaign, 50)
		a.Horizon = quantum
		reply, err := e.Take(ctx, []delivery.Ask{a})
		now := time.Since(l.began).Microseconds()
		if g := reply.Items[0]; err == nil && g.GrantedAt > 0 {
			ahead = max(ahead, g.GrantedAt-now)
			l.use(g, now, ahead)
		}
		time.Sleep(time.Duration(quantum) * time.Microsecond)
	}
}

// use sends at the slots of a grant that are not too late.
func (l *live) use(g delivery.Granted, now, ahead int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range g.Units {
		due := g.First.Advance(i, g.Rate).Micros() - ahead
		if due+late < now {
			continue // expired
		}
		l.sent = append(l.sent, max(now, due+rand.Int64N(2)*late))
	}
}

// count is how many were sent from an instant on.
func (l *live) count(from int64) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, at := range l.sent {
		if at >= from {
			n++
		}
	}
	return n
}

// TestNoLossOfTheStoreLetsALimitBeExceeded: a Redis without persistence is killed and started, is emptied, or fails over
// to a replica that has not seen the latest grants, all under load from two daemons. No rolling window ever holds more
// than its limit, the long one, whose counts are lost, included; and grants go on.
func TestNoLossOfTheStoreLetsALimitBeExceeded(t *testing.T) {
	single := func(t *testing.T) (*harness.Redis, Shards) {
		r := harness.FreshRedis(t)
		return r, connect(t, TopologyOptions{Addrs: []string{r.Addr}})
	}
	for _, tc := range []struct {
		name  string
		start func(t *testing.T) (shards Shards, lose func())
	}{
		{"killed", func(t *testing.T) (Shards, func()) {
			r, shards := single(t)
			return shards, func() {
				r.Kill()
				r.Start(t)
			}
		}},
		{"flushed", func(t *testing.T) (Shards, func()) {
			r, shards := single(t)
			return shards, func() { r.Flush(t) }
		}},
		{"failed over with lag", func(t *testing.T) (Shards, func()) {
			s := harness.RedisSentinel(t)
			shards := connect(t, TopologyOptions{Mode: ModeSentinel, Addrs: s.Addrs(), MasterName: s.MasterName})
			return shards, func() {
				s.Master().StopReplicating(t)
				time.Sleep(500 * time.Millisecond) // what is granted now is lost
				s.KillMaster()
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shards, lose := tc.start(t)
			q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(40, time.Second, 70, 2*time.Second, 130, time.Hour)}
			l := &live{t: t, campaign: campaign(200, q), began: time.Now()}
			ledger := newMemLedger()
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			stop := func() {
				cancel()
				wg.Wait()
			}
			t.Cleanup(stop)
			for range 2 {
				l.join(ctx, &wg, shards, ledger)
			}
			await(t, "the first grants", func() bool { return l.count(0) >= 40 })
			lose()
			lost := time.Since(l.began).Microseconds()
			await(t, "grants after the loss", func() bool { return l.count(lost+500_000) > 0 })
			time.Sleep(2500 * time.Millisecond)
			stop()
			slices.Sort(l.sent)
			for _, w := range q.Windows {
				// The daemons know the store's clock to a few milliseconds.
				if most := rolling(l.sent, w.Span.Microseconds()-10_000); most > w.Limit {
					t.Errorf("%d in a rolling %s, limit %d", most, w.Span, w.Limit)
				}
			}
			t.Logf("%d sent before the loss and %d after it", l.count(0)-l.count(lost), l.count(lost))
		})
	}
}

func connect(t testing.TB, o TopologyOptions) Shards {
	t.Helper()
	shards, err := Connect(o)
	must(t, err)
	t.Cleanup(func() { _ = shards.Close() })
	return shards
}

// await waits in real time.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 20 s", what)
		}
	}
}
