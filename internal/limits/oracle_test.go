package limits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// TestNoWindowEverHoldsMoreThanItsLimit is about the exact log of what was granted and of what was dispatched, up to
// late_tolerance late, by several daemons and campaigns, for every algorithm and kind of load.
func TestNoWindowEverHoldsMoreThanItsLimit(t *testing.T) {
	t.Parallel()
	two := func(algorithm string) []delivery.Window {
		return []delivery.Window{
			{Span: time.Second, Limit: 40, Algorithm: algorithm}, {Span: 5 * time.Second, Limit: 150, Algorithm: algorithm},
		}
	}
	minute := []delivery.Window{{Span: time.Minute, Limit: 300, Algorithm: delivery.AlgorithmFixed, Anchor: "minute@Europe/Moscow"}}
	for _, tc := range []struct {
		name    string
		windows []delivery.Window
		least   int64 // units a second in the long run, saturated
	}{
		{"sliding", two(delivery.AlgorithmSliding), 27},
		{"log", two(delivery.AlgorithmLog), 27},
		{"fixed", two(delivery.AlgorithmFixed), 27},
		{"calendar", minute, 4},
	} {
		for _, load := range []string{"saturated", "bursty", "refunding"} {
			t.Run(tc.name+"/"+load, func(t *testing.T) {
				simulate(t, func(t *testing.T, s store) {
					q := &delivery.Quota{ID: "q", Revision: 1, Windows: tc.windows}
					var asks []delivery.Ask
					for i := range 2 {
						c := campaign(200, q)
						c.ID = fmt.Sprint(i)
						asks = append(asks, ask(c, 0))
						asks[i].Horizon = quantum
					}
					f := newFleet(t, s, 3, asks...)
					f.bursty, f.returns = load == "bursty", load == "refunding"
					lasts := length(s, 180, 6)
					end := epoch + lasts
					f.run(end)
					f.finish(end + second)
					f.obeys(q)
					if least := tc.least * lasts / second; load == "saturated" && int64(len(f.sent)) < least {
						t.Errorf("only %d sent, want %d", len(f.sent), least)
					}
				})
			})
		}
	}
}

// TestEveryUnitIsAccountedFor: granted = dispatched + refunded + expired, and all windows were debited alike, though
// the first of them is refused most of the time.
func TestEveryUnitIsAccountedFor(t *testing.T) {
	simulate(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(1<<40, 24*time.Hour, 1<<40, time.Hour, 1<<40, 31*24*time.Hour)}
		tight := &delivery.Quota{ID: "tight", Revision: 1, Windows: windows(40, time.Second, 150, 5*time.Second)}
		c, other := campaign(200, q, tight), campaign(300, q)
		other.ID = "other"
		f := newFleet(t, s, 3, ask(c, 0), ask(other, 0))
		f.returns = true
		end := epoch + length(s, 60, 5)
		f.run(end)
		f.finish(end)
		if f.refunded == 0 || f.expired == 0 {
			t.Fatalf("refunded %d, expired %d: the test shows nothing", f.refunded, f.expired)
		}
		f.conserved(end, q)
	})
}

// TestRepliesLostAtRandomDebitOnce: takes and refunds whose request or reply is lost are repeated under their sequence
// number, and count once, on several daemons.
func TestRepliesLostAtRandomDebitOnce(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	l := &lossy{rnd: rand.New(rand.NewPCG(5, 5)), replies: &atomic.Int64{}, requests: &atomic.Int64{}}
	o := shards.ClientOptions(testservices.RedisAddr(t))
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return deaf{mute{c, l.requests}, l.replies}, err
	}
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = client.Close() })
	l.store = newLua(t, client)
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(1<<40, time.Hour, 1<<40, 24*time.Hour)}
	f := newFleet(t, l, 3, ask(campaign(500, q), 0))
	f.returns = true
	end := epoch + 8*second
	f.run(end)
	f.finish(end)
	f.conserved(end, q)
	if l.lostReply < 50 || l.lostCall < 50 || f.asked < 3000 {
		t.Errorf("lost %d replies and %d requests of %d units: too few to show anything", l.lostReply, l.lostCall, f.asked)
	}
}

// TestPeekWritesNothing: not a byte of what the store keeps changes, the clock included.
func TestPeekWritesNothing(t *testing.T) {
	l := newLua(t, realClient(t))
	used := &delivery.Quota{ID: "used", Revision: 1, Windows: windows(100, time.Second, 1000, time.Hour)}
	fresh := &delivery.Quota{ID: "fresh", Revision: 1, Windows: windows(5, time.Minute)}
	c := campaign(1000, used)
	now := settle(l, epoch, c)
	take1(l, now, "a", ask(c, 50))
	before := l.bytes()
	for i := range int64(10) {
		l.Peek(now+i*700_000, []*delivery.Quota{used, fresh}) // beyond the short window's end
	}
	newer := *used
	newer.Revision, newer.Windows = 2, windows(7, time.Second, 7, time.Hour)
	l.Peek(now, []*delivery.Quota{&newer})
	if after := l.bytes(); before != after {
		t.Errorf("was\n%s\nis\n%s", before, after)
	}
}

// bytes is all that the store keeps under the test's prefix.
func (l *lua) bytes() string {
	l.t.Helper()
	client := l.shards.Master(0)
	keys, err := client.Keys(context.Background(), "*"+l.prefix+"*").Result()
	if err != nil || len(keys) == 0 {
		l.t.Fatalf("keys: %v, %v", keys, err)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		v, err := client.Get(context.Background(), k).Result()
		if err != nil {
			l.t.Fatal(err)
		}
		fmt.Fprintf(&b, "%s %x\n", k, v)
	}
	return b.String()
}

// TestADenialLeavesNoTrace: a campaign that was refused a hundred times, and peeked at, is granted afterwards exactly
// what one is granted that never asked in between.
func TestADenialLeavesNoTrace(t *testing.T) {
	for _, algorithm := range []string{delivery.AlgorithmSliding, delivery.AlgorithmLog, delivery.AlgorithmFixed} {
		t.Run(algorithm, func(t *testing.T) {
			simulate(t, func(t *testing.T, s store) {
				world := func(id string) (*delivery.Campaign, *delivery.Quota) {
					q := &delivery.Quota{ID: id, Revision: 1, Windows: []delivery.Window{
						{Span: time.Second, Limit: 20, Algorithm: algorithm}, {Span: 10 * time.Second, Limit: 60, Algorithm: algorithm},
					}}
					c := campaign(1000, q)
					c.ID = id
					return c, q
				}
				quiet, quietQuota := world("quiet")
				pest, pestQuota := world("pest")
				settle(s, epoch, quiet)
				now := settle(s, epoch, pest)
				for round := range 3 {
					want, got := take1(s, now, "a", ask(quiet, 30)), take1(s, now, "a", ask(pest, 30))
					if got.Units != want.Units || got.First != want.First || got.NextAt != want.NextAt {
						t.Errorf("round %d: %+v; without denials %+v", round, got, want)
					}
					for k := range int64(100) {
						if g := take1(s, now+k*9_000, "a", ask(pest, 30)); g.Units != 0 {
							t.Fatalf("round %d: granted %d more", round, g.Units)
						}
						s.Peek(now+k*9_000+1, []*delivery.Quota{pestQuota})
					}
					was, is := s.Peek(now+900_000, []*delivery.Quota{quietQuota}), s.Peek(now+900_000, []*delivery.Quota{pestQuota})
					for i := range was {
						if is[i].Remaining != was[i].Remaining || is[i].ResetAt != was[i].ResetAt {
							t.Errorf("round %d: %+v; without denials %+v", round, is, was)
						}
					}
					now += 4 * second
				}
			})
		})
	}
}

// TestTheGridOfRatesAndQuanta: at least 99.5 % of every rate is delivered with every quantum, by one daemon and by
// three.
func TestTheGridOfRatesAndQuanta(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	for _, rate := range []struct {
		micros  int64
		per     time.Duration
		seconds int64
	}{
		{150_000_000, time.Second, 30},
		{2_310_000, time.Second, 900},
		{1_000_000, time.Hour, 300 * 3600},
		{250_000_000_000, time.Second, 2},
		{33_333_333_333, time.Second, 2},
		{150_000_000, time.Minute, 300},
	} {
		for _, q := range []int64{10_000, 25_000, 40_000, 250_000} {
			for _, daemons := range []int64{1, 3} {
				t.Run(fmt.Sprintf("%gper%s/%dms/%d", float64(rate.micros)/1e6, rate.per, q/1000, daemons), func(t *testing.T) {
					r, err := delivery.NewRate(rate.micros, rate.per)
					if err != nil {
						t.Fatal(err)
					}
					c := &delivery.Campaign{ID: "c", Revision: 1, Rate: r}
					s := model.NewStore()
					begin := settle(s, epoch, c)
					due := make([]int64, daemons)
					for i := range due {
						due[i] = begin + int64(i)*q/daemons
					}
					var got int64
					for {
						i := slices.Index(due, slices.Min(due))
						now := due[i]
						if now >= begin+rate.seconds*second {
							break
						}
						a := ask(c, delivery.MaxGrant)
						a.Quantum, a.Horizon = q, 3*q
						g := take1(s, now, fmt.Sprint(i), a)
						got += g.Units
						due[i] = max(now+q, g.NextAt)
					}
					want := r.UnitsIn(time.Duration(rate.seconds) * time.Second)
					if ahead := r.UnitsIn(time.Duration(3*q) * time.Microsecond); got*1000 < want*995 || got > want+ahead+1 {
						t.Errorf("granted %d, want %d", got, want)
					}
				})
			}
		}
	}
}

// TestFreshAndLongIdleKeysGrantAtOnce: a quota that is new, or idle for long, has all its units. A campaign with a burst of 1 is granted;
// one of rate 0 never is.
func TestFreshAndLongIdleKeysGrantAtOnce(t *testing.T) {
	for _, algorithm := range []string{delivery.AlgorithmSliding, delivery.AlgorithmLog, delivery.AlgorithmFixed} {
		t.Run(algorithm, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s store) {
				q := &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: time.Hour, Limit: 9, Algorithm: algorithm}}}
				c, still := campaign(1000, q), campaign(0, q)
				c.Burst, still.ID = 1, "still"
				now := epoch
				for _, idle := range []int64{0, 3 * 3600 * second, 400 * 24 * 3600 * second} {
					now += idle
					g := take1(s, now, "a", ask(c, 100))
					wait := g.First.Micros() - now
					if g.Units != 9 || wait > c.Rate.Spacing() {
						t.Errorf("after %d s: granted %d, the first in %d µs", idle/second, g.Units, wait)
					}
					if g = take1(s, now, "a", ask(still, 1)); g.Units != 0 || g.Bound != delivery.BindHeld {
						t.Errorf("rate 0 got %+v", g)
					}
				}
				one := campaign(1, &delivery.Quota{ID: "one", Revision: 1, Windows: windows(1, time.Minute)})
				one.ID, one.Burst = "one", 1
				a := ask(one, 1)
				a.Horizon = 200_000 // the longest that a new timeline is put off
				if g := take1(s, now, "a", a); g.Units != 1 {
					t.Errorf("a fresh campaign with a burst of 1 got %+v", g)
				}
			})
		})
	}
}

// TestResetAndNextStandStill: while nothing is granted, asks move neither the time when a window is full again nor the time to come back.
func TestResetAndNextStandStill(t *testing.T) {
	for _, w := range []delivery.Window{
		{Span: time.Minute, Limit: 5, Algorithm: delivery.AlgorithmSliding},
		{Span: time.Minute, Limit: 5, Algorithm: delivery.AlgorithmLog},
		{Span: time.Minute, Limit: 5, Algorithm: delivery.AlgorithmFixed},
		{Span: 24 * time.Hour, Limit: 5, Algorithm: delivery.AlgorithmFixed, Anchor: "day@America/New_York"},
	} {
		t.Run(w.Algorithm+w.Anchor, func(t *testing.T) {
			simulate(t, func(t *testing.T, s store) {
				q := &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{w}}
				c := campaign(1000, q)
				now := settle(s, epoch, c)
				first := take1(s, now, "a", ask(c, 50))
				if first.Units != 5 || first.NextAt <= now || first.Windows[0].ResetAt < first.NextAt {
					t.Fatalf("%+v", first)
				}
				for i := range int64(40) {
					now += 1_234_567
					g := take1(s, now, "a", ask(c, 50))
					peeked, want := s.Peek(now+7, []*delivery.Quota{q})[0], first.Windows[0]
					if want.FreeAt != first.NextAt {
						t.Fatalf("%+v", first)
					}
					if g.Units != 0 || g.NextAt != first.NextAt || g.Windows[0] != want || peeked != want {
						t.Fatalf("ask %d: %+v, peek %+v; first %+v", i, g, peeked, first)
					}
				}
			})
		})
	}
	t.Run("rate", func(t *testing.T) {
		simulate(t, func(t *testing.T, s store) {
			hourly, err := delivery.NewRate(1_000_000, time.Hour)
			if err != nil {
				t.Fatal(err)
			}
			c := &delivery.Campaign{ID: "c", Revision: 1, Rate: hourly}
			now := settle(s, epoch, c)
			first := take1(s, now, "a", ask(c, 50))
			for i := range int64(40) {
				if g := take1(s, now+i*60*second, "a", ask(c, 50)); g.Units != 0 || g.NextAt != first.NextAt {
					t.Fatalf("%+v; first %+v", g, first)
				}
			}
		})
	})
}

// TestIdlingSavesNothingUp: 10,000 jobs at 1,000/s with two pauses of 30 s. No rolling second holds more than the rate, or than the limit
// of a window that was full of room after each pause.
func TestIdlingSavesNothingUp(t *testing.T) {
	simulate(t, func(t *testing.T, s store) {
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(900, time.Second, 8_000, 10*time.Second)}
		plain, limited := campaign(1000), campaign(1000, q)
		limited.ID = "limited"
		for _, c := range []*delivery.Campaign{plain, limited} {
			a := ask(c, 0)
			a.Horizon = quantum
			f := newFleet(t, s, 2, a)
			now := epoch
			if c == limited {
				now += 3600 * second
				f.pause(3600 * second)
			}
			for i := range int64(2) {
				for int64(len(f.sent)) < (i+1)*3_334 {
					now += 100_000
					f.run(now)
					f.finish(now)
				}
				f.pause(30 * second)
				now += 30 * second
			}
			// A daemon may be late for its slots by the tolerance: 20 slots more than the rate.
			if most := rolling(f.sent, second); c == plain && most > 1_000+1_000*late/second+1 {
				t.Errorf("%d in a rolling second", most)
			}
			if c == limited {
				f.obeys(q)
			}
			if most := rolling(f.slots, second); most > 1_001 {
				t.Errorf("%d slots in a rolling second", most)
			}
		}
	})
}

// TestAStormOfReconfigurationsNeverOverGrants: limits and algorithms change every few hundred milliseconds, and each
// daemon hears of it later than the other. Whenever a unit is granted, the span before it holds no more than the newest
// limit that the store has heard of.
func TestAStormOfReconfigurationsNeverOverGrants(t *testing.T) {
	simulate(t, func(t *testing.T, s store) {
		rnd := rand.New(rand.NewPCG(10, 10))
		spans := []time.Duration{time.Second, 5 * time.Second}
		drawQuota := func(revision int64) *delivery.Quota {
			q := &delivery.Quota{ID: "q", Revision: revision}
			for _, span := range spans {
				w := delivery.Window{Span: span, Limit: rnd.Int64N(60) * int64(span/time.Second), Algorithm: delivery.AlgorithmSliding}
				if rnd.IntN(3) == 0 {
					w.Algorithm = delivery.AlgorithmLog
				}
				q.Windows = append(q.Windows, w)
			}
			return q
		}
		newest := drawQuota(1) // of those the store has heard of
		known := []*delivery.Quota{newest, newest, newest}
		latest, change := newest, epoch+second
		var granted []int64
		for now := epoch; now < epoch+length(s, 300, 8); now += rnd.Int64N(quantum) {
			if now > change {
				latest, change = drawQuota(latest.Revision+1), now+rnd.Int64N(600_000)
			}
			d := rnd.IntN(len(known))
			if rnd.IntN(20) == 0 {
				known[d] = latest
			}
			if known[d].Revision > newest.Revision {
				newest = known[d]
			}
			c := campaign(300, known[d])
			g := take1(s, now, fmt.Sprint(d), ask(c, 1+rnd.Int64N(10)))
			for range g.Units {
				granted = append(granted, now)
			}
			for i, w := range newest.Windows {
				from, _ := slices.BinarySearch(granted, now-spans[i].Microseconds()+1)
				if n := int64(len(granted) - from); g.Units > 0 && n > w.Limit {
					t.Fatalf("revision %d grants unit %d in %s, limit %d of revision %d", known[d].Revision, n, w.Span, w.Limit, newest.Revision)
				}
			}
		}
		if len(granted) < 50 || newest.Revision < 5 {
			t.Errorf("%d granted under %d revisions: too few to show anything", len(granted), newest.Revision)
		}
	})
}

// flushing forgets the scripts at random.
type flushing struct {
	store
	client redis.UniversalClient
	rnd    *rand.Rand
	n      int
}

func (f *flushing) Take(now int64, node string, asks []delivery.Ask) delivery.TakeReply {
	if f.rnd.IntN(5) == 0 {
		f.n++
		f.client.ScriptFlush(context.Background())
	}
	return f.store.Take(now, node, asks)
}

// TestScriptFlushesUnderLoad: no window holds more than its limit, and every unit is accounted for, though the scripts
// are forgotten again and again.
func TestScriptFlushesUnderLoad(t *testing.T) {
	client := privateClient(t, testservices.FreshRedis(t))
	s := &flushing{store: newLua(t, client), client: client, rnd: rand.New(rand.NewPCG(4, 4))}
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(40, time.Second, 150, 5*time.Second)}
	long := &delivery.Quota{ID: "long", Revision: 1, Windows: windows(1<<40, time.Hour)}
	f := newFleet(t, s, 3, ask(campaign(200, q, long), 0))
	f.returns = true
	end := epoch + 10*second
	f.run(end)
	f.finish(end)
	f.obeys(q)
	f.conserved(end, long)
	if s.n < 20 || len(f.sent) < 150 {
		t.Errorf("%d flushes, %d sent: too few to show anything", s.n, len(f.sent))
	}
}

func privateClient(t testing.TB, r *testservices.Redis) redis.UniversalClient {
	c := redis.NewUniversalClient(shards.ClientOptions(r.Addr))
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestWhatADaemonLeavesOthersUseWithinTwoQuanta: of saturated daemons one stops asking. From two quanta later on, the
// others use every slot.
func TestWhatADaemonLeavesOthersUseWithinTwoQuanta(t *testing.T) {
	simulate(t, func(t *testing.T, s store) {
		for i, rate := range []int64{10, 1_000, 10_000} {
			c := campaign(rate)
			c.ID = fmt.Sprint(rate)
			f := newFleet(t, s, 3, ask(c, 0))
			begin := epoch + int64(i)*1000*second
			f.pause(begin - epoch)
			stop := begin + 3*second
			f.run(stop)
			f.daemons[0].due[0] = 1 << 60
			end := stop + 4*second
			f.run(end)
			f.finish(end)
			from, _ := slices.BinarySearch(f.slots, stop+2*quantum)
			to, _ := slices.BinarySearch(f.slots, end)
			if used, all := int64(to-from), rate*(end-stop-2*quantum)/second; used < all-1 {
				t.Errorf("%d/s: %d of %d slots were used", rate, used, all)
			}
		}
	})
}

// turns counts round trips: how often a connection goes over from writing to reading.
type turns struct {
	net.Conn
	writing bool // by the one goroutine that has the connection
	n       *atomic.Int64
}

func (c *turns) Write(b []byte) (int, error) {
	c.writing = true
	return c.Conn.Write(b)
}

func (c *turns) Read(b []byte) (int, error) {
	if c.writing {
		c.writing = false
		c.n.Add(1)
	}
	return c.Conn.Read(b)
}

// TestATickIsOneRoundTripAndFewScripts: commandstats of a private Redis for takes of 1,000 campaigns. A script serves as
// many items as its cost allows: 128 without quotas.
func TestATickIsOneRoundTripAndFewScripts(t *testing.T) {
	testservices.Simulation(t)
	r := testservices.FreshRedis(t)
	var trips atomic.Int64
	o := shards.ClientOptions(r.Addr)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		return &turns{Conn: c, n: &trips}, err
	}
	client := redis.NewUniversalClient(o)
	t.Cleanup(func() { _ = client.Close() })
	for _, n := range []int{0, 1, 5} {
		l := newLua(t, client)
		asks := manyAsks(1000, n)
		l.Take(epoch, "a", asks) // connects, and loads the script
		must(t, client.ConfigSet(context.Background(), "slowlog-log-slower-than", "5000").Err())
		must(t, client.Do(context.Background(), "SLOWLOG", "RESET").Err())
		before := commandStats(t, client)
		trips.Store(0)
		const ticks = 10
		for i := range int64(ticks) {
			l.Take(epoch+(i+1)*quantum, "a", asks)
		}
		perTick, stats := trips.Load()/ticks, commandStats(t, client)
		calls := stats["evalsha"].calls - before["evalsha"].calls
		cost := 1
		if n > 0 {
			cost += 1 + n
		}
		perScript := maxCost / cost
		scripts := int64((len(asks) + perScript - 1) / perScript)
		if perTick != 1 || calls != ticks*scripts || stats["eval"].calls != before["eval"].calls {
			t.Errorf("%d windows: %d round trips a tick, %d scripts in %d ticks, want %d a tick", n, perTick, calls, ticks, scripts)
		}
		if perScript > maxItems {
			t.Errorf("%d windows: %d items a script", n, perScript)
		}
		slow, err := client.Do(context.Background(), "SLOWLOG", "LEN").Int64()
		must(t, err)
		t.Logf("%d windows: %d items a script, %d µs a script, %d of %d above 5 ms", n, perScript,
			(stats["evalsha"].micros-before["evalsha"].micros)/calls, slow, calls)
	}
}

// manyAsks returns an ask for each of the campaigns, each with its own quota of n windows.
func manyAsks(campaigns, n int) []delivery.Ask {
	var asks []delivery.Ask
	for i := range campaigns {
		c := campaign(1000)
		c.ID = fmt.Sprintf("campaign-%d", i)
		if n > 0 {
			c.Quotas = []*delivery.Quota{{ID: c.ID, Revision: 1, Windows: wide[:n]}}
		}
		asks = append(asks, ask(c, 25))
	}
	return asks
}

// wide are windows that never bind.
var wide = windows(1<<40, time.Minute, 1<<40, time.Hour, 1<<40, 24*time.Hour, 1<<40, 7*24*time.Hour, 1<<40, 30*24*time.Hour)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// commandStat is what a Redis has done of one command.
type commandStat struct{ calls, micros int64 }

func commandStats(t testing.TB, client redis.UniversalClient) map[string]commandStat {
	t.Helper()
	text, err := client.Info(context.Background(), "commandstats").Result()
	must(t, err)
	stats := map[string]commandStat{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
		if !ok {
			continue
		}
		var s commandStat
		if _, err := fmt.Sscanf(rest, "calls=%d,usec=%d", &s.calls, &s.micros); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		stats[strings.TrimPrefix(name, "cmdstat_")] = s
	}
	return stats
}

// TestAJobCostsATwentiethOfAScript: one campaign of 1,000/s, asked for once a quantum for 20 s, and commandstats of a
// private Redis.
func TestAJobCostsATwentiethOfAScript(t *testing.T) {
	testservices.Simulation(t)
	client := privateClient(t, testservices.FreshRedis(t))
	l := newLua(t, client)
	f := newFleet(t, l, 1, ask(campaign(1000), 0))
	f.run(epoch + 20*second)
	scripts := commandStats(t, client)["evalsha"].calls
	if f.asked < 19_900 || scripts*20 > f.asked {
		t.Errorf("%d scripts for %d jobs", scripts, f.asked)
	}
}

// smev are the windows of a provider that has five.
var smev = windows(300, time.Minute, 15_750, time.Hour, 300_000, 24*time.Hour, 1_500_000, 7*24*time.Hour, 6_000_000, 30*24*time.Hour)

// TestAQuotaOfFiveWindowsFitsTwoKilobytes, though every bucket of every window is in use.
func TestAQuotaOfFiveWindowsFitsTwoKilobytes(t *testing.T) {
	client := privateClient(t, testservices.FreshRedis(t))
	l := newLua(t, client)
	fillBuckets(l, &delivery.Quota{ID: "q", Revision: 1, Windows: smev})
	bytes, err := client.MemoryUsage(context.Background(), newKeys(l.prefix, 0).quota("q")).Result()
	must(t, err)
	t.Logf("%d bytes", bytes)
	if buckets := int64(60 * len(smev)); bytes > 2048 || bytes < buckets*3 {
		t.Errorf("the quota takes %d bytes with %d buckets", bytes, buckets)
	}
}

// fillBuckets grants units at times that lie in all buckets of all windows of the quota.
func fillBuckets(s store, q *delivery.Quota) {
	end := epoch + 31*24*3600*second
	var times []int64
	for _, w := range q.Windows {
		step := model.Step(w)
		for k := range int64(60) {
			times = append(times, end-k*step)
		}
	}
	slices.Sort(times)
	c := campaign(1_000_000, q)
	for _, now := range times {
		take1(s, now, "a", ask(c, 5))
	}
}
