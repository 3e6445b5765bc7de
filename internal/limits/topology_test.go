package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

func TestTheHomeIsTheShardOfTheQuotas(t *testing.T) {
	in := func(id string, shard int, mode string, w ...delivery.Window) *delivery.Quota {
		return &delivery.Quota{ID: id, Shard: shard, Mode: mode, Windows: w}
	}
	w := delivery.Window{Span: time.Minute, Limit: 1}
	empty, soft := in("empty", 2, ""), in("soft", 2, delivery.ModeEventual, w)
	a, b, c := in("a", 1, "", w), in("b", 7, delivery.ModeShadow, w), in("c", 5, "", w)
	for _, tc := range []struct {
		name   string
		quotas []*delivery.Quota
		home   int
	}{
		{"one", []*delivery.Quota{a, c}, 1},
		{"in shadow", []*delivery.Quota{b}, 3},
		{"what does not count", []*delivery.Quota{soft, a}, 1},
		{"without windows yet", []*delivery.Quota{soft, empty}, 2},
	} {
		of := campaign(1, tc.quotas...)
		if home := homeOf(of, 4); home != tc.home {
			t.Errorf("%s: home is %d, want %d", tc.name, home, tc.home)
		}
	}
	spread := map[int]int{}
	for i := range 400 {
		free := campaign(1, soft)
		free.ID = fmt.Sprint(i)
		spread[homeOf(free, 4)]++
	}
	for shard, n := range spread {
		if n < 50 || len(spread) != 4 {
			t.Errorf("%d of 400 campaigns without quotas live in shard %d of %d", n, shard, len(spread))
		}
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
	r.lua = newLuaOn(t, shards.New(r.clients...))
	return r
}

// quotaIn is a quota of one window of an hour.
func quotaIn(shard int, limit int) *delivery.Quota {
	return &delivery.Quota{ID: fmt.Sprintf("q%d", shard), Revision: 1, Shard: shard, Windows: windows(limit, time.Hour)}
}

// perShard returns an ask for five units of each of some campaigns, whose quotas of an hour live in one shard after the other.
func perShard(campaigns, limit int) (asks []delivery.Ask) {
	for i := range campaigns {
		c := campaign(1000, quotaIn(i, limit))
		c.ID = fmt.Sprintf("c%d", i)
		asks = append(asks, ask(c, 5))
	}
	return asks
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
	asks := perShard(6, 100)
	r.Take(epoch, "a", asks) // loads the scripts
	for _, c := range counters {
		c.trips = 0
	}
	reply := r.Take(epoch+second, "a", asks)
	if len(reply.Clocks) != 3 {
		t.Errorf("clocks of %+v", reply.Clocks)
	}
	for i, g := range reply.Items {
		if g.Units != 5 || g.From.Shard != i%3 || g.From.Campaign != asks[i].Campaign {
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

func TestAShardThatIsDownStopsItsOwnCampaignsOnly(t *testing.T) {
	r := newRing(t, 3)
	asks := perShard(3, 100)
	quotas := slices.Concat(asks[0].Campaign.Quotas, asks[2].Campaign.Quotas)
	r.Take(epoch, "a", asks)
	before := r.left(epoch, quotas...)
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
	if got := r.left(r.now, quotas...); got[0] != before[0]-15 || got[1] != before[1]-15 {
		t.Errorf("%v are left of %v", got, before)
	}
	if _, err := e.moveGate(context.Background(), "g", second, int(delivery.GateThrottled)); err == nil || !strings.Contains(err.Error(), "shard 1: ") {
		t.Errorf("close: %v", err)
	}
	must(t, r.servers[1].Restart())
	time.Sleep(3 * lookEvery) // it is found again
	for i := range asks {
		if g := take1(r, r.now, "a", asks[i]); g.Units != 5 {
			t.Errorf("item %d: %+v", i, g)
		}
	}
}

func TestAFrozenShardIsLeftAlone(t *testing.T) {
	frozen, other := testservices.FreshRedis(t), testservices.FreshRedis(t)
	set := connect(t, shards.Options{Mode: shards.ModeRing, Addrs: []string{frozen.Addr, other.Addr}})
	e := newEngine(t, Options{Shards: set, KeyPrefix: "p.", Timeout: 100 * time.Millisecond})
	asks := perShard(2, 1000)
	_, err := e.Take(context.Background(), asks)
	must(t, err)
	frozen.Freeze()
	t.Cleanup(frozen.Thaw)
	if _, err := e.Take(context.Background(), asks); err == nil {
		t.Error("no error")
	}
	started := time.Now()
	reply, err := e.Take(context.Background(), asks)
	if took := time.Since(started); !errors.Is(err, errSilent) || reply.Items[1].GrantedAt == 0 || took > 100*time.Millisecond {
		t.Errorf("%+v, %v, after %s", reply.Items, err, took)
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
	a.LastGranted = held
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
	a.LastGranted = g.First.Advance(9, g.Rate).Micros()
	if g = take1(r, now+quantum, "a", a); g.Units != 10 {
		t.Errorf("%+v", g)
	}
}

// TestACampaignThatMovesLeavesNothingBehind: a daemon that does not know of the move is granted nothing in the old shard once
// another daemon asks in the new one. It may move back.
func TestACampaignThatMovesLeavesNothingBehind(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	const step = 1 << 14 // what a change of the row adds to the revision
	at := func(shard int, revision, rate int64) *delivery.Campaign {
		c := campaign(rate, quotaIn(shard, 100_000))
		c.Revision = revision * step
		return c
	}
	before, after, again := at(0, 1, 1000), at(1, 2, 10), at(0, 3, 10)
	r := newRing(t, 2)
	now := settle(r, epoch, before) + second
	if g := take1(r, now, "a", ask(before, 5)); g.Units == 0 {
		t.Fatalf("%+v", g)
	}
	now += second
	take1(r, now-quantum, "b", ask(before, 5))
	if g := take1(r, now, "b", ask(after, 5)); g.Units != 0 {
		t.Error("granted in the new shard before the old one was told")
	}
	now += second
	if g := take1(r, now, "a", ask(before, 5)); g.Units != 0 || g.Bound != delivery.BindHeld {
		t.Errorf("the daemon that does not know of the move: %+v", g)
	}
	for what, of := range []*delivery.Campaign{after, again} {
		sent := int64(0)
		for range 40 { // the engine measures by its own clock when the last slots in the old shard have passed
			time.Sleep(5 * time.Millisecond)
			now += 100_000
			sent += take1(r, now, "b", ask(of, 5)).Units
		}
		if sent < 20 {
			t.Errorf("%d units at 10/s in four seconds after move %d", sent, what+1)
		}
	}
}

// TestACampaignThatMovesKeepsItsRate: its first slot in the new shard comes a spacing after its last one in the old shard, whichever daemon
// had that. From then on it continues after what the daemon asks for.
func TestACampaignThatMovesKeepsItsRate(t *testing.T) {
	perMinute := func(revision int64, q *delivery.Quota) *delivery.Campaign {
		c := campaign(1, q)
		c.Revision, c.Rate = revision<<14, delivery.Rate{N: 1, Per: 60 * second}
		return c
	}
	other := quotaIn(1-homeOf(campaign(1), 2), 1000)
	unlimited := *other
	unlimited.Revision, unlimited.Windows = 0, nil // counts nothing, and its campaigns stay
	for name, c := range map[string]struct{ before, after *delivery.Campaign }{
		"another quota":           {perMinute(1, quotaIn(0, 1000)), perMinute(2, quotaIn(1, 1000))},
		"windows for its quota":   {perMinute(1, &unlimited), perMinute(1, other)},
		"no windows in its quota": {perMinute(1, other), perMinute(1, &unlimited)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRing(t, 2)
			now := settle(r, epoch, c.before)
			g := take1(r, now, "a", ask(c.before, 1))
			if g.Units != 1 {
				t.Fatalf("%+v", g)
			}
			last := g.First.Micros()
			r.Take(now+second, "b", []delivery.Ask{ask(c.before, 0)})
			for now = last + 2*second; now < last+50*second; now += second {
				if g = take1(r, now, "b", ask(c.after, 1)); g.Units != 0 {
					t.Fatalf("a slot %d µs after the last one, at one a minute", g.First.Micros()-last)
				}
				time.Sleep(5 * time.Millisecond) // the engine measures by its own clock when the last slots in the old shard have passed
			}
			now = last + 60*second
			if g = take1(r, now, "b", ask(c.after, 1)); g.Units != 1 || g.First.Micros() < now {
				t.Fatalf("a minute after its last slot: %+v", g)
			}
			ahead := ask(c.after, 1)
			ahead.LastGranted = now + 30*second
			now += 60 * second
			if g = take1(r, now, "b", ahead); g.Units != 0 || g.NextAt != ahead.LastGranted+60*second-horizon {
				t.Errorf("after a slot that it holds: %+v", g)
			}
		})
	}
}

func TestAGateIsClosedInEveryShard(t *testing.T) {
	r := newRing(t, 3)
	asks := perShard(3, 1000)
	for i := range asks {
		asks[i].Gate = "sink"
	}
	r.Take(epoch, "a", asks)
	now := epoch + second
	r.CloseGate(now, "sink", now+second, delivery.GateMisconfigured)
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

func TestClosedGatesAreListed(t *testing.T) {
	r := newRing(t, 3)
	r.now = epoch
	e := r.engine("a")
	list := func() (got []string) {
		t.Helper()
		closed, err := e.Gates(context.Background(), []string{"a", "b", "c", "d"})
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range closed {
			got = append(got, fmt.Sprint(g.Sink, " ", g.Cause, " ", time.Until(g.Until).Round(time.Second)))
		}
		return got
	}
	want := func(want ...string) {
		t.Helper()
		if got := list(); !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	want()
	r.CloseGate(epoch, "b", epoch+60*second, delivery.GateThrottled)
	r.CloseGate(epoch, "c", epoch+second, delivery.GateMisconfigured)
	r.CloseGate(epoch, "d", epoch+300*second, delivery.GateThrottled)
	want("b throttled 1m0s", "c misconfigured 1s", "d throttled 5m0s")
	r.now += 61 * second
	want("b throttled -1s", "c misconfigured -1m0s", "d throttled 3m59s")
	since := func() string {
		t.Helper()
		closed, err := e.Gates(context.Background(), []string{"c"})
		if err != nil || len(closed) != 1 {
			t.Fatalf("%+v, %v", closed, err)
		}
		return time.Since(closed[0].Since).Round(time.Second).String()
	}
	if got := since(); got != "1m1s" {
		t.Errorf("closed for %s", got)
	}
	probe := ask(campaign(1000, quotaIn(0, 1000)), 1)
	probe.Gate = "c"
	r.Take(r.now, "a", []delivery.Ask{probe})                         // a probe
	r.CloseGate(r.now, "c", r.now+second, delivery.GateMisconfigured) // which was refused
	if got := since(); got != "1m1s" {
		t.Errorf("after a probe, closed for %s", got)
	}
	r.CloseGate(r.now, "c", r.now+second, delivery.GateFailing)
	if got := since(); got != "0s" {
		t.Errorf("for another cause, closed for %s", got)
	}
	r.OpenGate("b")
	r.OpenGate("c")
	want("d throttled 3m59s")
	r.OpenGate("d")
	want()
	r.CloseGate(r.now, "d", r.now+second, delivery.GateFailing)
	want("d failing 1s")
}

// peeker returns states of the quotas that are asked for, and counts them.
type peeker struct {
	states []delivery.WindowState
	err    error
	reads  int
}

func (g *peeker) Peek(_ context.Context, quotas []*delivery.Quota) (list []delivery.WindowState, err error) {
	g.reads += len(quotas)
	for _, w := range g.states {
		if slices.ContainsFunc(quotas, func(q *delivery.Quota) bool { return q.ID == w.Quota }) {
			list = append(list, w)
		}
	}
	return list, g.err
}

// gauged is Gauges over a peeker, in a bubble.
type gauged struct {
	*Gauges
	store *peeker
	leads bool
}

func newGauged(quotas int) *gauged {
	s := &delivery.Snapshot{Quotas: map[string]*delivery.Quota{}}
	g := &gauged{store: &peeker{}, leads: true}
	for i := range quotas {
		q := quotaIn(i, 10)
		s.Quotas[q.ID], g.store.states = q, append(g.store.states, delivery.WindowState{Quota: q.ID, Remaining: 10})
	}
	snapshot, leads := func() *delivery.Snapshot { return s }, func() bool { return g.leads }
	g.Gauges = NewGauges(g.store, snapshot, leads, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return g
}

func (g *gauged) run(turns int) {
	for range turns {
		g.update(context.Background())
		time.Sleep(gaugesEvery)
	}
}

func TestGaugesAreRemovedRatherThanWrong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGauged(2)
		count := func(want int, when string) {
			t.Helper()
			if n := testutil.CollectAndCount(g.remaining); n != want || len(g.Latest()) != want {
				t.Errorf("%d windows are shown %s, %d are known, want %d", n, when, len(g.Latest()), want)
			}
		}
		g.run(1)
		count(2, "at first")
		all := g.store.states
		g.store.states, g.store.err = all[:1], errors.New("shard 1 does not answer")
		g.run(int(showFor / gaugesEvery))
		count(2, "while a value is not old yet")
		g.run(2)
		count(1, "when a value is old")
		g.store.states, g.store.err, g.leads = all, nil, false
		g.run(1)
		count(0, "while another daemon leads")
		g.leads = true
		g.run(1)
		count(2, "by one that leads again")
	})
}

// TestIdleQuotasAreReadInTurns: of 400 quotas, one has traffic. It is read each time, the others in turns: that a full window is full again at
// the time of each reading is no traffic.
func TestIdleQuotasAreReadInTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGauged(400)
		states := g.store.states
		left := func(quota int) float64 {
			return testutil.ToFloat64(g.remaining.WithLabelValues(states[quota].Quota, "1h"))
		}
		turns := func(n int) {
			for range n {
				for i := range states {
					states[i].ResetAt = time.Now().UnixMicro()
				}
				states[0].Remaining--
				g.run(1)
				if n := left(0); n != float64(states[0].Remaining) {
					t.Fatalf("%v units remain, want %d", n, states[0].Remaining)
				}
			}
		}
		turns(2 * (stillAfter + 1))
		g.store.reads = 0
		turns(40)
		if most := 40 * (400/sweepTurns + 1); g.store.reads > most {
			t.Errorf("%d quotas are read in 40 turns, want at most %d", g.store.reads, most)
		}
		states[17].Remaining = 5
		turns(sweepTurns)
		if n := left(17); n != 5 || len(g.Latest()) != 400 {
			t.Errorf("%v units of a quota with traffic again, %d windows", n, len(g.Latest()))
		}
	})
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

// TestALostShardHoldsNobodyForLong: a campaign has left a shard that does not answer any more.
func TestALostShardHoldsNobodyForLong(t *testing.T) {
	h := homes{known: map[string]*home{}}
	before, after := campaign(1000, quotaIn(0, 1)), campaign(1000, quotaIn(1, 1))
	a, b := ask(before, 1), ask(after, 1)
	h.at(&a, 2, 0)
	x := h.at(&b, 2, 1)
	if !slices.Equal(x.left, []int{0}) || x.tell != 1+waitFor {
		t.Errorf("%+v", x)
	}
	if x = h.at(&a, 2, 2); !slices.Equal(x.left, []int{1}) {
		t.Errorf("after it has moved back: %+v", x)
	}
}
