package limits

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
)

func TestConnectSaysWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		name  string
		o     TopologyOptions
		count int
		want  string // "": valid
	}{
		{"single", TopologyOptions{Addrs: []string{"a:1"}}, 1, ""},
		{"sentinel", TopologyOptions{Mode: ModeSentinel, MasterName: "m", Addrs: []string{"a:1", "b:1"}}, 1, ""},
		{"cluster", TopologyOptions{Mode: ModeCluster, Addrs: []string{"a:1"}}, 16, ""},
		{"ring", TopologyOptions{Mode: ModeRing, Addrs: []string{"a:1|b:2", "c:1", "[::1]:1"}}, 3, ""},
		{"ring of more shards", TopologyOptions{Mode: ModeRing, Addrs: []string{"a:1", "c:1"}, Shards: 5}, 5, ""},
		{"mode", TopologyOptions{Mode: "mesh", Addrs: []string{"a:1"}}, 0, "mode: "},
		{"none", TopologyOptions{}, 0, "addrs: at least one"},
		{"several", TopologyOptions{Addrs: []string{"a:1", "b:1"}}, 0, "addrs: mode single takes one"},
		{"no name", TopologyOptions{Mode: ModeSentinel, Addrs: []string{"a:1"}}, 0, "master_name: "},
		{"database", TopologyOptions{Mode: ModeCluster, Addrs: []string{"a:1"}, DB: 1}, 0, "db: "},
		{"port", TopologyOptions{Addrs: []string{"a"}}, 0, `addrs: "a"`},
		{"password", TopologyOptions{Addrs: []string{"redis://:secret@a:1"}}, 0, "addrs: write host:port without"},
		{"user", TopologyOptions{Addrs: []string{"secret@a:1"}}, 0, "addrs: write host:port without"},
		{"replica of one", TopologyOptions{Addrs: []string{"a:1|b:1"}}, 0, `addrs: "a:1|b:1"`},
		{"three", TopologyOptions{Mode: ModeRing, Addrs: []string{"a:1|b:1|c:1"}}, 0, `addrs: "a:1|b:1|c:1"`},
		{"too many", TopologyOptions{Addrs: []string{"a:1"}, Shards: 5000}, 0, "shards: must be between"},
		{"too few", TopologyOptions{Mode: ModeRing, Addrs: []string{"a:1", "b:1"}, Shards: 1}, 0, "shards: 1 do not fill"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			shards, err := Connect(tc.o)
			if tc.want != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
					t.Fatalf("%v, want %q", err, tc.want)
				}
				if strings.Contains(err.Error(), "secret") {
					t.Errorf("it tells a secret: %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if shards.Count() != tc.count {
				t.Errorf("%d shards, want %d", shards.Count(), tc.count)
			}
			if err := shards.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestALayoutNamesTheHomeFirst(t *testing.T) {
	in := func(id string, shard int, mode string, w ...delivery.Window) *delivery.Quota {
		return &delivery.Quota{ID: id, Shard: shard, Mode: mode, Windows: w}
	}
	w := delivery.Window{Span: time.Minute, Limit: 1}
	empty, soft := in("empty", 2, ""), in("soft", 2, delivery.ModeEventual, w)
	a, b, c := in("a", 1, "", w), in("b", 7, delivery.ModeShadow, w), in("c", 1, "", w)
	for _, tc := range []struct {
		name   string
		quotas []*delivery.Quota
		want   string
	}{
		{"one", []*delivery.Quota{a, c}, "1:ac"},
		{"two", []*delivery.Quota{b, a, c}, "3:b 1:ac"},
		{"what does not count", []*delivery.Quota{empty, soft, a}, "1:a"},
	} {
		var got []string
		for _, p := range layout(campaign(1, tc.quotas...), 4) {
			ids := ""
			for _, q := range p.campaign.Quotas {
				if counts(q) {
					ids += q.ID
				}
			}
			got = append(got, fmt.Sprintf("%d:%s", p.shard, ids))
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("%s: %v, want %s", tc.name, got, tc.want)
		}
	}
	alone := campaign(1, a, c)
	if p := layout(alone, 4); p[0].campaign != alone {
		t.Error("a campaign of one shard is copied")
	}
	spread := map[int]int{}
	for i := range 400 {
		free := campaign(1, empty)
		free.ID = fmt.Sprint(i)
		spread[layout(free, 4)[0].shard]++
	}
	for shard, n := range spread {
		if n < 50 || len(spread) != 4 {
			t.Errorf("%d of 400 campaigns without quotas live in shard %d of %d", n, shard, len(spread))
		}
	}
}

func TestHomesAreForgotten(t *testing.T) {
	h := homes{known: map[string]*home{}}
	a := ask(campaign(1), 1)
	h.at(&a, 4, 0)
	b := ask(campaign(1), 1)
	b.Campaign.ID = "other"
	h.at(&b, 4, forgetAfter)
	if h.at(&b, 4, forgetAfter+sweepEvery); len(h.known) != 1 || h.known["other"] == nil {
		t.Errorf("%v", slices.Collect(maps.Keys(h.known)))
	}
}

// ring is a ring of miniredis.
type ring struct {
	*lua
	servers []*miniredis.Miniredis
	clients []redis.UniversalClient
}

func newRing(t testing.TB, n int) *ring {
	r := &ring{}
	for range n {
		m, c := miniClient(t)
		r.servers, r.clients = append(r.servers, m), append(r.clients, c)
	}
	r.lua = newLuaOn(t, Ring(r.clients, nil))
	return r
}

// quotaIn is a quota of one window of an hour.
func quotaIn(shard int, limit int) *delivery.Quota {
	return &delivery.Quota{ID: fmt.Sprintf("q%d", shard), Revision: 1, Shard: shard, Windows: windows(limit, time.Hour)}
}

// left are the remaining units of quotas.
func (l *lua) left(now int64, quotas ...*delivery.Quota) (list []int64) {
	for _, w := range l.Peek(now, quotas) {
		list = append(list, w.Remaining)
	}
	return list
}

func TestCampaignsLiveWithTheirQuotas(t *testing.T) {
	r := newRing(t, 3)
	counters := make([]*pipelines, 3)
	for i, c := range r.clients {
		counters[i] = &pipelines{}
		c.AddHook(counters[i])
	}
	var asks []delivery.Ask
	for i := range 6 {
		c := campaign(1000, quotaIn(i, 100))
		c.ID = fmt.Sprintf("c%d", i)
		asks = append(asks, ask(c, 5))
	}
	r.Take(epoch, "a", asks) // loads the scripts
	for _, c := range counters {
		c.trips = 0
	}
	reply := r.Take(epoch+second, "a", asks)
	if len(reply.Clocks) != 3 {
		t.Errorf("clocks of %+v", reply.Clocks)
	}
	for i, g := range reply.Items {
		if g.Units != 5 || g.From.Shard != i%3 || g.From.Campaign != asks[i].Campaign || g.From.Elsewhere != nil {
			t.Errorf("item %d: %+v", i, g)
		}
		var at []int
		for s, m := range r.servers {
			keys := m.Keys()
			if slices.ContainsFunc(keys, func(k string) bool { return strings.HasSuffix(k, fmt.Sprintf("timeline:c%d", i)) }) {
				at = append(at, s)
			}
		}
		if !slices.Equal(at, []int{i % 3}) {
			t.Errorf("timeline of campaign %d is in %v", i, at)
		}
	}
	for s, c := range counters {
		if c.trips != 1 {
			t.Errorf("%d round trips to shard %d", c.trips, s)
		}
	}
}

// prompt takes for one campaign until the shards answer in time: a machine that is busy elsewhere may be too slow for
// those that live in two.
func prompt(s store, now int64, a delivery.Ask) (g delivery.Granted) {
	for range 50 {
		if g = take1(s, now, "a", a); g.Bound != delivery.BindRate || g.Units > 0 {
			break
		}
	}
	return g
}

func TestACampaignOfTwoShardsIsDebitedAlike(t *testing.T) {
	for _, tc := range []struct {
		name        string
		home, there int
		weights     []int64
		units       int64
		bound       string
	}{
		{"room in both", 100, 100, nil, 20, ""},
		{"home is short", 7, 100, nil, 7, "q0"},
		{"the other is short", 100, 7, nil, 7, "q1"},
		{"nothing at home", 0, 100, nil, 0, "q0"},
		{"nothing there", 100, 0, nil, 0, "q1"},
		{"weights", 100, 7, []int64{3, 3, 3, 11}, 6, "q1"},
		{"weights at home", 5, 7, []int64{3, 3, 3, 11}, 3, "q0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRing(t, 2)
			home, there := quotaIn(0, tc.home), quotaIn(1, tc.there)
			c := campaign(1000, home, there)
			now := settle(r, epoch, c)
			a := ask(c, 20)
			a.Weights = tc.weights
			g := prompt(r, now, a)
			if g.Units != tc.units || g.BoundQuota != tc.bound || g.From.Shard != 0 || len(g.From.Elsewhere) != 1 {
				t.Fatalf("%+v", g)
			}
			want := []int64{int64(tc.home) - g.Units, int64(tc.there) - g.Units}
			if got := r.left(now, home, there); !slices.Equal(got, want) {
				t.Errorf("%v are left, want %v", got, want)
			}
			for i, w := range g.Windows {
				if w.Quota != c.Quotas[i].ID || w.Remaining != want[i] {
					t.Errorf("window %d is told as %+v", i, w)
				}
			}
			if g.Units > 0 && g.Units < 20 && g.NextAt <= now {
				t.Errorf("next at %d, now %d", g.NextAt, now)
			}
			back := g.Grant()
			back.First, back.Units = g.First.Advance(min(2, g.Units), g.Rate), max(0, g.Units-2)
			r.Refund(now, []delivery.Grant{back})
			used := g.Units - back.Units
			if got := r.left(now, home, there); !slices.Equal(got, []int64{int64(tc.home) - used, int64(tc.there) - used}) {
				t.Errorf("after the refund %v are left, %d are used", got, used)
			}
		})
	}
}

func TestACampaignOfTwoShardsKeepsItsRate(t *testing.T) {
	r := newLuaOn(t, newTopology(2, clients{realClient(t)}, nil))
	home, there := quotaIn(0, 100_000), quotaIn(1, 100_000)
	c := campaign(100, home, there)
	now, units := settle(r, epoch, c), int64(0)
	begin := now
	for now < begin+20*second {
		for _, node := range []string{"a", "b"} {
			units += take1(r, now, node, ask(c, 50)).Units
		}
		now += quantum
	}
	if units < 1980 || units > 2010 {
		t.Errorf("%d units in 20 s at 100/s", units)
	}
	if got := r.left(now, home, there); got[0] != 100_000-units || got[1] != got[0] {
		t.Errorf("%v are left after %d", got, units)
	}
}

// slow delays the replies of a server.
type slow struct {
	net.Conn
	by *atomic.Int64
}

func (s slow) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	time.Sleep(time.Duration(s.by.Load()))
	return n, err
}

func TestWhatComesTooLateFromTwoShardsIsHandedBack(t *testing.T) {
	near, _ := miniClient(t)
	far, _ := miniClient(t)
	var delay atomic.Int64
	o := ClientOptions(far.Addr())
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return slow{c, &delay}, err
	}
	clients := []redis.UniversalClient{redis.NewUniversalClient(ClientOptions(near.Addr())), redis.NewUniversalClient(o)}
	shards := Ring(clients, nil)
	t.Cleanup(func() { _ = shards.Close() })
	l := newLuaOn(t, shards)
	home, there := quotaIn(0, 100), quotaIn(1, 100)
	c := campaign(1000, home, there)
	now := settle(l, epoch, c)
	delay.Store(int64(2 * away))
	if g := take1(l, now, "a", ask(c, 10)); g.Units != 0 || g.NextAt != now+quantum {
		t.Errorf("%+v", g)
	}
	delay.Store(0)
	if got := l.left(now, home, there); !slices.Equal(got, []int64{100, 100}) {
		t.Errorf("%v are left", got)
	}
	if g := prompt(l, now, ask(c, 10)); g.Units != 10 {
		t.Errorf("%+v", g)
	}
}

func TestAShardThatIsDownStopsItsOwnCampaignsOnly(t *testing.T) {
	r := newRing(t, 3)
	quotas := []*delivery.Quota{quotaIn(0, 100), quotaIn(1, 100), quotaIn(2, 100)}
	var asks []delivery.Ask
	for i, linked := range [][]*delivery.Quota{quotas[:1], quotas[1:2], quotas[2:], quotas[:2], quotas[1:]} {
		c := campaign(1000, linked...)
		c.ID = fmt.Sprintf("c%d", i)
		asks = append(asks, ask(c, 5))
	}
	r.Take(epoch, "a", asks)
	before := r.left(epoch, quotas[0], quotas[2])
	r.servers[1].Close()
	e, now := r.engine("a"), epoch+second
	r.now = now
	for range 3 {
		reply, err := e.Take(context.Background(), asks)
		if err == nil || !strings.Contains(err.Error(), "shard 1: ") {
			t.Errorf("error %v", err)
		}
		for i, g := range reply.Items {
			if served := i == 0 || i == 2; served != (g.Units == 5) || served != (g.GrantedAt > 0) {
				t.Errorf("item %d: %+v", i, g)
			}
		}
		r.now += second
	}
	if got := r.left(r.now, quotas[0], quotas[2]); got[0] != before[0]-15 || got[1] != before[1]-15 {
		t.Errorf("%v are left of %v", got, before)
	}
	if err := e.CloseGate(context.Background(), "g", time.Second, false); err == nil || !strings.Contains(err.Error(), "shard 1: ") {
		t.Errorf("close: %v", err)
	}
	if err := r.servers[1].Restart(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(3 * lookEvery) // it is found again
	for i := range asks {
		if g := prompt(r, r.now, asks[i]); g.Units != 5 {
			t.Errorf("item %d: %+v", i, g)
		}
	}
}

func TestAFrozenShardIsLeftAlone(t *testing.T) {
	frozen, other := harness.FreshRedis(t), harness.FreshRedis(t)
	shards, err := Connect(TopologyOptions{Mode: ModeRing, Addrs: []string{frozen.Addr, other.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shards.Close() })
	e, err := New(Options{Shards: shards, KeyPrefix: "p.", Registerer: prometheus.NewRegistry(), Timeout: 100 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	c, d := campaign(1000, quotaIn(0, 1000)), campaign(1000, quotaIn(1, 1000))
	d.ID = "d"
	asks := []delivery.Ask{ask(c, 1), ask(d, 1)}
	if _, err := e.Take(context.Background(), asks); err != nil {
		t.Fatal(err)
	}
	frozen.Freeze()
	t.Cleanup(frozen.Thaw)
	if _, err := e.Take(context.Background(), asks); err == nil {
		t.Error("no error")
	}
	started := time.Now()
	reply, err := e.Take(context.Background(), asks)
	if took := time.Since(started); !errors.Is(err, errSilent) || reply.Items[1].GrantedAt == 0 || took > 3*silentWait {
		t.Errorf("%+v, %v, after %s", reply.Items, err, took)
	}
	if err := e.Ping(context.Background()); err != nil {
		t.Errorf("one server answers, and yet: %v", err)
	}
}

func TestACampaignThatMovesWaitsUntilItsSlotsAreOver(t *testing.T) {
	r := newRing(t, 2)
	before, after := campaign(1000, quotaIn(0, 1000)), campaign(1000, quotaIn(1, 1000))
	after.Revision = 2
	now := settle(r, epoch, before)
	g := take1(r, now, "a", ask(before, 10))
	held := g.First.Advance(g.Units-1, g.Rate).Micros() + 3600*second // as if the clocks of the shards were apart
	began := time.Now()
	a := ask(after, 10)
	a.HeldUntil = held
	g = take1(r, now, "a", a)
	if g.Units != 0 || g.Bound != delivery.BindRate || g.From.Shard != 1 || g.NextAt <= now || g.NextAt > now+horizon+late {
		t.Fatalf("%+v", g)
	}
	for g.Units == 0 && time.Since(began) < 5*time.Second {
		time.Sleep(5 * time.Millisecond)
		now += 5000
		g = take1(r, now, "a", a)
	}
	if waited := time.Since(began); waited < time.Duration(horizon+late)*time.Microsecond || g.Units != 10 {
		t.Errorf("%+v after %s", g, waited)
	}
	a.HeldUntil = g.First.Advance(9, g.Rate).Micros()
	if g = take1(r, now+quantum, "a", a); g.Units != 10 {
		t.Errorf("%+v", g)
	}
}

func TestAGateIsClosedInEveryShard(t *testing.T) {
	r := newRing(t, 3)
	var asks []delivery.Ask
	for i := range 3 {
		c := campaign(1000, quotaIn(i, 1000))
		c.ID = fmt.Sprintf("c%d", i)
		asks = append(asks, ask(c, 5))
		asks[i].Gate = "sink"
	}
	r.Take(epoch, "a", asks)
	now := epoch + second
	r.CloseGate(now, "sink", now+second, true)
	for i, g := range r.Take(now, "a", asks).Items {
		if g.Units != 0 || g.Bound != delivery.BindGate || g.NextAt != now+second {
			t.Errorf("item %d: %+v", i, g)
		}
	}
	r.OpenGate("sink")
	for i, g := range r.Take(now+1, "a", asks).Items {
		if g.Units != 5 {
			t.Errorf("item %d: %+v", i, g)
		}
	}
}

func TestShadowedUnitsAreCounted(t *testing.T) {
	r := newRing(t, 2)
	here, there := quotaIn(0, 4), quotaIn(1, 7)
	here.Mode, there.Mode = delivery.ModeShadow, delivery.ModeShadow
	c := campaign(1000, here, there)
	now := settle(r, epoch, c)
	if g := prompt(r, now, ask(c, 10)); g.Units != 10 || len(g.Shadowed) != 2 {
		t.Errorf("%+v", g)
	}
	m := r.engine("a").m
	for q, want := range map[string]float64{"q0": 6, "q1": 3} {
		if n := testutil.ToFloat64(m.shadowDenied.WithLabelValues(q)); n != want {
			t.Errorf("%s: %v units, want %v", q, n, want)
		}
	}
}

func TestAReplicaIsReadWhileItKeepsUp(t *testing.T) {
	pair := harness.RedisRing(t, 1)[0]
	shards, err := Connect(TopologyOptions{Mode: ModeRing, Addrs: []string{pair.Master.Addr + "|" + pair.Replica.Addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shards.Close() })
	asked := &pipelines{}
	shards.Replica(0).AddHook(asked)
	e, err := New(Options{Shards: shards, KeyPrefix: "p.", Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	q := quotaIn(0, 1000)
	c, ctx := campaign(10_000, q), context.Background()
	take := func(units int64) {
		t.Helper()
		r, err := e.Take(ctx, []delivery.Ask{ask(c, units)})
		if err != nil || r.Items[0].Units != units {
			t.Fatalf("%+v, %v", r.Items, err)
		}
	}
	glance := func() int64 {
		t.Helper()
		w, err := e.Glance(ctx, []*delivery.Quota{q})
		if err != nil || len(w) != 1 {
			t.Fatalf("%+v, %v", w, err)
		}
		return w[0].Remaining
	}
	if _, err := e.Take(ctx, []delivery.Ask{ask(c, 0)}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(250 * time.Millisecond) // a fresh timeline is put off
	take(100)
	pair.Master.AwaitReplica(t)
	if n := glance(); n != 900 || asked.trips == 0 {
		t.Fatalf("%d left, the replica was asked %d times", n, asked.trips)
	}
	pair.Master.StopReplicating(t)
	take(100)
	if n := glance(); n != 900 {
		t.Errorf("%d left, though the replica is less than two seconds behind", n)
	}
	// As if the replica had been cut off for longer.
	e.shards[0].keep(e.shards[0].now() + maxLag)
	trips := asked.trips
	if n := glance(); n != 800 || asked.trips == trips {
		t.Errorf("%d left as a replica far behind has it", n)
	}
	pair.Replica.Freeze()
	t.Cleanup(pair.Replica.Thaw)
	take(100)
	if n := glance(); n != 700 {
		t.Errorf("%d left while the replica is frozen", n)
	}
}

// glancer is a store that can fail.
type glancer struct {
	states []delivery.WindowState
	err    error
}

func (g *glancer) Glance(context.Context, []*delivery.Quota) ([]delivery.WindowState, error) {
	return g.states, g.err
}

func TestGaugesAreRemovedRatherThanWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := quotaIn(0, 10), quotaIn(1, 10)
		s := &delivery.Snapshot{Quotas: map[string]*delivery.Quota{"q0": a, "q1": b}}
		store := &glancer{states: []delivery.WindowState{{Quota: "q0", Remaining: 3}, {Quota: "q1", Remaining: 4}}}
		reg := prometheus.NewRegistry()
		g, err := NewGauges(store, func() *delivery.Snapshot { return s }, nil, reg)
		if err != nil {
			t.Fatal(err)
		}
		run := func(d time.Duration) {
			for ; d > 0; d -= glanceEvery {
				g.update(context.Background())
				time.Sleep(glanceEvery)
			}
		}
		count := func(want int, when string) {
			t.Helper()
			if n := testutil.CollectAndCount(g.remaining); n != want {
				t.Errorf("%d windows are shown %s, want %d", n, when, want)
			}
		}
		run(glanceEvery)
		count(2, "at first")
		store.states, store.err = store.states[:1], errors.New("shard 1 does not answer")
		run(showFor)
		count(2, "while a value is not old yet")
		run(2 * glanceEvery)
		count(1, "when a value is old")
	})
}
