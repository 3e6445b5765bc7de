package limits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/ledger"
	"github.com/pacer/pacer/internal/testservices"
)

// TestWhatIsCountedBetweenTwoLooksIsWhatWasGranted: what a window has counted since the last look, less what it had
// counted in that bucket by then, is what was granted in between and not handed back.
func TestWhatIsCountedBetweenTwoLooksIsWhatWasGranted(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	l := newLua(t, realClient(t))
	of := func(algorithm, anchor string, span time.Duration) *delivery.Quota {
		w := delivery.Window{Limit: 1_000, Span: span, Algorithm: algorithm, Anchor: anchor}
		if algorithm != delivery.AlgorithmLog {
			w.Limit = 9_000
		}
		id := fmt.Sprint(algorithm, anchor, span)
		return &delivery.Quota{ID: id, Revision: 1, Windows: append(windows(1_000_000, time.Second), w)}
	}
	var list []ledger.Counting
	for _, q := range []*delivery.Quota{
		of("sliding", "", 30*24*time.Hour), of("sliding", "", 5*time.Minute), of("log", "", 5*time.Minute), of("fixed", "", time.Hour),
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
			if c.Born > now || c.Born <= 0 && c.Since > 0 {
				t.Errorf("round %d, %s: born at %d, now %d", round, list[i].Quota.ID, c.Born, now)
			}
		}
		last = counted
	}
}

// TestWhatIsHandedBackLeavesItsBuckets: while anything is left, the oldest bucket is the same, and a window that holds nothing is
// there. By that the ledger's keeper tells it from a loss.
func TestWhatIsHandedBackLeavesItsBuckets(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	l := newLua(t, realClient(t))
	for _, w := range []delivery.Window{
		{Span: time.Hour, Algorithm: "sliding"}, {Span: time.Hour, Algorithm: "log"}, {Span: time.Hour, Algorithm: "fixed"}, {Span: time.Hour, Algorithm: "fixed", Anchor: "hour"},
	} {
		w.Limit = 1_000
		q := &delivery.Quota{ID: "q" + w.Algorithm + w.Anchor, Revision: 1, Windows: []delivery.Window{w}}
		c := campaign(100_000, q)
		c.ID = q.ID
		count := func(now int64) ledger.Counted {
			l.now = now
			_, counted, err := dataStore{l.engine("n")}.Count(context.Background(), 0, []ledger.Counting{{Quota: q}})
			if err != nil {
				t.Fatal(err)
			}
			return counted[0]
		}
		now := epoch / time.Hour.Microseconds() * time.Hour.Microseconds()
		back := func(g delivery.Granted) {
			l.Refund(now, []delivery.Grant{{From: g.From, First: g.First, Units: g.Units, Rate: g.Rate, Revision: g.Revision, GrantedAt: g.GrantedAt}})
		}
		first := take1(l, now, "n", ask(c, 5))
		born := count(now).Born
		now += 3 * 60 * second
		next := take1(l, now, "n", ask(c, 4))
		back(first)
		if got := count(now); got.Born != born || got.Since != 4 {
			t.Errorf("%q: 4 are left: %+v, born at %d", q.ID, got, born)
		}
		back(next)
		if got := count(now); got.Form == "" || got.Since != 0 || w.Algorithm == "fixed" && got.Born != born || w.Algorithm != "fixed" && got.Born != 0 {
			t.Errorf("%q: none is left: %+v, born at %d", q.ID, got, born)
		}
	}
}
