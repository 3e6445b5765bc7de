package limits

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/limitstest"
	"github.com/pacer/pacer/internal/testservices"
)

// TestHistoriesKeepTheirPromises runs random fleets under random quotas, on every topology of the store. It knows docs/quotas.md, and
// nothing of how its sentences are kept:
//   - no window ever holds more than the largest limit that was in force in it, though limits, spans and algorithms change;
//   - a job that its rate and every window of its quotas have room for, besides all that others wait for, goes within a
//     horizon, whatever its weight, however quotas are spent, and whoever has died before;
//   - jobs of campaigns that a quota does not cover, or that only a quota in shadow mode holds, go as if there were none.
func TestHistoriesKeepTheirPromises(t *testing.T) {
	testservices.Simulation(t)
	t.Run("model", func(t *testing.T) {
		testservices.Few(t, 100, func(rt *rapid.T) { newPlay(rt, 40*second).run(rt, limitstest.NewShared()) })
	})
	for _, top := range topologies {
		t.Run(top.name, func(t *testing.T) {
			if testing.Short() {
				t.Skip("Redis is needed: not under -short")
			}
			testservices.Few(t, 3, func(rt *rapid.T) { newPlay(rt, 15*second).run(rt, newLuaOn(t, top.start())) })
		})
	}
}

// play is a history: campaigns with jobs that come now and then, under quotas that people change.
type play struct {
	now, end  int64
	campaigns []*player
	quotas    []*ruled
}

// player is a campaign. Its daemons ask when they are told to, and every 12 s at least; when a quota changes, at once.
type player struct {
	campaign *delivery.Campaign
	quotas   []*ruled
	weights  []int64 // of the jobs that come together
	daemons  []*queued
	next     int64 // when its timeline has a slot at the latest
	dies     int64 // from then on nobody asks for it
}

// queued is the jobs of a campaign on one daemon.
type queued struct {
	jobs   []int64 // their weights
	arrive []int64 // when more come
	due    int64   // when it asks
	asked  int64   // when it asked last
	wanted int64   // for how many units
	ready  int64   // since when all limits have had room for its first job, 0 if they have not
}

// ruled is a quota, and what is known of it from outside.
type ruled struct {
	spec    *delivery.Quota
	changes []ruling
	plans   []int64
	log     []sent // units of campaigns that it covers; ascending, with the sum so far
	paced   map[time.Duration]int64
	resets  map[time.Duration]map[int64]bool
}

// ruling is a revision of a quota, from a time on. The store hears of it with the first ask.
type ruling struct {
	at    int64
	spec  *delivery.Quota
	heard int64
}

var playSpans = []time.Duration{time.Second, 2 * time.Second, 5 * time.Second, 12 * time.Second}

func newPlay(rt *rapid.T, lasts int64) *play {
	p := &play{now: epoch, end: epoch + lasts}
	for i := range rapid.IntRange(1, 3).Draw(rt, "quotas") {
		q := &delivery.Quota{ID: fmt.Sprintf("q%d", i), Revision: 1, Windows: drawRuledWindows(rt)}
		q.Mode = rapid.SampledFrom([]string{delivery.ModeStrict, delivery.ModeStrict, delivery.ModeStrict, delivery.ModeShadow}).Draw(rt, "mode")
		q.Spend = rapid.SampledFrom([]string{delivery.SpendGreedy, delivery.SpendGreedy, delivery.SpendEven}).Draw(rt, "spend")
		q.Exempt = rapid.SampledFrom([]int64{0, 0, 0, 50, 100}).Draw(rt, "exempt")
		r := &ruled{spec: q, changes: []ruling{{0, q, 0}}, paced: map[time.Duration]int64{}, resets: map[time.Duration]map[int64]bool{}}
		for range rapid.SampledFrom([]int{0, 0, 1, 3}).Draw(rt, "changes") {
			r.plans = append(r.plans, p.now+rapid.Int64Range(0, lasts).Draw(rt, "changed at"))
		}
		slices.Sort(r.plans)
		p.quotas = append(p.quotas, r)
	}
	for i := range rapid.IntRange(1, 5).Draw(rt, "campaigns") {
		c := &player{dies: math.MaxInt64, next: p.now + second, campaign: &delivery.Campaign{
			ID: fmt.Sprintf("c%d", i), Revision: 1, Rate: delivery.PerSecond(rapid.SampledFrom([]int64{200, 1000, 20_000}).Draw(rt, "rate")),
			PriorityWeight: rapid.Int64Range(1, 5).Draw(rt, "priority"),
		}}
		for _, q := range p.quotas {
			if rapid.IntRange(0, 2).Draw(rt, "linked") > 0 {
				c.quotas = append(c.quotas, q)
			}
		}
		if rapid.IntRange(0, 3).Draw(rt, "mortal") == 0 {
			c.dies = p.now + rapid.Int64Range(0, lasts).Draw(rt, "dies")
		}
		c.weights = slices.Repeat(rapid.SampledFrom([][]int64{{1}, {1}, {3}, {1, 7, 2}, {20}, {40}}).Draw(rt, "weights"),
			rapid.SampledFrom([]int{1, 5, 30}).Draw(rt, "at once"))
		for range rapid.IntRange(1, 3).Draw(rt, "daemons") {
			d := &queued{due: p.now + rapid.Int64Range(0, quantum).Draw(rt, "begins")}
			for range rapid.SampledFrom([]int{1, 4, 20}).Draw(rt, "arrivals") {
				d.arrive = append(d.arrive, p.now+rapid.Int64Range(0, lasts).Draw(rt, "arrives"))
			}
			slices.Sort(d.arrive)
			c.daemons = append(c.daemons, d)
		}
		p.campaigns = append(p.campaigns, c)
	}
	return p
}

func drawRuledWindows(rt *rapid.T) (list []delivery.Window) {
	for _, span := range rapid.SliceOfNDistinct(rapid.SampledFrom(playSpans), 1, 3, rapid.ID[time.Duration]).Draw(rt, "spans") {
		list = append(list, delivery.Window{
			Span: span, Limit: rapid.Int64Range(0, 120).Draw(rt, "limit"),
			Algorithm: rapid.SampledFrom([]string{delivery.AlgorithmSliding, delivery.AlgorithmLog, delivery.AlgorithmFixed}).Draw(rt, "algorithm"),
		})
	}
	return list
}

func (p *play) run(rt *rapid.T, s store) {
	for _, c := range p.campaigns {
		p.link(c)
		s.Take(p.now, "settler", []delivery.Ask{ask(c.campaign, 0)})
	}
	p.now += second
	for ; p.now < p.end; p.now += quantum {
		p.change(rt)
		for i := range 3 {
			p.turn(rt, s, i)
		}
		p.checkWaiting(rt)
	}
	for _, q := range p.quotas {
		q.check(rt)
	}
}

// link gives the campaign its quotas as they are now.
func (p *play) link(c *player) {
	next := *c.campaign
	next.Quotas = nil
	for _, q := range c.quotas {
		next.Quotas = append(next.Quotas, q.spec)
	}
	c.campaign = &next
}

// change changes quotas: a limit, or all the windows.
func (p *play) change(rt *rapid.T) {
	for _, q := range p.quotas {
		if len(q.plans) == 0 || q.plans[0] > p.now {
			continue
		}
		q.plans = q.plans[1:]
		next := *q.spec
		next.Revision++
		if rapid.Bool().Draw(rt, "other windows") {
			next.Windows = drawRuledWindows(rt)
		} else {
			next.Windows = slices.Clone(next.Windows)
			next.Windows[0].Limit = rapid.Int64Range(0, 120).Draw(rt, "other limit")
		}
		q.spec = &next
		q.changes = append(q.changes, ruling{p.now, q.spec, math.MaxInt64})
		for _, c := range p.campaigns {
			p.link(c)
			for _, d := range c.daemons {
				d.due = p.now
			}
		}
	}
}

// turn is one take of a daemon, for the campaigns that are due.
func (p *play) turn(rt *rapid.T, s store, daemon int) {
	var asks []delivery.Ask
	var who []*player
	for _, c := range p.campaigns {
		if daemon >= len(c.daemons) || p.now >= c.dies {
			continue
		}
		d := c.daemons[daemon]
		for len(d.arrive) > 0 && d.arrive[0] <= p.now {
			d.arrive = d.arrive[1:]
			if len(d.jobs) == 0 {
				d.due = p.now
			}
			d.jobs = append(d.jobs, c.weights...)
		}
		if d.wanted = totalOf(d.jobs); d.wanted == 0 || d.due > p.now {
			continue
		}
		d.asked = p.now
		for _, q := range c.quotas {
			q.hear(p.now)
		}
		a := ask(c.campaign, d.wanted)
		if slices.Max(d.jobs) > 1 {
			a.Weights = slices.Clone(d.jobs[:min(len(d.jobs), 100)])
			a.Want = totalOf(a.Weights)
		}
		asks, who = append(asks, a), append(who, c)
	}
	if len(asks) == 0 {
		return
	}
	for i, g := range s.Take(p.now, fmt.Sprint("n", daemon), asks).Items {
		p.granted(rt, who[i], who[i].daemons[daemon], &asks[i], &g)
	}
}

func totalOf(list []int64) (all int64) {
	for _, n := range list {
		all += n
	}
	return all
}

// granted notes what a daemon was granted for a campaign.
func (p *play) granted(rt *rapid.T, c *player, d *queued, a *delivery.Ask, g *delivery.Granted) {
	d.due = p.now + quantum
	if g.Units < a.Want {
		d.due = max(d.due, g.NextAt)
		if g.NextAt == 0 {
			d.due = p.now + 12*second
		}
		d.due = min(d.due, p.now+12*second)
	}
	for _, w := range g.Windows {
		for _, q := range c.quotas {
			of := q.spec.Windows[min(w.Window, len(q.spec.Windows)-1)]
			if q.spec.ID == w.Quota && of.Algorithm == delivery.AlgorithmFixed && w.Remaining < of.Limit {
				q.note(of.Span, w.ResetAt)
			}
		}
	}
	if g.Units == 0 {
		return
	}
	d.ready = 0
	left := g.Units
	for left > 0 {
		left -= d.jobs[0]
		d.jobs = d.jobs[1:]
	}
	if left < 0 {
		rt.Fatalf("%d units are no number of whole jobs", g.Units)
	}
	d.wanted = totalOf(d.jobs)
	c.next = max(c.next, g.First.Advance(g.Units, g.Rate).Micros())
	for _, q := range c.quotas {
		if q.spec.Covers(c.campaign.ID) {
			q.count(p.now, g.Units)
		}
	}
}

func (r *ruled) note(span time.Duration, reset int64) {
	if r.resets[span] == nil {
		r.resets[span] = map[int64]bool{}
	}
	r.resets[span][reset] = true
}

// hear notes that a daemon asks under the newest revision.
func (r *ruled) hear(now int64) {
	for i := range r.changes {
		r.changes[i].heard = min(r.changes[i].heard, now)
	}
}

// count notes units that were sent.
func (r *ruled) count(now, units int64) {
	before := int64(0)
	if n := len(r.log); n > 0 {
		before = r.log[n-1].units
	}
	r.log = append(r.log, sent{now, before + units})
	for _, w := range r.spec.Windows {
		if w.Limit > 0 {
			r.paced[w.Span] = max(r.paced[w.Span], now) + (units*w.Span.Microseconds()+w.Limit-1)/w.Limit
		}
	}
}

// until is how many units were sent before a time.
func (r *ruled) until(at int64) int64 {
	if i := sort.Search(len(r.log), func(i int) bool { return r.log[i].at >= at }); i > 0 {
		return r.log[i-1].units
	}
	return 0
}

// checkWaiting expects that no job waits for more than a horizon that nothing holds. Daemons ask once a quantum.
func (p *play) checkWaiting(rt *rapid.T) {
	for _, c := range p.campaigns {
		for i, d := range c.daemons {
			if len(d.jobs) == 0 || p.now >= c.dies || !p.free(c, d) {
				d.ready = 0
				continue
			}
			if d.ready == 0 {
				d.ready = p.now
			}
			if p.now > d.ready+horizon+2*quantum {
				rt.Fatalf("%s on daemon %d: a job of %d units waits though all limits have had room for %d µs; %d µs after the begin",
					c.campaign.ID, i, d.jobs[0], p.now-d.ready, p.now-epoch)
			}
		}
	}
}

// free reports whether the first job of a daemon surely has room.
func (p *play) free(c *player, d *queued) bool {
	if p.now < c.next {
		return false
	}
	for _, q := range c.quotas {
		if q.spec.Mode == delivery.ModeShadow || !q.spec.Covers(c.campaign.ID) {
			continue
		}
		others := p.wanted(q, d)
		if q.spec.Spend == delivery.SpendEven && others > 0 || !q.hasRoom(p.now, others+d.wanted) {
			return false
		}
	}
	return true
}

// wanted is how many units others want, or wanted lately and may have been left without.
func (p *play) wanted(q *ruled, self *queued) (units int64) {
	for _, c := range p.campaigns {
		if !slices.Contains(c.quotas, q) || !q.spec.Covers(c.campaign.ID) {
			continue
		}
		for _, d := range c.daemons {
			if d != self && (p.now < c.dies || p.now < d.asked+16*second) {
				units += d.wanted
			}
		}
	}
	return units
}

// hasRoom reports whether all windows surely have room for the units.
func (r *ruled) hasRoom(now, units int64) bool {
	for _, w := range r.spec.Windows {
		span := w.Span.Microseconds()
		gone := now - span - slack(span)
		if !r.known(w, gone) {
			return false // what it has counted is not known from outside, and may count from when the change was heard of
		}
		if r.until(now+1)-r.until(gone) > w.Limit-units {
			return false
		}
		if r.spec.Spend == delivery.SpendEven && (w.Algorithm == delivery.AlgorithmFixed || len(r.changes) > 1 || now < r.paced[w.Span]) {
			return false
		}
	}
	return true
}

// at is the revision that was in force at a time.
func (r *ruled) at(at int64) *delivery.Quota {
	i := sort.Search(len(r.changes), func(i int) bool { return r.changes[i].at > at })
	return r.changes[i-1].spec
}

// known reports whether the quota has had the window since a time, but for its limit.
func (r *ruled) known(w delivery.Window, since int64) bool {
	for i, c := range r.changes[1:] {
		same := func(o delivery.Window) bool { return o.Span == w.Span && o.Algorithm == w.Algorithm }
		if c.heard > since && !slices.ContainsFunc(r.changes[i].spec.Windows, same) {
			return false
		}
	}
	return true
}

// check expects that no window ever held more than the largest limit that was in force in it.
func (r *ruled) check(rt *rapid.T) {
	if r.spec.Mode == delivery.ModeShadow {
		return
	}
	for _, e := range r.log {
		for _, w := range r.at(e.at).Windows {
			if w.Algorithm == delivery.AlgorithmFixed {
				for reset := range r.resets[w.Span] {
					if begin := reset - w.Span.Microseconds(); begin <= e.at && e.at < reset {
						r.checkSpan(rt, w, begin, min(reset-1, e.at))
					}
				}
			} else {
				r.checkSpan(rt, w, e.at-w.Span.Microseconds()+1, e.at)
			}
		}
	}
}

// checkSpan checks the stretch from one time to another, if the window was there all the time.
func (r *ruled) checkSpan(rt *rapid.T, w delivery.Window, from, to int64) {
	most := int64(0)
	for i, c := range r.changes {
		if c.at > to || i+1 < len(r.changes) && r.changes[i+1].at <= from {
			continue
		}
		j := slices.IndexFunc(c.spec.Windows, func(o delivery.Window) bool { return o.Span == w.Span && o.Algorithm == w.Algorithm })
		if j < 0 {
			return
		}
		most = max(most, c.spec.Windows[j].Limit)
	}
	if n := r.until(to+1) - r.until(from); n > most {
		rt.Fatalf("quota %s: %d units in %s (%s) until %d µs after the begin; the largest limit in it was %d",
			r.spec.ID, n, w.Span, w.Algorithm, to-epoch, most)
	}
}
