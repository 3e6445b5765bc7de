package limits

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestScriptsAbsorbStepsOfTheClock: what the clock reads, given Redis' own, what it read before, and what was foretold.
func TestScriptsAbsorbStepsOfTheClock(t *testing.T) {
	_, mini := miniClient(t)
	for name, client := range map[string]redis.UniversalClient{"miniredis": mini, "redis": realClient(t)} {
		t.Run(name, func(t *testing.T) {
			k := newKeys("clock-"+newLua(t, client).prefix, 0)
			r := runner{client: client, timeout: 5 * time.Second}
			var raw int64
			r.override = func() int64 { return raw }
			for i, step := range []struct {
				what       string
				raw        int64
				low, high  int64
				steps      int64
				sure       bool
				now, after int64 // 0: refused
			}{
				{"the first reading", epoch, 0, 0, 0, false, epoch, 0},
				{"as foretold", epoch + 1000, epoch + 900, epoch + 1100, 0, false, epoch + 1000, 0},
				{"a little off", epoch + 41_000, epoch + 2000, epoch + 2100, 0, false, epoch + 41_000, 0},
				{"back by 5 s", epoch - 4_900_000, epoch + 100_000, epoch + 100_300, 0, false, epoch + 100_000, 1},
				{"on from there", epoch - 4_800_000, 0, 0, 1, false, epoch + 200_000, 1},
				{"an old forecast does not count", epoch - 4_700_000, epoch + 900_000, epoch + 900_000, 0, false, epoch + 300_000, 1},
				{"forward by 9 s, or late?", epoch + 4_400_000, epoch + 400_000, epoch + 400_300, 1, false, 0, 1},
				{"surely forward", epoch + 4_400_000, epoch + 400_000, epoch + 400_300, 1, true, epoch + 400_300, 2},
				{"on from there", epoch + 4_500_000, 0, 0, 2, false, epoch + 500_300, 2},
				{"back without a forecast: it stands", epoch, 0, 0, 0, false, epoch + 500_300, 2},
			} {
				raw = step.raw
				c := &call{
					head: header{seq: int64(i + 1), low: step.low, high: step.high, steps: step.steps, sure: step.sure},
					keys: []string{k.clock(), k.reply("n", 0)}, args: []any{"n", "", "", 0},
				}
				r.attempt(context.Background(), takeScript, []*call{c})
				if step.now == 0 {
					if !redis.HasErrorPrefix(c.err, "CLOCK") {
						t.Errorf("%s: error %v", step.what, c.err)
					}
					continue
				}
				if c.err != nil {
					t.Fatalf("%s: %v", step.what, c.err)
				}
				in := reader{rest: c.reply}
				in.next(7)
				if now, after := in.next(7), in.next(4); abs(now-step.now) > 300 || after != step.after { // the offset slews
					t.Errorf("%s: the clock reads %d after %d steps, want %d in %d", step.what, now-epoch, after, step.now-epoch, step.after)
				}
			}
		})
	}
}

func abs(n int64) int64 { return max(n, -n) }

// TestAClockThatIsSetRightIsFollowed: Redis' clock is wrong when it is first read, and set right later. Days are the world's again
// hours after, and meanwhile the store's clock goes neither back nor at another pace.
func TestAClockThatIsSetRightIsFollowed(t *testing.T) {
	testservices.Simulation(t)
	for _, wrong := range []int64{-15 * second, 15 * second} {
		l := newLua(t, realClient(t))
		m := &l.engine("a").shards[0].master
		world, off := epoch, wrong
		m.override = func() int64 { return world + off }
		m.local = func() time.Time { return time.UnixMicro(world - epoch/2) }
		before := int64(0)
		for i := range int64(12 * 3600 / 55) {
			world = epoch + i*55*second
			if i == 10 {
				off = 0
			}
			r, err := l.engine("a").Take(context.Background(), []delivery.Ask{ask(campaign(1), 1)})
			must(t, err)
			now := r.Items[0].GrantedAt
			if passed := now - before; i > 0 && abs(passed-55*second) > 55*second/1000 {
				t.Fatalf("%d µs pass on the store's clock in 55 s", passed)
			}
			before = now
		}
		if late := before - world; abs(late) > 1000 {
			t.Errorf("off by %d µs at first: half a day later the store's clock is off by %d µs", wrong, late)
		}
	}
}

// TestClockStepsGrantNothing: Redis' clock steps by +-5 s under load, on two daemons; no rolling span of the quota
// ever holds more than its limit, on the clock of the world.
func TestClockStepsGrantNothing(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	for _, by := range []int64{5 * second, -5 * second} {
		l := newLua(t, realClient(t))
		var world, step int64 = epoch, 0
		for _, node := range []string{"a", "b"} {
			m := &l.engine(node).shards[0].master
			m.override = func() int64 { return world + step }
			m.local = func() time.Time { return time.UnixMicro(world - epoch/2) }
		}
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(50, time.Second, 150, 5*time.Second)}
		c := campaign(200, q)
		var grants []int64
		for i := range 1200 { // 30 s
			world = epoch + int64(i)*quantum
			switch i {
			case 400:
				step = by
			case 800:
				step = 0
			}
			for _, node := range []string{"a", "b"} {
				reply, err := l.engine(node).Take(context.Background(), []delivery.Ask{ask(c, 10)})
				if err != nil && !errors.Is(err, context.Canceled) && !redis.HasErrorPrefix(err, "CLOCK") {
					t.Fatal(err)
				}
				for range reply.Items[0].Units {
					grants = append(grants, world)
				}
			}
		}
		if most := rolling(grants, second); most > 50 {
			t.Errorf("step %d: %d in a rolling second", by, most)
		}
		if most := rolling(grants, 5*second); most > 150 {
			t.Errorf("step %d: %d in rolling 5 s", by, most)
		}
		if len(grants) < 150*5 {
			t.Errorf("step %d: only %d grants in 30 s", by, len(grants))
		}
	}
}

// TestALateTakeIsNoFailure: requests that reach Redis long after they were sent may as well have met a step of its clock. They
// are not carried out, and that is no failure of the store; the next one that is in time is answered.
func TestALateTakeIsNoFailure(t *testing.T) {
	l := newLua(t, realClient(t))
	m := &l.engine("a").shards[0].master
	world, transit, looks := epoch, int64(0), 0
	m.override = func() int64 { looks = 2; return world + transit }
	m.local = func() time.Time { // once for the forecast, and again when the reply is there
		if looks--; looks == 0 {
			world, transit = world+transit, 3*transit
		}
		return time.UnixMicro(world - epoch/2)
	}
	take := func() delivery.Granted {
		t.Helper()
		world += second / 10
		r, err := l.engine("a").Take(context.Background(), []delivery.Ask{ask(campaign(100), 1)})
		must(t, err)
		return r.Items[0]
	}
	if g := take(); g.Late || g.Units != 1 {
		t.Fatalf("in time: %+v", g)
	}
	transit = 70_000 // and more when it is repeated
	if g := take(); !g.Late || g.Units != 0 || g.GrantedAt != 0 {
		t.Errorf("late: %+v", g)
	}
	transit = 0
	if g := take(); g.Late || g.Units != 1 {
		t.Errorf("in time again: %+v", g)
	}
}

// TestAStepIsNoticedByEveryScript: a take of many campaigns is several scripts, sent together. Where the first finds that
// the clock has stepped, the others must not go by it.
func TestAStepIsNoticedByEveryScript(t *testing.T) {
	testservices.Simulation(t)
	l := newLua(t, realClient(t))
	var world, step int64 = epoch, 0
	e := l.engine("a")
	m := &e.shards[0].master
	m.override = func() int64 { return world + step }
	m.local = func() time.Time { return time.UnixMicro(world - epoch/2) }
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(50, 5*time.Second)}
	var asks []delivery.Ask
	for i := range 2 * maxCost {
		c := campaign(200)
		c.ID = fmt.Sprint("c", i)
		asks = append(asks, ask(c, 1))
	}
	asks = append(asks, ask(campaign(200, q), 10)) // in the last script
	var grants []int64
	for i := range 260 { // 6.5 s
		world = epoch + int64(i)*quantum
		if i == 60 {
			step = 5 * second
		}
		reply, err := e.Take(context.Background(), asks)
		must(t, err)
		for range reply.Items[len(asks)-1].Units {
			grants = append(grants, world)
		}
	}
	if most := rolling(grants, 5*second); most != 50 {
		t.Errorf("%d in rolling 5 s, want 50", most)
	}
}

// delay holds up the first scripts on their way to the store.
type delay struct {
	redis.Hook

	by []time.Duration
}

func (l *delay) DialHook(next redis.DialHook) redis.DialHook { return next }

func (l *delay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, command redis.Cmder) error {
		l.wait()
		return next(ctx, command)
	}
}

func (l *delay) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		l.wait()
		return next(ctx, commands)
	}
}

func (l *delay) wait() {
	if len(l.by) > 0 {
		time.Sleep(l.by[0])
		l.by = l.by[1:]
	}
}

// TestARequestThatIsLateTwice: on a busy machine each request is under way for longer than what the scripts take for
// a step of the clock. It is repeated once, and then granted.
func TestARequestThatIsLateTwice(t *testing.T) {
	l := newLua(t, realClient(t))
	e := l.engine("a")
	m := &e.shards[0].master
	m.timeout, m.override = 10*time.Second, nil
	c := campaign(200)
	take := func() int64 {
		reply, err := e.Take(context.Background(), []delivery.Ask{ask(c, 1)})
		must(t, err)
		return reply.Items[0].Units
	}
	take()
	m.client.AddHook(&delay{by: []time.Duration{300 * time.Millisecond, 80 * time.Millisecond}})
	if n := take(); n != 1 {
		t.Errorf("%d units for a request that is late twice, want 1", n)
	}
}
