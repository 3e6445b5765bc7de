package limits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
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
		for _, load := range []string{"saturated", "bursty", "refunding", "bursty, refunding"} {
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
					f.bursty, f.returns = strings.Contains(load, "bursty"), strings.Contains(load, "refunding")
					lasts := length(s, 1800, 6)
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

// accounted lets a fleet send for some seconds: granted = dispatched + refunded + expired, and all windows were debited alike, though the first
// of them is refused most of the time.
func accounted(t *testing.T, s store, seconds int64) *fleet {
	t.Helper()
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(1<<40, 24*time.Hour, 1<<40, time.Hour, 1<<40, 31*24*time.Hour)}
	tight := &delivery.Quota{ID: "tight", Revision: 1, Windows: windows(40, time.Second, 150, 5*time.Second)}
	c, other := campaign(200, q, tight), campaign(300, q)
	other.ID = "other"
	f := newFleet(t, s, 3, ask(c, 0), ask(other, 0))
	f.returns = true
	end := epoch + seconds*second
	f.run(end)
	f.finish(end)
	if f.refunded == 0 || f.expired == 0 || f.asked < 250*seconds {
		t.Fatalf("refunded %d, expired %d of %d: the test shows nothing", f.refunded, f.expired, f.asked)
	}
	f.conserved(end, q)
	return f
}

func TestEveryUnitIsAccountedFor(t *testing.T) {
	simulate(t, func(t *testing.T, s store) { accounted(t, s, length(s, 60, 5)/second) })
}

// TestRepliesLostAtRandomDebitOnce: takes and refunds whose request or reply is lost are repeated under their sequence
// number, and count once, on several daemons.
func TestRepliesLostAtRandomDebitOnce(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	l := &lossy{rnd: rand.New(rand.NewPCG(5, 5)), replies: &atomic.Int64{}, requests: &atomic.Int64{}}
	l.store = newLua(t, clientOf(t, testservices.RedisAddr(t), losing(l.replies, l.requests)))
	if accounted(t, l, 4); l.lostReply < 50 || l.lostCall < 50 {
		t.Errorf("lost %d replies and %d requests: too few to show anything", l.lostReply, l.lostCall)
	}
}

// TestScriptFlushesUnderLoad: every unit is accounted for, though the scripts are forgotten again and again.
func TestScriptFlushesUnderLoad(t *testing.T) {
	client := clientOf(t, testservices.FreshRedis(t).Addr)
	s := &flushing{store: newLua(t, client), client: client, rnd: rand.New(rand.NewPCG(4, 4))}
	if accounted(t, s, 10); s.n < 20 {
		t.Errorf("%d flushes: too few to show anything", s.n)
	}
}

// TestPeekWritesNothing: not a byte of what the store keeps changes, the clock included.
func TestPeekWritesNothing(t *testing.T) {
	l := newLua(t, realClient(t))
	used := &delivery.Quota{ID: "used", Revision: 1, Windows: windows(100, time.Second, 1000, time.Hour)}
	fresh := &delivery.Quota{ID: "fresh", Revision: 1, Windows: []delivery.Window{{Span: time.Minute, Limit: 5, Algorithm: delivery.AlgorithmFixed}}}
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
	now += 60 * second // a fixed window begins with the first job
	if g := take1(l, now, "a", ask(campaign(1000, fresh), 9)); g.Units != 5 || g.Windows[0].ResetAt != now+60*second {
		t.Errorf("%+v at %d", g, now)
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
					if g = take1(s, now, "a", ask(still, 1)); g.Units != 0 || g.Bound != delivery.BindHeld || g.NextAt != 0 {
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

// TestADenialLeavesNoTrace: while nothing is granted, asks and looks of any daemon move neither the time when a window is full again nor the
// time to come back, when everything is granted anew.
func TestADenialLeavesNoTrace(t *testing.T) {
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
				for round := range 3 {
					first := take1(s, now, "a", ask(c, 50))
					want := first.Windows[0]
					if first.Units != 5 || first.NextAt <= now || want.ResetAt < first.NextAt || want.FreeAt != first.NextAt {
						t.Fatalf("%+v", first)
					}
					for i := range int64(40) {
						node := "a"
						if round == 2 { // others would share what is granted next
							node = fmt.Sprint("n", i%3)
						}
						now += 1_234_567
						g := take1(s, now, node, ask(c, 50))
						if peeked := s.Peek(now+7, []*delivery.Quota{q})[0]; g.Units != 0 || g.NextAt != first.NextAt || g.Windows[0] != want || peeked != want {
							t.Fatalf("ask %d: %+v, peek %+v; first %+v", i, g, peeked, first)
						}
					}
					now = first.NextAt
				}
			})
		})
	}
	t.Run("rate", func(t *testing.T) {
		simulate(t, func(t *testing.T, s store) {
			hourly, err := delivery.NewRate(1_000_000, time.Hour)
			must(t, err)
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

// TestATickIsOneRoundTripAndFewScripts: takes of 1,000 campaigns. A script serves as many items as its cost allows: 128
// without quotas. A tick during which the machine stands still is sent again, so one tick of the ten may be.
func TestATickIsOneRoundTripAndFewScripts(t *testing.T) {
	testservices.Simulation(t)
	client, count := realClient(t), &pipelines{}
	client.AddHook(count)
	for _, windows := range []int{0, 1, 5} {
		l := newLua(t, client)
		asks, cost := with(1000), 1
		if windows > 0 {
			asks, cost = with(1000, wide[:windows]), 2+windows
		}
		l.Take(epoch, "a", asks) // connects, and loads the script
		perScript := maxCost / cost
		want := pipelines{trips: 1, scripts: (len(asks) + perScript - 1) / perScript}
		var others []pipelines
		for i := range int64(10) {
			*count = pipelines{}
			l.Take(epoch+(i+1)*quantum, "a", asks)
			if *count != want {
				others = append(others, *count)
			}
		}
		if len(others) > 1 {
			t.Errorf("%d windows: %+v in %d of ten ticks, want %+v", windows, others, len(others), want)
		}
		if perScript > maxItems {
			t.Errorf("%d windows: %d items a script", windows, perScript)
		}
	}
}

// wide are windows that never bind.
var wide = windows(1<<40, time.Minute, 1<<40, time.Hour, 1<<40, 24*time.Hour, 1<<40, 7*24*time.Hour, 1<<40, 30*24*time.Hour)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestAJobCostsATwentiethOfAScript: one campaign of 1,000/s, asked for once a quantum for 20 s.
func TestAJobCostsATwentiethOfAScript(t *testing.T) {
	testservices.Simulation(t)
	client, count := realClient(t), &pipelines{}
	client.AddHook(count)
	f := newFleet(t, newLua(t, client), 1, ask(campaign(1000), 0))
	f.run(epoch + 20*second)
	if f.asked < 19_900 || int64(count.scripts)*20 > f.asked {
		t.Errorf("%d scripts for %d jobs", count.scripts, f.asked)
	}
}

// smev are the windows of a provider that has five.
var smev = windows(300, time.Minute, 15_750, time.Hour, 300_000, 24*time.Hour, 1_500_000, 7*24*time.Hour, 6_000_000, 30*24*time.Hour)

// TestAQuotaOfFiveWindowsFitsTwoKilobytes, though every bucket of every window is in use.
func TestAQuotaOfFiveWindowsFitsTwoKilobytes(t *testing.T) {
	client := clientOf(t, testservices.FreshRedis(t).Addr)
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
