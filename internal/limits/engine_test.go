package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/limits/local"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// lossyConn loses replies and requests. Of a lost reply the command has reached Redis. In both cases the connection ends.
type lossyConn struct {
	net.Conn
	replies, requests *atomic.Int64 // that are lost from now on
}

func losing(replies, requests *atomic.Int64) func(net.Conn) net.Conn {
	return func(c net.Conn) net.Conn { return lossyConn{c, replies, requests} }
}

func (c lossyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil && c.replies.Add(-1) >= 0 {
		_ = c.Conn.Close()
		return 0, errors.New("the reply is lost")
	}
	return n, err
}

func (c lossyConn) Write(b []byte) (int, error) {
	if c.requests.Add(-1) >= 0 {
		_ = c.Conn.Close()
		return 0, errors.New("the request is lost")
	}
	return c.Conn.Write(b)
}

func TestALateScriptIsRefused(t *testing.T) {
	_, client := miniClient(t)
	l := newLua(t, client)
	e := l.engine("a")
	l.now = epoch
	shard := e.shards[0]
	slot := shard.free[0]
	run := func(seq int64) *call {
		slot.seq = seq
		b := newTakeBatch(shard.keys, epoch)
		a := ask(campaign(1000), 10)
		b.ask(&a, 1, &delivery.Granted{})
		c := b.call(e.node, slot)
		shard.run(context.Background(), takeScript, []*call{c})
		return c
	}
	first := run(1)
	l.now += second
	if again := run(1); again.reply != first.reply || again.err != nil {
		t.Errorf("repeated: %q, %v; first %q", again.reply, again.err, first.reply)
	}
	if c := run(2); c.err != nil || c.reply == first.reply {
		t.Errorf("%+v", c)
	}
	if c := run(1); c.err == nil || !strings.Contains(c.err.Error(), "STALESEQ") {
		t.Errorf("a script whose slot has gone on was run: %+v", c)
	}
}

// pipelines counts the round trips of scripts, and the scripts.
type pipelines struct{ trips, scripts int }

func (p *pipelines) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (p *pipelines) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (p *pipelines) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if strings.HasPrefix(cmds[0].Name(), "eval") {
			p.trips++
			p.scripts += len(cmds)
		}
		return next(ctx, cmds)
	}
}

func TestConcurrentTakesNeverOverGrant(t *testing.T) {
	client := realClient(t)
	e := newEngine(t, Options{Shards: shards.New(client), KeyPrefix: testservices.Unique("limits"), Timeout: 5 * time.Second})
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(500, time.Hour)}
	var granted atomic.Int64
	var wg sync.WaitGroup
	for i := range 100 {
		wg.Go(func() {
			c := campaign(100_000, q)
			c.ID = string(rune('A' + i%50))
			for range 20 {
				r, err := e.Take(context.Background(), []delivery.Ask{ask(c, 3)})
				if err != nil && !redis.HasErrorPrefix(err, "CLOCK") { // it waited too long for a connection
					t.Error(err)
					return
				}
				granted.Add(r.Items[0].Units)
			}
		})
	}
	wg.Wait()
	if n := granted.Load(); n > 500 || n < 490 {
		t.Errorf("granted %d of 500", n)
	}
}

// TestNoAnswerComesBeforeTheClock: a caller needs the clock before a reply's time to ask again. Without it, the campaign is put off by
// the difference of the clocks, maybe decades.
func TestNoAnswerComesBeforeTheClock(t *testing.T) {
	long := &delivery.Quota{ID: "long", Revision: 1, Windows: windows(1_000, time.Hour)}
	none := &delivery.Quota{ID: "none", Revision: 1, Mode: delivery.ModeEventual, Windows: windows(0, time.Hour)}
	for _, q := range []*delivery.Quota{long, none} {
		t.Run(q.ID, func(t *testing.T) {
			client := redis.NewUniversalClient(shards.ClientOptions(testservices.FreshRedis(t).Addr))
			defer func() { _ = client.Close() }()
			quotas := func() []*delivery.Quota { return []*delivery.Quota{q} }
			e := newEngine(t, Options{Shards: shards.New(client), Ledger: limitstest.NewLedger(), Quotas: quotas})
			ctx, cancel := context.WithCancel(context.Background())
			var running sync.WaitGroup
			running.Go(func() { _ = e.Run(ctx) })
			defer running.Wait()
			defer cancel()
			for until := time.Now().Add(5 * time.Second); time.Now().Before(until); time.Sleep(5 * time.Millisecond) {
				reply, err := e.Take(ctx, []delivery.Ask{ask(campaign(1000, q), 10)})
				if err != nil {
					continue // the data is being looked for
				}
				if g := reply.Items[0]; len(reply.Clocks) != 1 || g.Units == 0 && g.NextAt <= g.GrantedAt {
					t.Errorf("%+v", reply)
				}
				return
			}
			t.Error("no answer")
		})
	}
}

// TestTheLongestIdsShareAQuota: an id of 256 characters has a length that does not fit into a byte.
func TestTheLongestIdsShareAQuota(t *testing.T) {
	l := newLua(t, realClient(t))
	q := &delivery.Quota{ID: strings.Repeat("q", delivery.MaxIDLength), Revision: 1, Windows: windows(20, time.Second)}
	long, short := campaign(1000, q), campaign(1000, q)
	long.ID = strings.Repeat("x", delivery.MaxIDLength)
	now, units := settle(l, epoch, long), [2]int64{}
	for range 400 {
		now += quantum
		for i, g := range l.Take(now, "a", []delivery.Ask{ask(long, 5), ask(short, 5)}).Items {
			units[i] += g.Units
		}
	}
	if units[0] != units[1] || units[0] < 80 {
		t.Errorf("the long id got %d, the short one %d", units[0], units[1])
	}
}

// TestNothingIsTakenBeforeDebtsArePaid: a store that is back does not know what was sent without it.
func TestNothingIsTakenBeforeDebtsArePaid(t *testing.T) {
	client := realClient(t)
	charges := &refusal{sha: chargeScript.Hash()}
	client.AddHook(charges)
	l := newLua(t, client)
	e := l.engine("a")
	c := campaign(100, &delivery.Quota{ID: "q", Revision: 1, OnStoreFailure: delivery.PolicyLocalShare, Windows: windows(10_000, time.Hour)})
	serving, now := model.NewStore(), epoch
	for ; now < epoch+5*second; now += quantum {
		asks := []delivery.Ask{ask(c, 1)}
		reply := serving.Take(now, "n", asks)
		e.fallback.Observe(asks, &reply)
	}
	for end := now + 5*second; now < end; now += quantum {
		a, g := ask(c, delivery.MaxGrant), delivery.Granted{}
		e.fallback.Grant(now, &a, &g)
	}
	charges.on.Store(true)
	l.now = now + second
	reply, err := e.Take(context.Background(), []delivery.Ask{ask(c, 10)})
	if g := reply.Items[0]; err == nil || g.GrantedAt > 0 && g.From.Epoch != local.Epoch {
		t.Errorf("the charge failed, and yet: %+v, %v", g, err)
	}
	charges.on.Store(false)
	var takes sync.WaitGroup
	for range 8 {
		takes.Go(func() {
			reply, err := e.Take(context.Background(), []delivery.Ask{ask(c, 0)})
			for until := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(until); { // the shard is still to be found again
				time.Sleep(10 * time.Millisecond)
				reply, err = e.Take(context.Background(), []delivery.Ask{ask(c, 0)})
			}
			if err != nil || reply.Items[0].Windows[0].Remaining > 9_600 {
				t.Errorf("a take that came while the charge was under way: %+v, %v", reply.Items, err)
			}
		})
	}
	takes.Wait()
}

// refusal fails the pipelines of one script, while it is on, and holds them up for a moment otherwise.
type refusal struct {
	sha string
	on  atomic.Bool
}

func (r *refusal) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (r *refusal) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (r *refusal) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if args := cmds[0].Args(); len(args) < 2 || args[1] != r.sha {
			return next(ctx, cmds)
		}
		if !r.on.Load() {
			time.Sleep(20 * time.Millisecond)
			return next(ctx, cmds)
		}
		err := errors.New("refused")
		for _, c := range cmds {
			c.SetErr(err)
		}
		return err
	}
}

func TestValidate(t *testing.T) {
	ok := delivery.Window{Span: time.Minute, Limit: 1}
	for _, tc := range []struct {
		name string
		q    delivery.Quota
		want string // "" = valid
	}{
		{"plain", delivery.Quota{ID: "q", Windows: []delivery.Window{ok}, Mode: "strict", Spend: "greedy"}, ""},
		{"no windows", delivery.Quota{ID: "q"}, ""},
		{"algorithm", delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: time.Minute, Algorithm: "leaky"}}},
			`algorithm "leaky" is not sliding, fixed or log`},
		{"span", delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: time.Microsecond}}}, "the span must lie between 1ms"},
		{"nanoseconds", delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: time.Minute + 1}}}, "in whole microseconds"},
		{"limit", delivery.Quota{ID: "q", Windows: []delivery.Window{{Span: time.Minute, Limit: -1}}}, "the limit must lie between 0"},
		{"twice", delivery.Quota{ID: "q", Windows: []delivery.Window{ok, ok}}, "two windows of 1m"},
		{"mode", delivery.Quota{ID: "q", Mode: "lax"}, `mode "lax" must be one of [strict shadow eventual]`},
		{"shadow", delivery.Quota{ID: "q", Mode: "shadow"}, ""},
		{"bytes", delivery.Quota{ID: "q", Unit: "bytes"}, `unit "bytes" is for mode "eventual"`},
		{"shard", delivery.Quota{ID: "q", Shard: -1}, "shard must not be negative"},
	} {
		err := Validate(&tc.q)
		if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", tc.name, err, tc.want)
		}
	}
}

func TestGaugesFollowTheCatalog(t *testing.T) {
	_, client := miniClient(t)
	l := newLua(t, client)
	l.now = epoch
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(5, time.Hour, 100, 7*24*time.Hour)}
	snapshot := &delivery.Snapshot{Quotas: map[string]*delivery.Quota{"q": q, "empty": {ID: "empty"}}}
	reg := prometheus.NewRegistry()
	g := NewGauges(l.engine("a"), func() *delivery.Snapshot { return snapshot }, func() bool { return true }, slog.New(slog.DiscardHandler), reg)
	c := campaign(1000, q)
	now := settle(l, epoch, c)
	take1(l, now, "a", ask(c, 3))
	g.update(context.Background())
	if n := testutil.ToFloat64(g.remaining.WithLabelValues("q", "1h")); n != 2 {
		t.Errorf("remaining %v", n)
	}
	if n := testutil.ToFloat64(g.limit.WithLabelValues("q", "7d")); n != 100 {
		t.Errorf("limit %v", n)
	}
	if n := testutil.ToFloat64(g.reset.WithLabelValues("q", "1h")); n < float64(now)/1e6+3600 || n > float64(now)/1e6+3700 {
		t.Errorf("reset %v", n)
	}
	fixed := *q
	fixed.Revision, fixed.Windows = 2, windows(5, time.Hour, 100, 7*24*time.Hour)
	fixed.Windows[0].Algorithm = delivery.AlgorithmFixed
	snapshot = &delivery.Snapshot{Quotas: map[string]*delivery.Quota{"q": &fixed}}
	g.update(context.Background())
	if n := testutil.ToFloat64(g.span.WithLabelValues("q", "1h", delivery.AlgorithmFixed)); n != 3600 {
		t.Errorf("the window has %v seconds", n)
	}
	if n := testutil.CollectAndCount(g.span); n != 2 {
		t.Errorf("%d lengths of two windows, of which one has another algorithm now", n)
	}
	snapshot = &delivery.Snapshot{}
	g.update(context.Background())
	if n := testutil.CollectAndCount(reg, "pacer_quota_window_seconds", "pacer_quota_remaining", "pacer_quota_limit",
		"pacer_quota_reset_timestamp_seconds"); n != 0 {
		t.Errorf("%d series of a quota that is gone", n)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := g.Run(ctx); err != nil {
		t.Error(err)
	}
}

// TestAFailureOfManyScriptsIsSaidOnce: what is logged of a take does not grow with its campaigns.
func TestAFailureOfManyScriptsIsSaidOnce(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	e := newEngine(t, Options{Shards: shards.New(client), KeyPrefix: "limits"})
	asks := make([]delivery.Ask, 300)
	for i := range asks {
		c := campaign(10)
		c.ID = fmt.Sprint(i)
		asks[i] = ask(c, 1)
	}
	_, err := e.Take(t.Context(), asks)
	if err == nil || !strings.HasPrefix(err.Error(), "take 300 campaigns: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("%v", err)
	}
}

func TestBothRepliesLostIsAnErrorAndTheNextTakeWorks(t *testing.T) {
	m, _ := miniClient(t)
	var replies, requests atomic.Int64
	e := newEngine(t, Options{Shards: shards.New(clientOf(t, m.Addr(), losing(&replies, &requests))), KeyPrefix: "p."})
	replies.Store(10)
	r, err := e.Take(context.Background(), []delivery.Ask{ask(campaign(10), 1)})
	if err == nil || r.Items[0].GrantedAt != 0 || r.Items[0].Units != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	replies.Store(0)
	await(t, "the next take", func() bool {
		_, err = e.Take(context.Background(), []delivery.Ask{ask(campaign(10), 1)})
		return err == nil
	})
}

// TestDenialsAreCounted: those of quotas, and the units that quotas in shadow mode would have made wait.
func TestDenialsAreCounted(t *testing.T) {
	_, client := miniClient(t)
	l := newLua(t, client)
	strict, four, seven := quotaIn(0, 5), quotaIn(1, 4), quotaIn(2, 7)
	four.Mode, seven.Mode = delivery.ModeShadow, delivery.ModeShadow
	c, shadowed := campaign(1000, strict), campaign(1000, four, seven)
	shadowed.ID = "shadowed"
	settle(l, epoch, c)
	now := settle(l, epoch, shadowed)
	take1(l, now, "a", ask(c, 50))
	if g := take1(l, now, "a", ask(shadowed, 10)); g.Units != 10 || len(g.Shadowed) != 2 {
		t.Errorf("%+v", g)
	}
	m := l.engine("a").m
	denied := testutil.ToFloat64(m.denied.WithLabelValues("q0", "1h"))
	waited := []float64{testutil.ToFloat64(m.shadowDenied.WithLabelValues("q1")), testutil.ToFloat64(m.shadowDenied.WithLabelValues("q2"))}
	if denied != 1 || !slices.Equal(waited, []float64{6, 3}) {
		t.Errorf("denied %v times, %v units would have waited", denied, waited)
	}
}

// TestADenialOfAnEventualQuotaNamesItsWindow: the one that makes the campaign wait.
func TestADenialOfAnEventualQuotaNamesItsWindow(t *testing.T) {
	_, client := miniClient(t)
	l := newLua(t, client)
	q := &delivery.Quota{ID: "q", Revision: 1, Mode: delivery.ModeEventual, Windows: windows(1000, time.Second, 5, time.Hour)}
	c := campaign(1000, q)
	now := settle(l, epoch, c)
	if g := take1(l, now, "a", ask(c, 1)); g.Units != 1 {
		t.Fatalf("%+v", g)
	}
	if g := take1(l, now, "a", ask(c, 1)); g.Bound != delivery.BindQuota || g.BoundQuota != "q" || g.BoundWindow != 1 {
		t.Errorf("%+v", g)
	}
	if n := testutil.ToFloat64(l.engine("a").m.denied.WithLabelValues("q", "1h")); n != 1 {
		t.Errorf("%v denials by the hour", n)
	}
}
