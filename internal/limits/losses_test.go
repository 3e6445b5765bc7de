package limits

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/ledger"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// live is daemons that ask in real time and keep their slots as the scheduler does: a slot is used when it is surely due,
// at once or late, and expires after the tolerance.
type live struct {
	t        testing.TB
	campaign *delivery.Campaign
	prefix   string // of keys
	began    time.Time
	mu       sync.Mutex
	sent     []int64 // instants since began; under mu
}

// newLive starts two daemons, and returns after the first grants. stop ends them.
func newLive(t *testing.T, q *delivery.Quota, set *shards.Set, records ledger.Database) (l *live, stop func()) {
	l = &live{t: t, campaign: campaign(200, q), prefix: testservices.Unique("live"), began: time.Now()}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	stop = func() {
		cancel()
		wg.Wait()
	}
	t.Cleanup(stop)
	for range 2 {
		l.join(ctx, &wg, set, records)
	}
	await(t, "the first grants", func() bool { return l.count(0) >= 40 })
	return l, stop
}

// obeys expects that no window held more than its limit. The daemons know the store's clock to a few milliseconds.
func (l *live) obeys() {
	l.t.Helper()
	slices.Sort(l.sent)
	for _, w := range l.campaign.Quotas[0].Windows {
		if most := rolling(l.sent, w.Span.Microseconds()-10_000); most > w.Limit {
			l.t.Errorf("%d in a rolling %s, limit %d", most, w.Span, w.Limit)
		}
	}
}

// join starts a daemon that works until ctx ends.
func (l *live) join(ctx context.Context, wg *sync.WaitGroup, set *shards.Set, records ledger.Database) {
	e := newEngine(l.t, Options{
		Shards: set, KeyPrefix: l.prefix, Ledger: records, Quotas: func() []*delivery.Quota { return l.campaign.Quotas },
	})
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
	testservices.RealTime(t)
	t.Parallel()
	single := func(t *testing.T) (*testservices.Redis, *shards.Set) {
		r := testservices.FreshRedis(t)
		return r, connect(t, shards.Options{Addrs: []string{r.Addr}})
	}
	for _, tc := range []struct {
		name  string
		start func(t *testing.T) (set *shards.Set, lose func())
	}{
		{"killed", func(t *testing.T) (*shards.Set, func()) {
			r, set := single(t)
			return set, func() {
				r.Kill()
				r.Start(t)
			}
		}},
		{"flushed", func(t *testing.T) (*shards.Set, func()) {
			r, set := single(t)
			return set, func() { r.Flush(t) }
		}},
		{"failed over with lag", func(t *testing.T) (*shards.Set, func()) {
			s := testservices.RedisSentinel(t)
			set := connect(t, shards.Options{Mode: shards.ModeSentinel, Addrs: s.Addrs(), MasterName: s.MasterName})
			return set, func() {
				master := clientOf(t, s.Master().Addr)
				stopReplicating(t, s.Master())
				must(t, master.Set(t.Context(), "late", 1, 0).Err())
				time.Sleep(500 * time.Millisecond) // what is granted now is lost
				if _, next := s.KillMaster(); clientOf(t, next.Addr).Exists(t.Context(), "late").Val() > 0 {
					t.Error("the replica was not cut off")
				}
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set, lose := tc.start(t)
			q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(40, time.Second, 70, 2*time.Second, 130, time.Hour)}
			l, stop := newLive(t, q, set, limitstest.NewLedger())
			lose()
			lost := time.Since(l.began).Microseconds()
			await(t, "grants after the loss", func() bool { return l.count(lost+500_000) > 0 })
			time.Sleep(2500 * time.Millisecond)
			stop()
			l.obeys()
			t.Logf("%d sent before the loss and %d after it", l.count(0)-l.count(lost), l.count(lost))
		})
	}
}

// TestASlotOfAClusterMoves moves the slot of a quota and its campaigns to another node, key by key, while two daemons take from it. While
// some keys are here and others there, nothing is granted. Afterwards the counts are as before if there is no ledger. With a ledger,
// another process counts as one without the data.
func TestASlotOfAClusterMoves(t *testing.T) {
	if testservices.Raced || testing.Short() {
		t.Skip("the cluster runs in the full pass without the race detector")
	}
	t.Parallel()
	for _, tc := range []struct {
		name    string
		records ledger.Database
	}{{"counts go along", nil}, {"counts are rebuilt", limitstest.NewLedger()}} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			set := connect(t, shards.Options{Mode: shards.ModeCluster, Addrs: cluster().Addrs(), Shards: 4})
			q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(60, time.Second, 130, time.Hour)}
			l, stop := newLive(t, q, set, tc.records)
			cluster().MoveSlotOf(t, shards.Tag(l.prefix, 0), 10*time.Millisecond)
			moved := time.Since(l.began).Microseconds()
			await(t, "the rest of the hour", func() bool { return l.count(0) >= 120 && l.count(moved) > 0 })
			time.Sleep(500 * time.Millisecond) // what is granted above that
			stop()
			l.obeys()
			t.Logf("%d sent before the slot had moved and %d after it", l.count(0)-l.count(moved), l.count(moved))
		})
	}
}

func connect(t testing.TB, o shards.Options) *shards.Set {
	t.Helper()
	set, err := shards.Connect(o)
	must(t, err)
	t.Cleanup(func() { _ = set.Close() })
	return set
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

// stopReplicating disconnects the replica until the process is restarted: the replica receives nothing any more and cannot reconnect,
// while all other clients are served. Writes from here on are lost in a failover. (A frozen replica would still find in its socket what
// was sent meanwhile.)
func stopReplicating(t testing.TB, r *testservices.Redis) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.Addr})
	defer func() { _ = client.Close() }()
	must(t, client.Do(context.Background(), "ACL", "SETUSER", "default", "-psync", "-sync").Err())
	must(t, client.Do(context.Background(), "CLIENT", "KILL", "TYPE", "replica").Err())
}
