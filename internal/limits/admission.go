package limits

import (
	"github.com/pacer/pacer/internal/delivery"
)

// admission is what an ask was held to before the store is asked, and what has to be settled after. Quotas in mode
// eventual are counted in this process; of quotas that the ledger keeps, no more may be granted than is reserved.
type admission struct {
	soft []softUse
	held int64 // units that the reserve holds
}

// softUse is what was taken of an eventual quota.
type softUse struct {
	quota *delivery.Quota
	units int64
	sizes []int64 // lengths of payloads, where those are counted
}

// admit says how many of the wanted units may be asked for. Where that is none, the ask is answered, and the result is
// false.
func (x *errand) admit(t *taking) bool {
	a := x.ask
	if a.Want <= 0 {
		return true
	}
	want := x.admitSoft(t, a.Want)
	if want > 0 {
		most := unitsOf(a, jobsBegun(a, want)) // the last job may end later than what is wanted
		x.held = t.reserve.allow(a.Campaign.Quotas, headWeight(a), most)
		if x.held < most {
			want = wholeJobs(a, x.held)
		}
		if want == 0 {
			x.delay(t, a.Quantum)
		}
	}
	if want == 0 {
		return false
	}
	if want < a.Want {
		x.limit(want)
	}
	return true
}

// admitSoft takes what is wanted of the eventual quotas, as far as they allow it.
func (x *errand) admitSoft(t *taking, want int64) int64 {
	a := x.ask
	for _, q := range a.Campaign.Quotas {
		if q.Mode != delivery.ModeEventual || len(q.Windows) == 0 {
			continue
		}
		use := softUse{quota: q}
		if q.Unit == delivery.UnitBytes {
			sizes := a.Bytes[:min(len(a.Bytes), jobsWithin(a, want))]
			use.sizes = sizes[:t.eventual.fits(q, sizes)]
			use.units = sum(use.sizes)
			want = min(want, unitsOf(a, len(use.sizes)))
		} else {
			got := t.eventual.allow(q, want)
			use.units = unitsOf(a, jobsBegun(a, got)) // the last job may end later than what was allowed
			if use.units > got {
				t.eventual.giveBack(q, got-use.units)
			}
			want = min(want, use.units)
		}
		x.soft = append(x.soft, use)
		if want == 0 {
			x.delay(t, max(a.Quantum, t.eventual.wait(q).Microseconds()))
			x.out.Bound, x.out.BoundQuota = delivery.BindQuota, q.ID
			return 0
		}
	}
	return want
}

// delay answers that nothing can be had for so many microseconds.
func (x *errand) delay(t *taking, d int64) {
	now := t.shards[x.at].now()
	c := x.ask.Campaign
	*x.out = delivery.Granted{
		Rate: c.Rate, Revision: c.Revision, GrantedAt: now, NextAt: now + d, Bound: delivery.BindRate,
		Competitors: 1, Daemons: 1, From: delivery.Provenance{Shard: x.at, Incarnation: localIncarnation, Campaign: c},
	}
}

// limit makes the errand ask for so many units and no more.
func (x *errand) limit(want int64) {
	own := *x.own
	own.Want = want
	x.own, x.limited = &own, true
}

// settleAdmission hands back what was not used of what was taken before the answer was known.
func (x *errand) settleAdmission(t *taking) {
	units := x.out.Units
	for _, s := range x.soft {
		used := min(units, s.units)
		if s.sizes != nil {
			used = sum(s.sizes[:min(len(s.sizes), jobsWithin(x.ask, units))])
		}
		if s.units > used {
			t.eventual.giveBack(s.quota, s.units-used)
		}
	}
	if x.ask.Want <= 0 {
		return
	}
	for _, p := range x.parts {
		at := x.out.GrantedAt
		for _, d := range x.out.From.Elsewhere {
			if d.Shard == p.shard {
				at = d.GrantedAt
			}
		}
		t.reserve.use(p.campaign.Quotas, x.held, units, at)
	}
	if x.out.GrantedAt > 0 {
		t.reserve.anchors(x.ask.Campaign.Quotas, x.out.Windows, x.out.GrantedAt)
	}
}

// headWeight is the weight of the job at the head.
func headWeight(a *delivery.Ask) int64 {
	if len(a.Weights) > 0 {
		return a.Weights[0]
	}
	return 1
}

// wholeJobs is the units of the jobs at the head that end within so many units.
func wholeJobs(a *delivery.Ask, units int64) int64 { return unitsOf(a, jobsWithin(a, units)) }

// jobsWithin is how many of the jobs at the head end within so many units.
func jobsWithin(a *delivery.Ask, units int64) (n int) {
	if a.Weights == nil {
		return int(min(units, delivery.MaxGrant))
	}
	for _, w := range a.Weights {
		if units -= w; units < 0 {
			break
		}
		n++
	}
	return n
}

// jobsBegun is how many of the jobs at the head begin within so many units.
func jobsBegun(a *delivery.Ask, units int64) int {
	n := jobsWithin(a, units)
	if n < len(a.Weights) && units > unitsOf(a, n) {
		n++
	}
	return n
}

// unitsOf is the units of the first n jobs.
func unitsOf(a *delivery.Ask, n int) int64 {
	if a.Weights == nil {
		return int64(n)
	}
	return sum(a.Weights[:n])
}

func sum(list []int64) (total int64) {
	for _, n := range list {
		total += n
	}
	return total
}
