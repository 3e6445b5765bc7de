package progress

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// greedy sends units of a campaign against the reference model as fast as it grants them.
type greedy struct {
	store    *model.Store
	campaign *delivery.Campaign
	asked    *delivery.Campaign // as the store knows it: with the rate of a step of its ramp
	now      int64              // microseconds
	takes    int
}

// send sends units when its schedule and the quotas let it, and returns when the last of them was; false if that takes more
// takes than the test has time for.
func (g *greedy) send(units, until int64) (at int64, ok bool) {
	for units > 0 && g.now < until {
		if g.takes++; g.takes > 1_500 {
			return 0, false
		}
		c, now := g.campaign, time.UnixMicro(g.now)
		if !c.Active(now) {
			g.now = c.NextChange(now).UnixMicro()
			continue
		}
		if rate, step, _ := c.RateAt(now); rate != g.asked.Rate {
			next := *c
			next.Rate, next.Ramp, next.Revision = rate, nil, 2+step
			g.asked = &next
		}
		got := g.store.Take(g.now, "daemon", []delivery.Ask{{
			Campaign: g.asked, Want: min(units, delivery.MaxGrant), Horizon: 25_000, Quantum: 25_000, LateTolerance: 20_000,
		}}).Items[0]
		if got.Units > 0 {
			at = got.First.Advance(got.Units-1, got.Rate).Micros()
		}
		units -= got.Units
		g.now = max(g.now+25_000, got.NextAt)
	}
	return at, true
}

// TestAWindowIsFullAgainWhenActiveHoursBegin: a campaign that is active for half an hour a day sends the limit of a window of an hour
// each day.
func TestAWindowIsFullAgainWhenActiveHoursBegin(t *testing.T) {
	hours, err := delivery.NewActiveHours([]delivery.HoursSpan{{From: 0, To: 30}}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	q := &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: time.Hour, Limit: 5}}}
	c := campaign("c", 1, 1, q)
	c.Hours = hours
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	f := newForecast(now, []*delivery.Campaign{c}, model.NewStore().Peek(now.UnixMicro(), c.Quotas))
	for _, units := range []int64{4, 12, 52} {
		forecast, ok := f.done(c, float64(units))
		g := &greedy{store: model.NewStore(), campaign: c, asked: c, now: now.UnixMicro()}
		done, can := g.send(units, math.MaxInt64)
		if !ok || !can || forecast.Sub(time.UnixMicro(done)).Abs() > time.Minute {
			t.Errorf("%d units until %s, forecast %s, %v, %v", units, time.UnixMicro(done).UTC(), forecast, ok, can)
		}
	}
}

// TestForecastsComeTrue: for any set of windows of any quotas, fresh or used up in part or whole, a campaign that sends as fast
// as they allow is done within a fifth of the time that was forecast.
func TestForecastsComeTrue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c := campaign("c", rapid.Int64Range(1, 100).Draw(rt, "rate"), 1)
		used, quotas := rapid.OneOf(rapid.Just[int64](0), rapid.Int64Range(0, 3000)).Draw(rt, "used before"), 1
		if used == 0 { // what one quota has counted says nothing of another, which others may use
			quotas = rapid.IntRange(1, 3).Draw(rt, "quotas")
		}
		for i := range quotas {
			q := &delivery.Quota{ID: fmt.Sprint("q", i), Revision: 1}
			spans := rapid.SliceOfNDistinct(rapid.SampledFrom([]int{1, 5, 10, 30, 60, 300, 600, 3600, 86_400}), 1, 4, rapid.ID[int]).Draw(rt, "spans")
			for _, span := range spans {
				w := delivery.Window{Span: time.Duration(span) * time.Second, Limit: rapid.Int64Range(5, 2000).Draw(rt, "limit")}
				w.Algorithm = rapid.SampledFrom([]string{"sliding", "sliding", "fixed", "log"}).Draw(rt, "algorithm")
				q.Windows = append(q.Windows, w)
			}
			c.Quotas = append(c.Quotas, q)
		}
		g := &greedy{store: model.NewStore(), campaign: c, asked: c, now: 1_790_000_000_000_000}
		if used > 0 {
			if _, ok := g.send(used, g.now+rapid.Int64Range(1, 3_600_000_000).Draw(rt, "for")); !ok {
				rt.Skip("it takes too long")
			}
			g.now += rapid.SampledFrom([]int64{0, 100_000, 20_000_000, 1_000_000_000}).Draw(rt, "idle")
		}
		units := rapid.Int64Range(1, 5000).Draw(rt, "units")
		began := g.now
		seen := g.store.Peek(g.now, c.Quotas)
		// Forecasts know of no whole units, nor when what is counted leaves a window: at the earliest all of it when the first unit
		// does, at the latest when the last does.
		early, ok := newForecast(time.UnixMicro(began), []*delivery.Campaign{c}, leavesAt(seen, c, func(w *delivery.WindowState) { w.ResetAt = max(w.FreeAt, began) })).
			done(c, max(0.5, float64(units-1)))
		late, known := newForecast(time.UnixMicro(began), []*delivery.Campaign{c}, leavesAt(seen, c, func(w *delivery.WindowState) { w.FreeAt = w.ResetAt })).
			done(c, float64(units+1))
		if !ok || !known {
			rt.Fatal("no forecast")
		}
		done, can := g.send(units, math.MaxInt64)
		if !can {
			rt.Skip("it takes too long")
		}
		took, from, to := float64(done-began)/1e6, early.Sub(time.UnixMicro(began)).Seconds(), late.Sub(time.UnixMicro(began)).Seconds()
		if took < from*0.8-2 || took > to*1.2+2 {
			rt.Fatalf("%d units in %.1f s, forecast %.1f to %.1f s", units, took, from, to)
		}
	})
}

// leavesAt is what is seen of the windows of a campaign, with other times at which units leave the used ones that do not begin anew.
func leavesAt(seen []delivery.WindowState, c *delivery.Campaign, at func(w *delivery.WindowState)) []delivery.WindowState {
	list := slices.Clone(seen)
	for i := range list {
		of := slices.IndexFunc(c.Quotas, func(q *delivery.Quota) bool { return q.ID == list[i].Quota })
		if c.Quotas[of].Windows[list[i].Window].Algorithm != delivery.AlgorithmFixed && list[i].ResetAt != 0 {
			at(&list[i])
		}
	}
	return list
}
