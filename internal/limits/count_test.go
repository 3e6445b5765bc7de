package limits

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/local"
	"github.com/pacer/pacer/internal/testservices"
)

// TestTheCountIsWhatWasTaken: at any time it is what was granted since it began and not handed back, whatever the windows have forgotten. It
// begins when the quota is used first, and again when its key is gone.
func TestTheCountIsWhatWasTaken(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	l := newLua(t, realClient(t))
	of := func(algorithm, anchor string, span time.Duration) *delivery.Quota {
		w := delivery.Window{Limit: 1_000, Span: span, Algorithm: algorithm, Anchor: anchor}
		id := fmt.Sprint(algorithm, anchor, span)
		return &delivery.Quota{ID: id, Revision: 1, Windows: append(windows(1_000_000, time.Second), w)}
	}
	list := []*delivery.Quota{
		of("sliding", "", 30*24*time.Hour), of("sliding", "", 5*time.Minute), of("log", "", 5*time.Minute), of("fixed", "", time.Hour),
		of("fixed", "hour", time.Hour),
	}
	dice := rand.New(rand.NewPCG(rand.Uint64(), 1))
	now := epoch / time.Hour.Microseconds() * time.Hour.Microseconds()
	began, taken := make([]int64, len(list)), make([]int64, len(list))
	check := func(what string) {
		t.Helper()
		l.now = now
		at, counted, err := dataStore{l.engine("n")}.Count(context.Background(), 0, 0, list)
		if err != nil || at != now {
			t.Fatal(at, now, err)
		}
		for i, c := range counted {
			if c.Quota != list[i].ID || c.Born != began[i] || c.Units != taken[i] {
				t.Errorf("%s: %s: %+v, want %d since %d", what, list[i].ID, c, taken[i], began[i])
			}
			w := c.Windows[1]
			if w.Units > min(1_000, taken[i]) || (w.Units > 0) != (began[i] > 0) || w.Since > now || now-w.Since > list[i].Windows[1].Span.Microseconds() {
				t.Errorf("%s: %s counts %+v", what, list[i].ID, w)
			}
			if (w.ResetAt > 0) != (list[i].Windows[1].Algorithm == delivery.AlgorithmFixed && began[i] > 0) || c.Windows[0].ResetAt != 0 {
				t.Errorf("%s: %s ends at %v", what, list[i].ID, c.Windows)
			}
		}
	}
	check("before the first use")
	for round := range 40 {
		for range 1 + dice.IntN(30) {
			now += 1_000 + dice.Int64N(3*second)
			for i, q := range list {
				c := campaign(100_000, q)
				c.ID = q.ID
				g := take1(l, now, "n", ask(c, 8+dice.Int64N(9)))
				if began[i] == 0 {
					began[i] = now
				}
				taken[i] += g.Units
				if back := min(g.Units, dice.Int64N(3)); back > 0 {
					l.Refund(now, []delivery.Grant{{From: g.From, First: g.First, Units: back, Rate: g.Rate, Revision: g.Revision, GrantedAt: g.GrantedAt}})
					taken[i] -= back
				}
			}
		}
		check(fmt.Sprint("round ", round))
		if _, err := l.engine("n").Adjust(context.Background(), Adjustment{Quota: list[0], Window: 1, Used: 5, Lower: true}); err != nil {
			t.Fatal(err)
		}
	}
	// The windows of a quota are charged one by one, each with what it counts of the same units.
	var charges []local.Charge
	for i, units := range []int64{3, 8} {
		part := *list[0]
		part.Windows = part.Windows[i : i+1]
		charges = append(charges, local.Charge{Quota: &part, Units: units})
	}
	e := l.engine("n")
	must(t, e.charge(context.Background(), e.shards[0], charges))
	taken[0] += 8
	check("after a charge")
	must(t, l.shards.Master(0).Del(context.Background(), e.shards[0].keys.quota(list[0].ID)).Err())
	began[0], taken[0] = 0, 0
	check("without its key")
	for i, broken := range []func(key string) error{
		func(key string) error { return l.shards.Master(0).Set(context.Background(), key, "?", 0).Err() },
		func(key string) error {
			return errors.Join(l.shards.Master(0).Del(context.Background(), key).Err(), l.shards.Master(0).LPush(context.Background(), key, "?").Err())
		},
	} {
		must(t, broken(e.shards[0].keys.quota(list[1+i].ID)))
		began[1+i], taken[1+i] = 0, 0
		check("beside a value that cannot be read")
	}
}
