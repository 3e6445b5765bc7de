package limits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
	"github.com/pacer/pacer/internal/limits/ledger"
)

// TestWhatIsCountedBetweenTwoLooksIsWhatWasGranted: what a window has counted since the last look, less what it had
// counted in that bucket by then, is what was granted in between and not handed back.
func TestWhatIsCountedBetweenTwoLooksIsWhatWasGranted(t *testing.T) {
	harness.Simulation(t)
	t.Parallel()
	l := newLua(t, realClient(t))
	of := func(algorithm, anchor string, span time.Duration) *delivery.Quota {
		w := delivery.Window{Limit: 9_000, Span: span, Algorithm: algorithm, Anchor: anchor}
		id := fmt.Sprint(algorithm, anchor, span)
		return &delivery.Quota{ID: id, Revision: 1, Windows: append(windows(1_000_000, time.Second), w)}
	}
	var list []ledger.Counting
	for _, q := range []*delivery.Quota{
		of("sliding", "", 30*24*time.Hour), of("sliding", "", 5*time.Minute), of("log", "", time.Hour), of("fixed", "", time.Hour),
		of("fixed", "hour", time.Hour),
	} {
		list = append(list, ledger.Counting{Quota: q, Window: 1})
	}
	dice := rand.New(rand.NewPCG(rand.Uint64(), 1))
	look := func(now int64) (counted []ledger.Counted) {
		l.now = now
		at, counted, err := dataStore{l.engine("n")}.Count(context.Background(), 0, list)
		if err != nil || at != now {
			t.Fatal(at, now, err)
		}
		for i := range list {
			list[i].Since = now
		}
		return counted
	}
	now := epoch / time.Hour.Microseconds() * time.Hour.Microseconds()
	if c := look(now); c[0].Form != "" {
		t.Fatalf("there is a window before its first use: %+v", c[0])
	}
	var last []ledger.Counted
	for round := range 40 {
		granted := make([]int64, len(list))
		for range 1 + dice.IntN(30) {
			now += 1_000 + dice.Int64N(3*second)
			for i, of := range list {
				c := campaign(100_000, of.Quota)
				c.ID = of.Quota.ID
				g := take1(l, now, "n", ask(c, 1+dice.Int64N(9)))
				granted[i] += g.Units
				if back := min(g.Units, dice.Int64N(3)); back > 0 {
					l.Refund(now, []delivery.Grant{{From: g.From, First: g.First, Units: back, Rate: g.Rate, Revision: g.Revision, GrantedAt: g.GrantedAt}})
					granted[i] -= back
				}
			}
		}
		counted := look(now)
		for i, c := range counted {
			if round > 0 && c.Form == last[i].Form && c.Since-last[i].Newest != granted[i] {
				t.Errorf("round %d, %s: %d counted, %d granted", round, list[i].Quota.ID, c.Since-last[i].Newest, granted[i])
			}
			if c.Born <= 0 || c.Born > now {
				t.Errorf("round %d, %s: born at %d, now %d", round, list[i].Quota.ID, c.Born, now)
			}
		}
		last = counted
	}
}
