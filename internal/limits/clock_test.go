package limits

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// TestScriptsRefuseAClockThatHasJumped: what a script makes of Redis' clock, given what it read before and what is foretold.
func TestScriptsRefuseAClockThatHasJumped(t *testing.T) {
	client := realClient(t) // miniredis does not say which process it is
	k, raw := newKeys("clock-"+newLua(t, client).prefix, 0), epoch
	r := runner{client: client, timeout: 5 * time.Second, override: func() int64 { return raw }}
	must(t, (&shard{master: r}).runUnchecked(context.Background(), restoreScript, nil, encodeRestore(k, 1, nil, epoch, firstPart|lastPart)))
	for i, step := range []struct {
		what      string
		raw       int64
		low, high int64
		witness   bool
		now       int64  // 0: refused
		refused   string // with these words
	}{
		{"the first reading", epoch, 0, 0, false, epoch, ""},
		{"as foretold", epoch + 1000, epoch + 900, epoch + 1100, false, epoch + 1000, ""},
		{"less than a second off", epoch + 900_000, epoch + 2000, epoch + 2100, false, epoch + 900_000, ""},
		{"back by less than a second: it stands", epoch + 100_000, epoch + 1_000_000, epoch + 1_000_000, true, epoch + 900_000, ""},
		{"on, by the word of one that knows", epoch + 950_000, epoch + 950_000, epoch + 950_000, true, epoch + 950_000, ""},
		{"forward by 9 s", epoch + 10*second, epoch + second, epoch + second, true, 0, fmt.Sprintf("CLOCK %d %d", epoch+10*second, 9*second+50_000)},
		{"forward, to one who does not know", epoch + 10*second, 0, 0, false, epoch + 10*second, ""},
		{"back by 5 s", epoch + 5*second, 0, 0, false, 0, "CLOCK"},
	} {
		raw = step.raw
		c := &call{
			head: header{seq: int64(i + 1), low: step.low, high: step.high, witness: step.witness, epoch: 1},
			keys: []string{k.clock(), k.reply("n", 0)}, args: []any{"n", "", "", 0},
		}
		r.attempt(context.Background(), takeScript, []*call{c})
		if step.now == 0 {
			if !redis.HasErrorPrefix(c.err, step.refused) {
				t.Errorf("%s: %v, want %s", step.what, c.err, step.refused)
			}
			continue
		}
		if c.err != nil {
			t.Fatalf("%s: %v", step.what, c.err)
		}
		in := reader{rest: c.reply}
		in.next(7)
		if now := in.next(7); now != step.now {
			t.Errorf("%s: the clock reads %d, want %d", step.what, now-epoch, step.now-epoch)
		}
	}
}

// world is a Redis whose clock can be set, and daemons whose machines can stand still.
type world struct {
	t       *testing.T
	client  redis.UniversalClient
	prefix  string
	records *limitstest.Ledger
	passed  atomic.Int64 // for all, besides real time
	off     atomic.Int64 // of Redis' clock
	quotas  []*delivery.Quota
	timeout time.Duration // of an attempt; 0: the default
}

func newWorld(t *testing.T, client redis.UniversalClient, quotas ...*delivery.Quota) *world {
	return &world{t: t, client: client, prefix: testservices.Unique("world") + ".", records: limitstest.NewLedger(), quotas: quotas}
}

// node starts a daemon. asleep is for how long its machine has stood still.
func (w *world) node() (e *Engine, asleep *atomic.Int64) {
	w.t.Helper()
	asleep = &atomic.Int64{}
	e = newEngine(w.t, Options{
		Shards: shards.New(w.client), KeyPrefix: w.prefix, Ledger: w.records,
		Quotas: func() []*delivery.Quota { return w.quotas }, Timeout: w.timeout,
		now: func() int64 { return time.Now().UnixMicro() + w.passed.Load() + w.off.Load() },
	})
	e.shards[0].master.uptime = func() int64 { return uptime() + w.passed.Load() - asleep.Load() }
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	w.t.Cleanup(func() { cancel(); running.Wait() })
	return e, asleep
}

// incarnation names the data, and changes with each recovery.
func (w *world) incarnation() int64 {
	is, _ := w.records.Epoch(context.Background(), 0)
	return is.Epoch
}

// grant asks until it has got the wanted units, or the time is over.
func grant(e *Engine, c *delivery.Campaign, want int64, within time.Duration) (got int64) {
	for until := time.Now().Add(within); got < want && time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
		if r, err := e.Take(context.Background(), []delivery.Ask{ask(c, min(want-got, 50))}); err == nil {
			got += r.Items[0].Units
		}
	}
	return got
}

// TestClocksThatJump: Redis' clock jumps forward and back, and is set right again, while two daemons ask. On the clock of the world no
// window ever holds more than its limit, what has room is sent soon after each jump, and days are those of Redis' clock.
func TestClocksThatJump(t *testing.T) {
	testservices.RealTime(t)
	t.Parallel()
	for _, by := range [][]time.Duration{{3 * time.Second, 0}, {-5 * time.Second, 0}, {3 * time.Hour, 0}, {-3 * time.Hour, 20 * time.Minute}} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			t.Parallel()
			q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(50, time.Second, 120, 4*time.Second, 100_000, time.Hour)}
			c := campaign(200, q)
			w := newWorld(t, realClient(t), q)
			a, _ := w.node()
			b, _ := w.node()
			var sent []int64
			ask := func(d time.Duration) (n int64) {
				for until := time.Now().Add(d); time.Now().Before(until); time.Sleep(10 * time.Millisecond) {
					for _, e := range []*Engine{a, b} {
						r, err := e.Take(context.Background(), []delivery.Ask{ask(c, 10)})
						if err != nil || r.Items[0].GrantedAt == 0 {
							continue
						}
						at := r.Items[0].GrantedAt - w.off.Load()
						if late := time.Now().UnixMicro() - at; late > 2*second || late < -second {
							t.Fatalf("granted %d µs before the time of redis", late)
						}
						n += r.Items[0].Units
						sent = append(sent, slices.Repeat([]int64{at}, int(r.Items[0].Units))...)
					}
				}
				return n
			}
			if n := ask(5 * time.Second); n < 120 {
				t.Fatalf("%d at first", n)
			}
			for _, to := range by {
				w.off.Store(to.Microseconds())
				if n := ask(9 * time.Second); n < 120 {
					t.Errorf("%d in 9 s after the clock was set to %s", n, to)
				}
			}
			slices.Sort(sent)
			for _, w := range q.Windows {
				if most := rolling(sent, w.Span.Microseconds()); most > w.Limit {
					t.Errorf("%d in a rolling %s, limit %d", most, w.Span, w.Limit)
				}
			}
		})
	}
}

// TestAClockThatIsAheadForgetsNothing: a fail-over to a server whose clock is ahead, with all data, or without. Use within a span counts,
// after a second loss too.
func TestAClockThatIsAheadForgetsNothing(t *testing.T) {
	testservices.RealTime(t)
	t.Parallel()
	for _, emptied := range []bool{false, true} {
		t.Run(fmt.Sprint(emptied), func(t *testing.T) {
			t.Parallel()
			r := testservices.FreshRedis(t)
			client := clientOf(t, r.Addr)
			fixed := delivery.Window{Span: 2 * time.Hour, Limit: 80, Algorithm: delivery.AlgorithmFixed}
			q := &delivery.Quota{ID: "q", Revision: 1, Windows: append(windows(50, time.Hour), fixed)}
			c := campaign(400, q)
			w := newWorld(t, client, q)
			e, _ := w.node()
			if n := grant(e, c, 51, 3*time.Second); n != 50 {
				t.Fatalf("%d of 50", n)
			}
			time.Sleep(1500 * time.Millisecond) // the ledger is written
			w.passed.Add((45 * time.Minute).Microseconds())
			if n := grant(e, c, 1, 500*time.Millisecond); n != 0 {
				t.Fatalf("%d more within the hour", n)
			}
			for i, ahead := range []time.Duration{20 * time.Minute, 20 * time.Minute, 3 * time.Hour} {
				w.off.Store(ahead.Microseconds())
				r.Kill()
				r.Start(t)
				if emptied {
					r.Flush(t)
				}
				if n := grant(e, c, 1, 4*time.Second); n != 0 {
					t.Errorf("%d more after loss %d", n, i+1)
				}
			}
			w.passed.Add((17 * time.Minute).Microseconds())
			if n := grant(e, c, 51, 3*time.Second); n != 30 {
				t.Errorf("%d after the hour, want the 30 that two hours have left", n)
			}
		})
	}
}

// TestAMachineThatStoodStill: the clock that a daemon foretells is behind, since its machine slept. It believes another one that saw the
// store's clock all the time, and nothing is rebuilt.
func TestAMachineThatStoodStill(t *testing.T) {
	t.Parallel()
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(1_000_000, time.Hour)}
	c := campaign(400, q)
	w := newWorld(t, realClient(t), q)
	a, asleep := w.node()
	b, _ := w.node()
	both := func() {
		for range 10 {
			if grant(a, c, 1, time.Second) != 1 || grant(b, c, 1, time.Second) != 1 {
				t.Fatal("not granted")
			}
		}
	}
	both()
	w.passed.Add(witnessAfter + second)
	both()
	asleep.Store(5 * second)
	began := w.incarnation()
	both()
	if w.incarnation() != began {
		t.Error("the windows were rebuilt")
	}
}

// TestAWrongClockIsNamed: by a line and a metric, once.
func TestAWrongClockIsNamed(t *testing.T) {
	w := newWorld(t, realClient(t))
	w.off.Store(20 * second)
	e, _ := w.node()
	grant(e, campaign(400), 1, 3*time.Second)
	var log strings.Builder
	looks, off := &Engine{shards: e.shards, m: e.m, log: slog.New(slog.NewTextHandler(&log, nil))}, map[int]bool{}
	looks.compareClocks(off)
	looks.compareClocks(off)
	if n := testutil.ToFloat64(e.m.clockOffset.WithLabelValues("0")); n < 19 || n > 21 || strings.Count(log.String(), "level=WARN") != 1 {
		t.Errorf("20 s ahead: %v s; %s", n, log.String())
	}
}

// TestARequestThatIsLate: on a busy machine a request may be under way for longer than what the scripts take for a jump. It is repeated.
func TestARequestThatIsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, realClient(t))
	w.timeout = 10 * time.Second
	var late delay
	w.client.AddHook(&late)
	e, _ := w.node()
	c := campaign(200)
	if n := grant(e, c, 1, 3*time.Second); n != 1 {
		t.Fatal("nothing is granted")
	}
	began := w.incarnation()
	late.by.Store(int64(1500 * time.Millisecond))
	if n := grant(e, c, 1, 3*time.Second); n != 1 || w.incarnation() != began || late.by.Load() > 0 {
		t.Errorf("%d units for a request that was late, want 1 and no recovery", n)
	}
}

// delay holds up the next scripts on their way to the store.
type delay struct{ by atomic.Int64 }

func (l *delay) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (l *delay) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }
func (l *delay) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		time.Sleep(time.Duration(l.by.Swap(0)))
		return next(ctx, commands)
	}
}
