package local

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/testservices"
)

// outage is daemons that share a store which fails from down to up, in virtual time.
type outage struct {
	store    *model.Store
	rnd      *rand.Rand
	down, up int64
	daemons  []*cutOff
}

// cutOff is one daemon with a feed for each campaign. A job comes every feed.every microseconds (0: there are always jobs).
type cutOff struct {
	name  string
	f     *Fallback
	at    int64 // its next turn
	feeds []*feed
}

type feed struct {
	campaign *delivery.Campaign
	every    int64
	arrived  int64 // when the next job comes
	queued   int64
	next     int64 // when to ask again
	held     int64
	horizon  int64
	local    int64   // units granted without the store
	slots    []int64 // of all grants
}

func testFallback(t testing.TB) *Fallback {
	t.Helper()
	return New(Options{Shards: 1, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
}

func newOutage(t testing.TB, seed uint64, lasts time.Duration) *outage {
	t.Helper()
	down := epoch + 10*second
	return &outage{
		store: model.NewStore(), rnd: rand.New(rand.NewPCG(seed, 1)), down: down, up: down + lasts.Microseconds(),
	}
}

// strangers adds daemons that know their number. Each has jobs for a while when the others have none.
func (o *outage) strangers(t testing.TB, k int, c *delivery.Campaign) {
	t.Helper()
	for range k {
		o.add(t, 0, c)
	}
	for i, d := range o.daemons {
		d.f.fleet = func() int { return k }
		for step := range int64(100) {
			d.feeds[0].queued = 1
			o.ask(d, d.feeds[0], epoch+int64(i)*3_600_000+step*quantum)
		}
		d.at, d.feeds[0].next = o.down+1000, o.down+1000
	}
}

// add adds a daemon that has jobs for the campaigns.
func (o *outage) add(t testing.TB, every int64, campaigns ...*delivery.Campaign) {
	t.Helper()
	d := &cutOff{name: fmt.Sprintf("n%d", len(o.daemons)), f: testFallback(t), at: epoch + o.rnd.Int64N(quantum)}
	for _, c := range campaigns {
		h := horizon
		for _, q := range c.Quotas {
			for _, w := range q.Windows {
				h = min(h, max(w.Span.Microseconds()/50, quantum))
			}
		}
		d.feeds = append(d.feeds, &feed{campaign: c, every: every, arrived: epoch + o.rnd.Int64N(max(1, every)), horizon: h})
	}
	o.daemons = append(o.daemons, d)
}

// run lets the daemons take turns until the given time.
func (o *outage) run(until int64) {
	for {
		d := slices.MinFunc(o.daemons, func(a, b *cutOff) int { return int(a.at - b.at) })
		if d.at >= until {
			return
		}
		now := d.at
		if now < o.down || now >= o.up {
			o.charge(d, now)
		}
		d.at = now + Recheck
		for _, f := range d.feeds {
			for f.every > 0 && f.arrived <= now {
				f.queued++
				f.arrived += f.every
			}
			if f.every == 0 {
				f.queued = 100_000
			}
			if f.queued > 0 && f.next <= now {
				o.ask(d, f, now)
			}
			d.at = min(d.at, max(f.next, f.arrived, now+1_000))
		}
	}
}

// charge charges local grants to the store, as the charge script does: without regard to the limits.
func (o *outage) charge(d *cutOff, now int64) {
	for _, c := range slices.Concat(d.f.Spent()...) {
		for i := range c.Quota.Windows {
			c.Quota.Windows[i].Limit = model.MaxLimit
		}
		for units := c.Units; units > 0; {
			n := min(units, delivery.MaxGrant)
			book := &delivery.Campaign{ID: "book-" + d.name, Rate: delivery.PerSecond(1_000_000), PriorityWeight: 1_000_000,
				Quotas: []*delivery.Quota{c.Quota}}
			o.store.Take(now, d.name, []delivery.Ask{{
				Campaign: book, Want: n, Horizon: max(n+1, c.Widen-late), LateTolerance: late,
			}})
			units -= n
		}
	}
}

func (o *outage) ask(d *cutOff, f *feed, now int64) {
	a := ask(f.campaign, f.queued)
	a.LastGranted, a.Horizon = f.held, f.horizon
	var g delivery.Granted
	if now >= o.down && now < o.up {
		if !d.f.Grant(now, &a, &g) {
			f.next = now + Recheck
			return
		}
		f.local += g.Units
	} else {
		told := a
		told.LastGranted = d.f.LastGranted(now, &a)
		reply := o.store.Take(now, d.name, []delivery.Ask{told})
		d.f.Observe([]delivery.Ask{a}, &reply)
		g = reply.Items[0]
	}
	for i := range g.Units {
		f.held = g.First.Advance(i, g.Rate).Micros()
		f.slots = append(f.slots, f.held)
	}
	f.queued -= g.Units
	f.next = now + quantum + o.rnd.Int64N(3_000)
	if g.Units < a.Want {
		f.next = max(f.next, g.NextAt)
	}
}

// slots are those of a campaign over all daemons; with lateness, when its jobs may have left.
func (o *outage) slots(lateness int64, of func(*delivery.Campaign) bool) []int64 {
	var all []int64
	for _, d := range o.daemons {
		for _, f := range d.feeds {
			if !of(f.campaign) {
				continue
			}
			for _, at := range f.slots {
				all = append(all, at+o.rnd.Int64N(lateness+1))
			}
		}
	}
	slices.Sort(all)
	return all
}

// between is how many of the ascending events lie in [from, to).
func between(events []int64, from, to int64) int64 {
	i, _ := slices.BinarySearch(events, from)
	j, _ := slices.BinarySearch(events, to)
	return int64(j - i)
}

// check holds the slots against the rates, and the dispatches against the windows.
func (o *outage) check(fail func(string, ...any), campaigns []*delivery.Campaign, quotas []*delivery.Quota) {
	for _, c := range campaigns {
		slots := o.slots(0, func(o *delivery.Campaign) bool { return o.ID == c.ID })
		if most, bound := rolling(slots, second), c.Rate.UnitsIn(time.Second)+1; most > bound {
			fail("%s: %d slots in a rolling second, want at most %d", c.ID, most, bound)
		}
	}
	for _, q := range quotas {
		sent := o.slots(late, func(c *delivery.Campaign) bool { return slices.Contains(c.Quotas, q) })
		for _, w := range q.Windows {
			if most := rolling(sent, w.Span.Microseconds()); most > w.Limit {
				fail("%s: %d in a rolling %s, limit %d", q.ID, most, w.Span, w.Limit)
			}
		}
	}
}

func localShare(w []delivery.Window) *delivery.Quota {
	return &delivery.Quota{ID: "q", Revision: 1, Windows: w, OnStoreFailure: delivery.PolicyLocalShare}
}

func TestLocalSharesKeepRateAndWindows(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	for _, w := range []struct {
		name    string
		windows []delivery.Window
	}{
		{"wide", windows(1_000_000, 10*time.Second)},
		{"tight", windows(120, time.Second, 1_000, 20*time.Second)},
		{"long", windows(3_000, time.Hour)},
		{"short", windows(300, 2*time.Second)},
	} {
		for _, rate := range []int64{3, 40, 200, 1_000} {
			for _, k := range []int{1, 2, 3, 5} {
				for _, every := range []int64{0, 700_000} {
					t.Run(fmt.Sprintf("%s/%d/%d/%d", w.name, rate, k, every), func(t *testing.T) {
						t.Parallel()
						q := localShare(w.windows)
						c := campaign(rate, q)
						o := newOutage(t, uint64(rate)*10+uint64(k), 10*time.Second)
						for range k {
							o.add(t, every, c)
						}
						o.run(o.up + 30*second)
						o.check(t.Errorf, []*delivery.Campaign{c}, []*delivery.Quota{q})
						o.checkUse(t, w.name, c, k, every)
					})
				}
			}
		}
	}
}

// checkUse sees to it that the bounds are not kept by sending nothing.
func (o *outage) checkUse(t *testing.T, windows string, c *delivery.Campaign, k int, every int64) {
	t.Helper()
	slots := o.slots(0, func(*delivery.Campaign) bool { return true })
	rate := float64(c.Rate.UnitsIn(time.Second))
	if windows != "wide" || rate < float64(k) {
		return
	}
	share := 0.9 * rate
	if most := float64(k * ((int(rate) + 1) / k)); most < share {
		share = most
	}
	if every > 0 {
		share = min(share, float64(k)*1e6/float64(every))
	}
	got := float64(between(slots, o.down+3*second, o.up)) / 7
	if got < 0.9*share-1 {
		t.Errorf("%.1f/s without the store, want about %.1f", got, share)
	}
	if every == 0 {
		if got := float64(between(slots, o.up+4*second, o.up+30*second)) / 26; got < 0.99*rate-1 {
			t.Errorf("%.1f/s after the outage, want about %.0f", got, rate)
		}
	}
}

// TestDaemonsThatNeverMetShareToo: three daemons have had a trickle of jobs, each at its own time; when the store fails,
// all have a backlog.
func TestDaemonsThatNeverMetShareToo(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	for seed := range uint64(5) {
		q := localShare(windows(4_000, 10*time.Second))
		c := campaign(300, q)
		o := newOutage(t, seed, 30*time.Second)
		o.down += 2 * second
		o.strangers(t, 3, c)
		o.run(o.up + 20*second)
		o.check(t.Errorf, []*delivery.Campaign{c}, []*delivery.Quota{q})
		slots := o.slots(0, func(*delivery.Campaign) bool { return true })
		if n := between(slots, o.down+5*second, o.up); n < 25*200 {
			t.Errorf("%d sent without the store in 27 s", n)
		}
	}
}

// TestAHeavyJobOfLongAgoDoesNotStopTheShare: what counts is the heaviest job of the last minutes.
func TestAHeavyJobOfLongAgoDoesNotStopTheShare(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	q := localShare(windows(100_000, 10*time.Second))
	c := campaign(100, q)
	o := newOutage(t, 1, 20*time.Second)
	for range 3 {
		o.add(t, 0, c)
	}
	heavy := ask(c, 1)
	heavy.Weights, heavy.Want = []int64{90}, 90
	for _, d := range o.daemons {
		reply := o.store.Take(epoch-1, d.name, []delivery.Ask{heavy})
		d.f.Observe([]delivery.Ask{heavy}, &reply)
	}
	o.down, o.up = epoch+200*second, epoch+220*second
	o.run(o.up + 10*second)
	o.check(t.Errorf, []*delivery.Campaign{c}, []*delivery.Quota{q})
	slots := o.slots(0, func(*delivery.Campaign) bool { return true })
	if n := between(slots, o.down+3*second, o.up); n < 17*80 {
		t.Errorf("%d sent without the store in 17 s, of 100 a second", n)
	}
}

func TestLocalSharesOfManyCampaigns(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		lasts := rapid.SampledFrom([]time.Duration{300, 700, 3_000, 25_000}).Draw(rt, "lasts") * time.Millisecond
		o := newOutage(t, rapid.Uint64().Draw(rt, "seed"), lasts)
		limit, long := rapid.IntRange(1, 500).Draw(rt, "limit"), rapid.IntRange(1, 3_000).Draw(rt, "long limit")
		q := localShare(windows(limit, time.Second, long, 10*time.Second))
		var campaigns []*delivery.Campaign
		for i := range rapid.IntRange(1, 3).Draw(rt, "campaigns") {
			c := campaign(rapid.SampledFrom([]int64{1, 7, 60, 500}).Draw(rt, "rate"), q)
			c.ID = fmt.Sprintf("c%d", i)
			campaigns = append(campaigns, c)
		}
		for range rapid.IntRange(1, 5).Draw(rt, "daemons") {
			o.add(t, rapid.SampledFrom([]int64{0, 5_000, 100_000, 900_000}).Draw(rt, "every"), campaigns...)
		}
		o.run(o.up + 15*second)
		o.check(rt.Errorf, campaigns, []*delivery.Quota{q})
	})
}

func TestOpenIgnoresWindowsButKeepsTheRate(t *testing.T) {
	t.Parallel()
	q := localShare(windows(50, 10*time.Second))
	q.OnStoreFailure = delivery.PolicyOpen
	c := campaign(100, q)
	o := newOutage(t, 1, 20*time.Second)
	o.down += 5 * second // when the quota has been used up twice
	o.up += 5 * second
	for range 3 {
		o.add(t, 0, c)
	}
	o.run(o.up + 20*second)
	o.check(t.Errorf, []*delivery.Campaign{c}, nil)
	slots := o.slots(0, func(*delivery.Campaign) bool { return true })
	if got := between(slots, o.down+10*second, o.up); got < 80*10 {
		t.Errorf("%d in 10 s without the store, want nearly 900", got)
	}
	if got := between(slots, o.up+second/2, o.up+9*second); got > 0 {
		t.Errorf("%d right after the outage: what was sent has not been charged", got)
	}
	if got := between(slots, o.up+10*second, o.up+20*second); got == 0 {
		t.Error("nothing a span after the outage: more has been charged than a span holds")
	}
}

func TestPolicyOfACampaign(t *testing.T) {
	t.Parallel()
	w := windows(1, time.Second)
	quota := func(policy, mode string, w []delivery.Window) *delivery.Quota {
		return &delivery.Quota{ID: policy + mode, OnStoreFailure: policy, Mode: mode, Windows: w}
	}
	closed, share, open := quota("", "", w), quota("local-share", "strict", w), quota("open", "", w)
	for i, tc := range []struct {
		quotas []*delivery.Quota
		want   string
	}{
		{nil, "closed"},
		{[]*delivery.Quota{quota("open", "", nil)}, "closed"},
		{[]*delivery.Quota{quota("open", "shadow", w)}, "closed"},
		{[]*delivery.Quota{quota("open", "eventual", w)}, "closed"},
		{[]*delivery.Quota{open}, "open"},
		{[]*delivery.Quota{open, share}, "local-share"},
		{[]*delivery.Quota{share, open}, "local-share"},
		{[]*delivery.Quota{open, closed, share}, "closed"},
		{[]*delivery.Quota{open, quota("", "shadow", w)}, "open"},
		{[]*delivery.Quota{open, {ID: "tried", Exempt: 100, Windows: w}}, "open"},
		{[]*delivery.Quota{{ID: "tried", Exempt: 100, OnStoreFailure: "open", Windows: w}}, "closed"},
		{[]*delivery.Quota{share, quota("nonsense", "", w)}, "closed"},
	} {
		if got := policyOf(&delivery.Campaign{Quotas: tc.quotas}); got != tc.want {
			t.Errorf("%d: %s, want %s", i, got, tc.want)
		}
	}
	rolled := &delivery.Quota{ID: "rolled", Exempt: 50, OnStoreFailure: "open", Windows: w}
	for i := range 20 {
		c := &delivery.Campaign{ID: fmt.Sprint("c", i), Quotas: []*delivery.Quota{rolled}}
		if got := policyOf(c); (got == "open") != rolled.Covers(c.ID) {
			t.Errorf("covered: %t, policy %s", rolled.Covers(c.ID), got)
		}
	}
}

func TestSharesOfARate(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		r := limitstest.DrawRate(rt)
		k, w := rapid.Int64Range(1, 64).Draw(rt, "daemons"), rapid.Int64Range(1, 1000).Draw(rt, "weight")
		s := shareOf(r, k, w)
		if s.Zero() {
			return
		}
		// In a second a timeline has as many slots as fit, and a job more than its first.
		perSecond := delivery.Slot{}.CountUntil(second-1, s, delivery.MaxGrant)
		if sum, bound := k*(perSecond+w-1), r.UnitsIn(time.Second)+w; perSecond < delivery.MaxGrant && sum > bound {
			rt.Errorf("%d daemons at %v send %d in a second, want at most %d", k, s, sum, bound)
		}
		if float64(k)*s.PerSecond() > 0.9*r.PerSecond()*(1+1e-9) {
			rt.Errorf("%d daemons at %v exceed nine tenths of %v", k, s, r)
		}
	})
}

// serve lets the store answer a daemon that asks for the campaign.
func serve(f *Fallback, s *model.Store, now int64, node string, c *delivery.Campaign, want int64) delivery.Granted {
	asks := []delivery.Ask{ask(c, want)}
	reply := s.Take(now, node, asks)
	f.Observe(asks, &reply)
	return reply.Items[0]
}

// serveIn lets a shard serve the campaign.
func serveIn(shard int, f *Fallback, s *model.Store, now int64, c *delivery.Campaign) {
	asks := []delivery.Ask{ask(c, 1)}
	reply := s.Take(now, "n", asks)
	reply.Clocks[0].Shard = shard
	f.Observe(asks, &reply)
}

// served is a fallback that has seen a store serve the campaign for a while, until the returned time.
func served(f *Fallback, s *model.Store, c *delivery.Campaign) int64 {
	now := epoch
	for range 200 {
		now += quantum
		serve(f, s, now, "n", c, 1)
	}
	return now
}

// drain asks locally for a while and returns the grants.
func drain(f *Fallback, from, to int64, c *delivery.Campaign) []delivery.Granted {
	var list []delivery.Granted
	for now := from; now < to; now += quantum {
		a, g := ask(c, delivery.MaxGrant), delivery.Granted{}
		if f.Grant(now, &a, &g) && g.Units > 0 {
			list = append(list, g)
		}
	}
	return list
}

// TestNothingIsGrantedWithoutKnowledge: of a campaign that no store has answered for, of a quota, and of one that no answer named. An answer that a
// daemon gives itself for one of several quotas says nothing of the others.
func TestNothingIsGrantedWithoutKnowledge(t *testing.T) {
	t.Parallel()
	named, other := localShare(windows(1_000, time.Second)), localShare(windows(5_000, time.Hour))
	other.ID = "other"
	for what, tc := range map[string]struct {
		served, asks *delivery.Campaign // nil: no store has answered
		granted      bool
	}{
		"no answer":              {nil, campaign(100, named), false},
		"none for the quota":     {campaign(100, named), campaign(100, other), false},
		"one that lacks a quota": {campaign(100, named, other), campaign(100, named, other), false},
		"one that names all":     {campaign(100, named), campaign(100, named), true},
	} {
		f, s, now := testFallback(t), model.NewStore(), epoch
		for range 200 {
			if now += quantum; tc.served == nil {
				continue
			}
			asks := []delivery.Ask{ask(tc.served, 1)}
			reply := s.Take(now, "n", asks)
			g := &reply.Items[0]
			g.Windows = slices.DeleteFunc(g.Windows, func(w delivery.WindowState) bool { return w.Quota == "other" })
			f.Observe(asks, &reply)
		}
		if got := drain(f, now, now+5*second, tc.asks); (len(got) > 0) != tc.granted {
			t.Errorf("%s: granted %d times", what, len(got))
		}
	}
}

// TestShortSilencesAreWaitedOut: nothing is granted locally at first, and then there is a gap after the store's last slots.
func TestShortSilencesAreWaitedOut(t *testing.T) {
	t.Parallel()
	for _, rate := range []int64{4, 100} {
		f := testFallback(t)
		c := campaign(rate, localShare(windows(1_000, time.Second)))
		now := served(f, model.NewStore(), c)
		if got := drain(f, now, now+outageAfter, c); len(got) > 0 {
			t.Errorf("granted after %d µs", got[0].GrantedAt-now)
		}
		a := ask(c, 1)
		if got := f.LastGranted(now+outageAfter, &a); got != 0 {
			t.Errorf("a daemon that is alone waits until %d", got-now)
		}
		list := drain(f, now+outageAfter, now+5*second, c)
		gap := shareOf(c.Rate, 1, 1).Spacing()
		if len(list) == 0 || list[0].First.Micros() < now+outageAfter+gap {
			t.Errorf("%d µs after the failure: %+v", outageAfter+gap, list)
		}
	}
}

func TestLocalGrantsFollowTheRate(t *testing.T) {
	t.Parallel()
	f := testFallback(t)
	c := campaign(100, localShare(windows(1_000, time.Second)))
	now := served(f, model.NewStore(), c)
	drain(f, now, now+2*second, c)
	faster := *c
	faster.Revision, faster.Rate = 2, delivery.PerSecond(300)
	list := drain(f, now+2*second, now+4*second, &faster)
	var units int64
	for _, g := range list {
		units += g.Units
		if g.Revision != 2 || g.From.Epoch != Epoch || g.From.Campaign != &faster {
			t.Fatalf("grant %+v", g)
		}
	}
	if units < 500 || units > 560 {
		t.Errorf("%d units in 2 s, want nine tenths of 600", units)
	}
	stopped := faster
	stopped.Revision, stopped.Rate = 3, delivery.Rate{}
	if got := drain(f, now+4*second, now+6*second, &stopped); len(got) > 0 {
		t.Errorf("granted %d times at rate 0", len(got))
	}
}

func TestChargesAndRefunds(t *testing.T) {
	t.Parallel()
	f := testFallback(t)
	q := localShare(windows(40, time.Second, 10_000, time.Hour))
	c := campaign(100, q)
	now := served(f, model.NewStore(), c)
	var units int64
	list := drain(f, now, now+20*second, c)
	for _, g := range list {
		units += g.Units
	}
	last := list[len(list)-1]
	f.Refund(last.Grant())
	units -= last.Units
	byShard := f.Spent()
	if len(byShard) != 1 {
		t.Fatalf("shards %v", byShard)
	}
	charges := byShard[0]
	if len(charges) != 2 || len(charges[0].Quota.Windows) != 1 || charges[0].Units > 36 || charges[1].Units != units {
		t.Fatalf("%d units are charged as %+v", units, charges)
	}
	if got := f.Spent(); got != nil {
		t.Errorf("charged again: %v", got)
	}
	f.Unspent(charges)
	before := list[len(list)-2] // as each charge fails in an outage, it may still be given back
	f.Refund(before.Grant())
	units -= before.Units
	if got := slices.Concat(f.Spent()...); len(got) != 2 || got[1].Units != units || got[1].Widen != horizon+late {
		t.Errorf("after a failure %+v", got)
	}
	f.Refund(list[0].Grant()) // too late: it has been charged
	if got := f.Spent(); got != nil {
		t.Errorf("left over: %v", got)
	}
	more := drain(f, now+20*second, now+21*second, c)
	f.Unspent(slices.Concat(f.Spent()...))
	for _, g := range more { // while others that were charged are still in the span
		f.Refund(g.Grant())
	}
	if got := f.Spent(); len(more) == 0 || got != nil {
		t.Errorf("%d grants were given back, and yet %v are charged", len(more), got)
	}
}

// A take is answered while a charge is under way, and another one fails; then the charge fails.
func TestWhatAFailedChargeLeavesIsChargedLater(t *testing.T) {
	t.Parallel()
	f, s := testFallback(t), model.NewStore()
	c := campaign(100, localShare(windows(10_000, time.Hour)))
	now := served(f, s, c)
	units := int64(0)
	for _, g := range drain(f, now, now+2*recently, c) {
		units += g.Units
	}
	now += 2 * recently
	for range 3 {
		charges := slices.Concat(f.Spent()...)
		serve(f, s, now, "n", c, 1) // a take that was under way is answered
		now += quantum
		a, g := ask(c, 1), delivery.Granted{}
		f.Grant(now, &a, &g) // the next is not
		f.Unspent(charges)   // nor was the charge
		now += quantum
	}
	charged := int64(0)
	for _, c := range slices.Concat(f.Spent()...) {
		charged += c.Units
	}
	if charged != units {
		t.Errorf("%d of %d units are charged", charged, units)
	}
	// Once all is charged, the next outage begins anew.
	for range 3 {
		now += recently + second
		serve(f, s, now, "n", c, 1)
	}
	if f.shards[0].local.Peek(0, []*delivery.Quota{f.quotas["q"].counting()})[0].Remaining != model.MaxLimit {
		t.Error("local grants are remembered after all")
	}
}

func TestAnOutageIsAnnouncedOnce(t *testing.T) {
	t.Parallel()
	for policy, level := range map[string]string{delivery.PolicyLocalShare: "WARN", delivery.PolicyOpen: "ERROR"} {
		var log bytes.Buffer
		f := testFallback(t)
		f.log = slog.New(slog.NewTextHandler(&log, nil))
		q := localShare(windows(40, time.Second))
		q.OnStoreFailure = policy
		c, s := campaign(100, q), model.NewStore()
		now := served(f, s, c)
		drain(f, now, now+3*second, c)
		serve(f, s, now+3*second, "n", c, 1)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 2 || !strings.Contains(lines[0], level) || !strings.Contains(lines[1], "INFO") {
			t.Errorf("%s: %q", policy, lines)
		}
		if got := testutil.ToFloat64(f.granted.WithLabelValues(policy)); got < 36 {
			t.Errorf("%s: counted %g", policy, got)
		}
	}
}

func TestWhatIsNotAskedForIsForgotten(t *testing.T) {
	t.Parallel()
	f := testFallback(t)
	s := model.NewStore()
	now := served(f, s, campaign(100, localShare(windows(40, time.Second))))
	other := campaign(1, &delivery.Quota{ID: "other", Windows: windows(1, time.Second)})
	other.ID = "other"
	serve(f, s, now+unseenAfter+second, "n", other, 1)
	if len(f.campaigns) != 1 || len(f.quotas) != 1 {
		t.Errorf("%d campaigns and %d quotas are remembered", len(f.campaigns), len(f.quotas))
	}
}

// TestShardsForgetByTheirOwnClocks: a campaign is not forgotten because the clock of another shard is far ahead.
func TestShardsForgetByTheirOwnClocks(t *testing.T) {
	t.Parallel()
	f := New(Options{Shards: 2, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	c := campaign(100, localShare(windows(1_000, time.Second)))
	now := served(f, model.NewStore(), c)
	f.Observe(nil, &delivery.TakeReply{Clocks: []delivery.ShardClock{{Shard: 1, Now: now + 2*unseenAfter}}})
	if got := drain(f, now, now+5*second, c); len(got) == 0 {
		t.Error("nothing is granted for a campaign that was served a moment ago")
	}
}

// A campaign that has left its quota, and with it the shard, goes on to be answered by another one. That ends no outage of the first.
func TestWhoHasLeftAShardSaysNothingOfIt(t *testing.T) {
	t.Parallel()
	f := New(Options{Shards: 2, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	q := localShare(windows(1_000, time.Second))
	c, left := campaign(100, q), campaign(100, q)
	left.ID = "left"
	serveIn(0, f, model.NewStore(), epoch, left)
	now, free, other := served(f, model.NewStore(), c), *left, model.NewStore()
	free.Revision, free.Quotas = 2, nil
	granted := int64(0)
	for end := now + 5*second; now < end; now += quantum {
		for _, g := range drain(f, now, now+1, c) {
			granted += g.Units
		}
		serveIn(1, f, other, now+1, &free)
	}
	if granted < 300 {
		t.Errorf("%d units in 5 s without the shard, of 100 a second", granted)
	}
}

// Shards have clocks of their own: what is granted without one of them lies on its clock.
func TestLocalSlotsLieOnTheClockOfTheirShard(t *testing.T) {
	t.Parallel()
	f := New(Options{Shards: 2, Logger: slog.New(slog.DiscardHandler), Registerer: prometheus.NewRegistry()})
	q, ahead := localShare(windows(1_000, time.Second)), localShare(windows(1_000, time.Second))
	ahead.ID, ahead.Shard = "ahead", 1
	c, other := campaign(100, q), campaign(100, ahead)
	other.ID = "other"
	offset := 5 * second
	s, there := model.NewStore(), model.NewStore()
	now := served(f, s, c)
	for at := now - 5*second; at < now; at += quantum {
		serveIn(1, f, there, at+offset, other)
	}
	drain(f, now+offset, now+offset+3*second, other)
	for _, g := range drain(f, now, now+3*second, c) {
		if first := g.First.Micros(); g.GrantedAt > now+3*second || first > now+3*second+horizon {
			t.Fatalf("a slot %d µs after the begin, granted %d µs after it", first-now, g.GrantedAt-now)
		}
	}
}

// A daemon has to assume the use between its last answer and the outage.
func TestUnseenUseIsReckonedWith(t *testing.T) {
	t.Parallel()
	c := campaign(100, localShare(windows(200, 10*time.Second)))
	s, list := model.NewStore(), []*Fallback{testFallback(t), testFallback(t)}
	now, used := settle(s, epoch, c), int64(0)
	take := func(i int, want int64) { used += serve(list[i], s, now, fmt.Sprint(i), c, want).Units }
	for range 25 { // both ask now and then, and know of each other
		now += second / 5
		take(0, 1)
		take(1, 1)
	}
	for range 36 { // then one takes what it can get
		now += quantum
		take(1, delivery.MaxGrant)
	}
	before := used
	for _, f := range list {
		for _, g := range drain(f, now, now+6*second, c) {
			used += g.Units
		}
	}
	if used > 200 || before < 120 {
		t.Errorf("%d units before the outage and %d with it, limit 200", before, used)
	}
}

// TestTheExampleOfAnOutageIsTrue plays the example of docs/quotas.md: what is sent in a second while the store is away.
func TestTheExampleOfAnOutageIsTrue(t *testing.T) {
	testservices.Simulation(t)
	t.Parallel()
	text, err := os.ReadFile("../../../docs/quotas.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(text), "\n```outage\n")
	example, _, _ = strings.Cut(example, "\n```")
	first, rest, _ := strings.Cut(example, "\n")
	var limit, daemons, played int
	if _, err := fmt.Sscanf(first, "quota %d/1s, %d daemons", &limit, &daemons); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(rest) {
		policy, bounds, _ := strings.Cut(line, ":")
		var least, most int64
		if _, err := fmt.Sscanf(bounds, "%d to %d", &least, &most); err != nil {
			t.Fatal(err)
		}
		q := localShare(windows(limit, time.Second))
		q.OnStoreFailure = policy
		c := campaign(300, q)
		o := newOutage(t, 1, 20*time.Second)
		for range daemons {
			o.add(t, 0, c)
		}
		o.run(o.up)
		slots := o.slots(0, func(*delivery.Campaign) bool { return true })
		if n := between(slots, o.down+5*second, o.up) / 15; n < least || n > most {
			t.Errorf("%s: %d in a second", policy, n)
		}
		played++
	}
	if played != 3 {
		t.Errorf("%d policies", played)
	}
}
