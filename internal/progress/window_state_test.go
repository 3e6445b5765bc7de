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
	asked    *delivery.Campaign   // as the store knows it: with the rate of a step of its ramp
	others   []*delivery.Campaign // like it, which have as much to send
	weight   int64                // of each job, if it is not 1
	now      int64                // microseconds
	takes    int
}

// send sends units when its schedule and the quotas let it, and returns when the last of them was; false if that takes more
// takes than the test has time for.
func (g *greedy) send(units, until int64) (at int64, ok bool) {
	for units > 0 && g.now < until {
		if g.takes++; g.takes > 4_000 {
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
		weight := max(1, g.weight)
		asks := make([]delivery.Ask, 1+len(g.others))
		for i, asked := range append([]*delivery.Campaign{g.asked}, g.others...) {
			asks[i] = delivery.Ask{Campaign: asked, Want: min(units, delivery.MaxGrant/weight*weight), Horizon: 75_000, Quantum: 25_000, LateTolerance: 20_000}
			if g.weight > 1 {
				asks[i].Weights = slices.Repeat([]int64{weight}, int(asks[i].Want/weight))
			}
		}
		items := g.store.Take(g.now, "daemon", asks).Items
		next := int64(math.MaxInt64)
		if len(g.others) > 0 {
			next = g.now + 12_000_000 // room is kept for those that ask that often
		}
		for _, got := range items {
			next = min(next, got.NextAt)
		}
		if got := items[0]; got.Units > 0 {
			at = got.First.Advance(got.Units-weight, got.Rate).Micros()
			units -= got.Units
		}
		g.now = max(g.now+25_000, next)
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
		forecast, ok := f.done(c, float64(units), 1)
		g := &greedy{store: model.NewStore(), campaign: c, asked: c, now: now.UnixMicro()}
		done, can := g.send(units, math.MaxInt64)
		if !ok || !can || forecast.Sub(time.UnixMicro(done)).Abs() > time.Minute {
			t.Errorf("%d units until %s, forecast %s, %v, %v", units, time.UnixMicro(done).UTC(), forecast, ok, can)
		}
	}
}

// TestAShortWindowDoesNotCostAPeriodOfALongOne: what a short window lets through before an hour ends decides how many hours it takes.
func TestAShortWindowDoesNotCostAPeriodOfALongOne(t *testing.T) {
	windows := []delivery.Window{
		{Span: time.Second, Limit: 5}, {Span: 30 * time.Second, Limit: 7},
		{Span: time.Hour, Limit: 26, Algorithm: delivery.AlgorithmFixed, Anchor: "hour@Asia/Kathmandu"},
	}
	c := campaign("c", 100, 1, &delivery.Quota{ID: "q", Revision: 1, Windows: windows})
	for _, before := range []int{10, 70, 100, 105, 900} { // seconds before the hour ends, which is at a quarter past
		begin := time.Date(2026, 11, 20, 12, 15, -before, 0, time.UTC)
		g := &greedy{store: model.NewStore(), campaign: c, asked: c, now: begin.UnixMicro()}
		forecast, ok := newForecast(begin, []*delivery.Campaign{c}, g.store.Peek(g.now, c.Quotas)).done(c, 50, 1)
		done, can := g.send(50, math.MaxInt64)
		if took := time.UnixMicro(done).Sub(begin); !ok || !can || forecast.Sub(begin)-took > took/5 || took-forecast.Sub(begin) > took/5 {
			t.Errorf("%d s before the hour ends: in %s, forecast %s", before, took, forecast.Sub(begin))
		}
	}
}

// TestWhatIsNotFollowedToItsEndKeepsToTheHours: of units that go one by one, the last go on the next day.
func TestWhatIsNotFollowedToItsEndKeepsToTheHours(t *testing.T) {
	c := campaign("c", 14, 1,
		&delivery.Quota{ID: "even", Revision: 1, Spend: delivery.SpendEven, Windows: []delivery.Window{
			{Span: 30 * time.Second, Limit: 44, Algorithm: delivery.AlgorithmFixed}, {Span: 10 * time.Minute, Limit: 416, Algorithm: delivery.AlgorithmFixed},
		}},
		&delivery.Quota{ID: "greedy", Revision: 1, Windows: []delivery.Window{
			{Span: 5 * time.Second, Limit: 5}, {Span: 10 * time.Second, Limit: 7, Algorithm: delivery.AlgorithmLog},
		}},
	)
	hours, err := delivery.NewActiveHours([]delivery.HoursSpan{{From: 0, To: 36}}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	c.Hours = hours
	begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	g := &greedy{store: model.NewStore(), campaign: c, asked: c, now: begin.UnixMicro()}
	forecast, ok := newForecast(begin, []*delivery.Campaign{c}, g.store.Peek(g.now, c.Quotas)).done(c, 2661, 1)
	done, can := g.send(2661, math.MaxInt64)
	if took, in := time.UnixMicro(done).Sub(begin), forecast.Sub(begin); !ok || !can || (in-took).Abs() > took/5 {
		t.Errorf("in %s, forecast %s", took, in)
	}
}

// TestWhatIsNotFollowedToItsEndKeepsToThePeriods: the last units of three periods of a day go in the third.
func TestWhatIsNotFollowedToItsEndKeepsToThePeriods(t *testing.T) {
	c := campaign("c", 100, 1,
		&delivery.Quota{ID: "a", Revision: 1, Windows: []delivery.Window{
			{Span: time.Hour, Limit: 1227}, {Span: time.Second, Limit: 145},
		}},
		&delivery.Quota{ID: "b", Revision: 1, Windows: []delivery.Window{
			{Span: 7 * time.Second, Limit: 6}, {Span: 24 * time.Hour, Limit: 1848, Algorithm: delivery.AlgorithmFixed}, {Span: time.Hour, Limit: 232},
		}},
	)
	begin := time.Date(2026, 11, 20, 0, 0, 0, 0, time.UTC)
	g := &greedy{store: model.NewStore(), campaign: c, asked: c, now: begin.UnixMicro()}
	forecast, ok := newForecast(begin, []*delivery.Campaign{c}, g.store.Peek(g.now, c.Quotas)).done(c, 4262, 1)
	done, can := g.send(4262, math.MaxInt64)
	if took, in := time.UnixMicro(done).Sub(begin), forecast.Sub(begin); !ok || !can || (in-took).Abs() > took/5 {
		t.Errorf("in %s, forecast %s", took, in)
	}
}

// TestWhatIsNotFollowedToItsEndGoesInBursts: what goes in some minutes of a day goes in as many of the next day.
func TestWhatIsNotFollowedToItsEndGoesInBursts(t *testing.T) {
	c := campaign("c", 5, 1,
		&delivery.Quota{ID: "a", Revision: 1, Windows: []delivery.Window{
			{Span: 24 * time.Hour, Limit: 1662, Algorithm: delivery.AlgorithmLog}, {Span: 5 * time.Second, Limit: 216},
		}},
		&delivery.Quota{ID: "b", Revision: 1, Windows: []delivery.Window{{Span: 5 * time.Second, Limit: 26}}},
	)
	for _, units := range []int64{1700, 2400, 3209} {
		g := &greedy{store: model.NewStore(), campaign: c, asked: c, now: 1_790_000_028_844_000}
		g.send(1, math.MaxInt64)
		g.now += 1_000_000_000
		begin := time.UnixMicro(g.now)
		forecast, ok := newForecast(begin, []*delivery.Campaign{c}, g.store.Peek(g.now, c.Quotas)).done(c, float64(units), 1)
		done, can := g.send(units, math.MaxInt64)
		if took, in := time.UnixMicro(done).Sub(begin), forecast.Sub(begin); !ok || !can || (in-took).Abs() > took/5 {
			t.Errorf("%d units in %s, forecast %s", units, took, in)
		}
	}
}

// TestWhatIsNotFollowedToItsEndGoesInBurstsOfHours: what a day's limit leaves for the fourth night goes in that night.
func TestWhatIsNotFollowedToItsEndGoesInBurstsOfHours(t *testing.T) {
	h := &history{begins: 1_790_000_000_104_570, opens: 1, closes: 298, units: 3600, part: 5. / 16, campaign: campaign("c", 3, 1,
		&delivery.Quota{ID: "a", Revision: 1, Spend: delivery.SpendEven, Windows: []delivery.Window{
			{Span: time.Second, Limit: 7}, {Span: 5 * time.Second, Limit: 50, Algorithm: delivery.AlgorithmFixed},
		}},
		&delivery.Quota{ID: "b", Revision: 1, Spend: delivery.SpendEven, Windows: []delivery.Window{{Span: 5 * time.Second, Limit: 16}}},
		&delivery.Quota{ID: "c", Revision: 1, Windows: []delivery.Window{{Span: 24 * time.Hour, Limit: 1021, Algorithm: delivery.AlgorithmLog}}},
	)}
	h.setHours(t, 0)
	if o, can := h.play(); !can || !o.comesTrue() {
		t.Errorf("%+v, %v", o, can)
	}
}

// TestAForecastKnowsWhenUnitsLeave: most of what a window counts leaves it long before the last of it does.
func TestAForecastKnowsWhenUnitsLeave(t *testing.T) {
	c := campaign("c", 100, 1, &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{{Span: time.Hour, Limit: 1000}}})
	g := &greedy{store: model.NewStore(), campaign: c, asked: c, now: 1_790_000_000_000_000}
	g.send(900, math.MaxInt64)
	g.now += 3_000_000_000
	g.send(100, math.MaxInt64)
	began := time.UnixMicro(g.now)
	forecast, ok := newForecast(began, []*delivery.Campaign{c}, g.store.Peek(g.now, c.Quotas)).done(c, 700, 1)
	done, can := g.send(700, math.MaxInt64)
	if took, in := time.UnixMicro(done).Sub(began), forecast.Sub(began); !ok || !can || (in-took).Abs() > took/5 {
		t.Errorf("in %s, forecast %s", took, in)
	}
}

// TestUnitsOfASecondMakePeriodsUnlike: the 23 units or so that go in the longer of two short windows are five a second, so two of its periods
// differ by some of them. They are passed over all the same: the second day's units are not forecast for the third day.
func TestUnitsOfASecondMakePeriodsUnlike(t *testing.T) {
	for _, units := range []int64{1300, 2000, 2200, 2391} {
		h := &history{begins: 1_790_000_000_000_005, units: units, campaign: campaign("c", 9, 1, &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{
			{Span: 5 * time.Second, Limit: 29}, {Span: time.Second, Limit: 5}, {Span: 24 * time.Hour, Limit: 1196},
		}})}
		if o, can := h.play(); !can || !o.comesTrue() {
			t.Errorf("%d jobs: %+v, %v", units, o, can)
		}
	}
}

// TestAWindowThatNeverBindsHoldsUpNoForecast: thirty seconds have room for all that five let through, so what goes on alike is passed over beyond them.
func TestAWindowThatNeverBindsHoldsUpNoForecast(t *testing.T) {
	for _, units := range []int64{1000, 3000, 5000} {
		h := &history{begins: 1_790_000_000_000_072, units: units, campaign: campaign("c", 29, 1, &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{
			{Span: time.Hour, Limit: 1678}, {Span: 30 * time.Second, Limit: 328, Algorithm: delivery.AlgorithmFixed}, {Span: 5 * time.Second, Limit: 7},
		}})}
		if o, can := h.play(); !can || !o.comesTrue() {
			t.Errorf("%d jobs: %+v, %v", units, o, can)
		}
	}
}

// TestWhatIsNotFollowedToItsEndGoesLikeManySpans: of one job in each span or so, the last span has one or two.
func TestWhatIsNotFollowedToItsEndGoesLikeManySpans(t *testing.T) {
	h := &history{
		begins: 1_790_000_000_008_204, units: 3238, weight: 5, part: 50, used: []use{{5, 1_429_633, 0}, {1, 740_031, 1_000_000_000}, {4, 174, 1_000_000_000}},
		campaign: campaign("c", 67, 1, &delivery.Quota{ID: "q", Revision: 1, Spend: delivery.SpendEven, Windows: []delivery.Window{
			{Span: 30 * time.Second, Limit: 94}, {Span: 10 * time.Minute, Limit: 12, Algorithm: delivery.AlgorithmLog}, {Span: 5 * time.Minute, Limit: 8},
		}}),
	}
	if o, can := h.play(); !can || !o.comesTrue() {
		t.Errorf("%+v, %v", o, can)
	}
}

// TestWhatIsNotFollowedToItsEndGoesLikeTheLastHours: what goes at once when hours begin says little of what goes in all of them.
func TestWhatIsNotFollowedToItsEndGoesLikeTheLastHours(t *testing.T) {
	h := &history{
		begins: 1_790_000_000_000_021, opens: 756, closes: 783, units: 4453, used: []use{{2000, 5, 1_000_000_000}, {1, 253, 20_000_000}},
		campaign: campaign("c", 30, 1, &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{
			{Span: 30 * time.Second, Limit: 1196}, {Span: 10 * time.Minute, Limit: 421}, {Span: time.Second, Limit: 5},
		}}),
	}
	h.setHours(t, 0)
	if o, can := h.play(); !can || !o.comesTrue() {
		t.Errorf("%+v, %v", o, can)
	}
}

// TestADaysLimitInHoursIsUsedAtOnce: of hours that begin with a day's limit, what goes in some minutes goes in as many of the next day.
func TestADaysLimitInHoursIsUsedAtOnce(t *testing.T) {
	for _, units := range []int64{1000, 1900, 2500, 3481, 3800} {
		h := &history{begins: 1_790_086_400_000_000, opens: 2, closes: 420, units: units, part: 5. / 7, campaign: campaign("c", 14, 1,
			&delivery.Quota{ID: "a", Revision: 1, Spend: delivery.SpendEven, Windows: []delivery.Window{{Span: 5 * time.Second, Limit: 8, Algorithm: delivery.AlgorithmFixed}}},
			&delivery.Quota{ID: "b", Revision: 1, Spend: delivery.SpendEven, Windows: []delivery.Window{{Span: 5 * time.Second, Limit: 7}}},
			&delivery.Quota{ID: "c", Revision: 1, Windows: []delivery.Window{{Span: 24 * time.Hour, Limit: 1871}}},
		)}
		h.setHours(t, 0)
		if o, can := h.play(); !can || !o.comesTrue() {
			t.Errorf("%d jobs: %+v, %v", units, o, can)
		}
	}
}

// TestPeriodsOfAWindowThatNeverBindsArePassedOver: what went in them is known to those that follow.
func TestPeriodsOfAWindowThatNeverBindsArePassedOver(t *testing.T) {
	h := &history{begins: 1_790_000_000_000_000, units: 21, weight: 3, campaign: campaign("c", 2, 1, &delivery.Quota{ID: "q", Revision: 1, Windows: []delivery.Window{
		{Span: 7 * time.Second, Limit: 18, Algorithm: delivery.AlgorithmFixed}, {Span: 5 * time.Second, Limit: 6, Algorithm: delivery.AlgorithmFixed},
	}})}
	if o, can := h.play(); !can || !o.comesTrue() {
		t.Errorf("%+v, %v", o, can)
	}
}

// TestAUnitAtTheBorderOfPeriodsIsOneOfThem: of one heavy job in five seconds, four periods have four.
func TestAUnitAtTheBorderOfPeriodsIsOneOfThem(t *testing.T) {
	for _, units := range []int64{20, 388} {
		h := &history{begins: 1_790_000_000_000_000, units: units, weight: 4, used: []use{{2, 1, 0}}, campaign: campaign("c", 54, 1,
			&delivery.Quota{ID: "a", Revision: 1, Windows: []delivery.Window{{Span: time.Second, Limit: 5}, {Span: 5 * time.Second, Limit: 8}}},
			&delivery.Quota{ID: "b", Revision: 1, Windows: []delivery.Window{{Span: 5 * time.Second, Limit: 5, Algorithm: delivery.AlgorithmLog}}},
		)}
		if o, can := h.play(); !can || o.likely < 0.9*o.least || o.likely > 1.1*o.least {
			t.Errorf("%d jobs: %+v, %v", units, o, can)
		}
	}
}

// TestNoMoreGoesInAPeriodThanFitsInIt: many jobs of an evenly spent window of a few units are counted some at a time, those of a period at most.
func TestNoMoreGoesInAPeriodThanFitsInIt(t *testing.T) {
	for _, weight := range []int64{0, 2} {
		for _, units := range []int64{100, 500, 3000} {
			h := &history{begins: 1_790_000_000_000_003, units: units, weight: weight, part: 7. / 5, campaign: campaign("c", 27, 1, &delivery.Quota{
				ID: "q", Revision: 1, Spend: delivery.SpendEven, Windows: []delivery.Window{{Span: 7 * time.Second, Limit: 5, Algorithm: delivery.AlgorithmFixed}},
			})}
			if o, can := h.play(); !can || !o.comesTrue() {
				t.Errorf("%d jobs of weight %d: %+v, %v", units, weight, o, can)
			}
		}
	}
}

// TestForecastsComeTrue: for any windows of any quotas, fresh or used before, and any active hours, a campaign that sends as fast
// as they allow is done within a fifth of the time that was forecast. Where three units, or minutes of the day, would make a difference
// of more, the time may also be that of a campaign with those units or at that time: see docs/quotas.md.
func TestForecastsComeTrue(t *testing.T) {
	histories, onEdge := 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		h := drawHistory(rt)
		if h.fewInHours() {
			rt.Skip("a unit more or less goes each day")
		}
		lot, can := h.play()
		if !can {
			rt.Skip("it takes too long")
		}
		histories++
		if lot.comesTrue() {
			return
		}
		onEdge++
		first := lot
		for _, vary := range []func(h *history){
			func(h *history) { h.units += 3 },
			func(h *history) { h.units = max(1, h.units-3) },
			func(h *history) { h.begins += 180_000_000 },
			func(h *history) { h.begins -= 180_000_000 },
			func(h *history) { h.setHours(rt, 3) },
			func(h *history) { h.setHours(rt, -3) },
		} {
			next := *h
			vary(&next)
			if other, can := next.play(); can {
				lot.from, lot.to = min(lot.from, other.from), max(lot.to, other.to)
				lot.least, lot.most = min(lot.least, other.least), max(lot.most, other.most)
			}
		}
		if !lot.comesTrue() {
			rt.Fatalf("%d jobs in %.1f s, forecast %.1f to %.1f, most likely %.1f s; others %+v", h.units, first.least, first.from, first.to, first.likely, lot)
		}
	})
	t.Logf("%d histories; in %d three units or minutes made a difference", histories, onEdge)
}

// history is what a campaign did, and what it has to send then.
type history struct {
	campaign *delivery.Campaign
	used     []use
	begins   int64
	opens    int // minutes of the day; both 0: always
	closes   int
	units    int64
	weight   int64   // of each job; 0: 1
	part     float64 // what a unit takes of the span of a window that is spent evenly
}

// use is that units were sent for some time at most, before a pause; microseconds.
type use struct{ units, during, idle int64 }

func drawHistory(rt *rapid.T) *history {
	h := &history{
		campaign: drawCampaign(rt), begins: 1_790_000_000_000_000 + rapid.Int64Range(0, 86_400_000_000).Draw(rt, "begins"),
		units: rapid.Int64Range(1, 5000).Draw(rt, "units"),
	}
	if rapid.IntRange(0, 2).Draw(rt, "hours") == 0 {
		h.opens = rapid.IntRange(0, 1400).Draw(rt, "from")
		h.closes = rapid.IntRange(h.opens+10, 1439).Draw(rt, "to")
		h.setHours(rt, 0)
	}
	for range rapid.IntRange(0, 3).Draw(rt, "used before") {
		h.used = append(h.used, use{
			rapid.Int64Range(1, 2000).Draw(rt, "used"), rapid.Int64Range(1, 3_600_000_000).Draw(rt, "during"),
			rapid.SampledFrom([]int64{0, 100_000, 20_000_000, 1_000_000_000}).Draw(rt, "idle"),
		})
	}
	for _, q := range h.campaign.Quotas {
		for _, w := range q.Windows {
			if q.Spend == delivery.SpendEven {
				h.part = max(h.part, 1/sustained(q, w))
			}
		}
	}
	if rapid.IntRange(0, 3).Draw(rt, "heavy") == 0 {
		h.weight = rapid.Int64Range(2, 5).Draw(rt, "weight")
	}
	return h
}

// fewInHours tells whether active hours last for so few jobs of an evenly spent window that its phase decides how many go in them:
// where a period begins with a unit, that depends on some hundredths of a second.
func (h *history) fewInHours() bool {
	return h.closes > 0 && h.part*float64(max(1, h.weight)) > float64(h.closes-h.opens)*60/8
}

// setHours makes the campaign active in its hours, which last some minutes longer.
func (h *history) setHours(t interface{ Fatal(...any) }, longer int) {
	if h.closes == 0 {
		return
	}
	c := *h.campaign
	hours, err := delivery.NewActiveHours([]delivery.HoursSpan{{From: h.opens, To: h.closes + longer}}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	c.Hours, h.campaign = hours, &c
}

// outcome is how long it took, and what was forecast, in seconds.
type outcome struct{ least, most, from, likely, to, part float64 }

func (o outcome) comesTrue() bool {
	return o.most >= o.from*0.8-o.part && o.least <= o.to*1.2+o.part
}

// play lets the campaign send; ok is false if that takes too long.
func (h *history) play() (o outcome, ok bool) {
	c := h.campaign
	weight := max(1, h.weight)
	g := &greedy{store: model.NewStore(), campaign: c, asked: c, weight: weight, now: h.begins}
	// The first unit ever of an evenly spent window of a calendar takes its part of the whole span, whenever that ends.
	g.store.Take(h.begins-3*86_400_000_000, "daemon", []delivery.Ask{{Campaign: c, Want: 1, Horizon: 1_000_000, Quantum: 25_000, LateTolerance: 20_000}})
	for _, u := range h.used {
		if _, ok := g.send(u.units*weight, g.now+u.during); !ok {
			return o, false
		}
		g.now += u.idle
	}
	began := time.UnixMicro(g.now)
	seen := g.store.Peek(g.now, c.Quotas)
	done := func(seen []delivery.WindowState, units float64) float64 {
		at, ok := newForecast(began, []*delivery.Campaign{c}, seen).done(c, units, float64(weight))
		if !ok {
			return longest // and more is not forecast
		}
		return at.Sub(began).Seconds()
	}
	units := float64(h.units)
	o = outcome{
		from: done(leavesAt(seen, -1), max(0.5, units-1)), likely: done(seen, units), to: done(leavesAt(seen, 1), units+1), part: 2 + h.part,
	}
	at, ok := g.send(h.units*weight, math.MaxInt64)
	o.least = time.UnixMicro(at).Sub(began).Seconds()
	o.least = min(longest, o.least)
	o.most = o.least
	return o, ok
}

// drawCampaign draws a campaign with up to five windows of up to three quotas.
func drawCampaign(rt *rapid.T) *delivery.Campaign {
	c := campaign("c", rapid.Int64Range(1, 100).Draw(rt, "rate"), 1)
	windows := rapid.IntRange(1, 5).Draw(rt, "windows")
	for i := range rapid.IntRange(1, min(3, windows)).Draw(rt, "quotas") {
		c.Quotas = append(c.Quotas, &delivery.Quota{
			ID: fmt.Sprint("q", i), Revision: 1,
			Spend: rapid.SampledFrom([]string{delivery.SpendGreedy, delivery.SpendGreedy, delivery.SpendEven}).Draw(rt, "spend"),
		})
	}
	for i := range windows {
		q := c.Quotas[i%len(c.Quotas)]
		span := rapid.SampledFrom([]int{1, 5, 7, 10, 30, 60, 300, 600, 3600, 86_400}).Draw(rt, "span")
		w := delivery.Window{Span: time.Duration(span) * time.Second, Limit: rapid.Int64Range(5, 2000).Draw(rt, "limit")}
		w.Algorithm = rapid.SampledFrom([]string{"sliding", "sliding", "fixed", "log"}).Draw(rt, "algorithm")
		if anchor := anchors[span]; anchor != "" && w.Algorithm == delivery.AlgorithmFixed && rapid.Bool().Draw(rt, "calendar") {
			w.Anchor = anchor + "@Asia/Kathmandu" // an offset that is no whole hour
		}
		if slices.ContainsFunc(q.Windows, func(o delivery.Window) bool { return o.Span == w.Span }) {
			continue
		}
		q.Windows = append(q.Windows, w)
	}
	return c
}

// anchors are the units of the calendar of a span in seconds.
var anchors = map[int]string{60: "minute", 3600: "hour", 86_400: "day"}

// leavesAt is what is seen of windows, if each quarter of what they count leaves when its first unit does, or its last.
func leavesAt(seen []delivery.WindowState, late int) []delivery.WindowState {
	list := slices.Clone(seen)
	for i := range list {
		w := &list[i]
		if w.Leaving[0] == 0 {
			continue
		}
		at := append(w.Leaving[:], w.ResetAt)
		if late > 0 {
			w.Leaving = [4]int64(at[1:])
		} else {
			w.ResetAt, w.Leaving = at[3], [4]int64{at[0], at[0], at[1], at[2]}
		}
	}
	return list
}
