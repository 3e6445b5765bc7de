package limits

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestClocksThatStepAndHeal: Redis' clock steps at random, forward and back, and is set right again, while daemons ask. On the clock of
// the world no window ever holds more than its limit, and what has room is sent.
func TestClocksThatStepAndHeal(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	client := realClient(t)
	testservices.Few(t, 5, func(rt *rapid.T) {
		l := newLua(t, client)
		world, off := epoch, rapid.Int64Range(-20*second, 20*second).Draw(rt, "off at first")
		nodes := []string{"a", "b"}
		for _, node := range nodes {
			m := &l.engine(node).shards[0].master
			m.override = func() int64 { return world + off }
			m.local = func() time.Time { return time.UnixMicro(world - epoch/2) }
		}
		q := &delivery.Quota{ID: "q", Revision: 1, Windows: windows(50, time.Second, 120, 4*time.Second)}
		c := campaign(200, q)
		const lasts = 12 * second
		steps := map[int64]int64{} // by the number of the quantum
		for range rapid.IntRange(1, 4).Draw(rt, "steps") {
			to := rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(-20*second, 20*second), rapid.Int64Range(-100_000, 100_000)).Draw(rt, "step")
			steps[rapid.Int64Range(40, lasts/quantum).Draw(rt, "at")] = to
		}
		var grants []int64
		for i := range lasts / quantum {
			world = epoch + i*quantum
			if to, ok := steps[i]; ok {
				off = to
			}
			for _, node := range nodes {
				reply, err := l.engine(node).Take(context.Background(), []delivery.Ask{ask(c, 10)})
				if err != nil && !redis.HasErrorPrefix(err, "CLOCK") {
					rt.Fatal(err)
				}
				for range reply.Items[0].Units {
					grants = append(grants, world)
				}
			}
		}
		for _, w := range q.Windows {
			if most := rolling(grants, w.Span.Microseconds()); most > w.Limit {
				rt.Fatalf("%d in a rolling %s, limit %d", most, w.Span, w.Limit)
			}
		}
		if len(grants) < 2*120 {
			rt.Fatalf("only %d in %d s", len(grants), lasts/second)
		}
	})
}
