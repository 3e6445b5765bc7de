package limits

import (
	"math"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/local"
)

// softUse is the units taken from an eventual quota, which is counted in this process, before the store is asked. Those that the
// store does not grant are given back.
type softUse struct {
	quota *delivery.Quota
	units int64
	sizes []int64 // lengths of payloads, where those are counted
}

// admit decides how many of the wanted units may be asked for. If there are none, it answers the ask and returns
// false.
func (x *request) admit(t *taking) bool {
	a := x.ask
	if a.Want <= 0 {
		return true
	}
	if !t.fence.Allows(x.shard, a.Campaign.Quotas) {
		x.delay(t, a.Quantum)
		return false
	}
	want := x.admitSoft(t, a.Want)
	if want == 0 {
		return false
	}
	if want < a.Want {
		own := *x.Own
		own.Want, own.More = want, true
		x.Own = &own
	}
	return true
}

// admitSoft takes the wanted units from the eventual quotas, as far as they allow it.
func (x *request) admitSoft(t *taking, want int64) int64 {
	a := x.ask
	for _, q := range a.Campaign.Quotas {
		if q.Mode != delivery.ModeEventual || len(q.Windows) == 0 || !q.Covers(a.Campaign.ID) {
			continue
		}
		use := softUse{quota: q}
		if q.Unit == delivery.UnitBytes {
			n, _ := a.Jobs(want, want)
			sizes := a.Bytes[:min(len(a.Bytes), n)]
			use.sizes = sizes[:t.eventual.Fits(q, sizes)]
			use.units = sum(use.sizes)
			want = min(want, unitsOf(a, len(use.sizes)))
		} else {
			got := t.eventual.Allow(q, want)
			_, use.units = a.Jobs(got, math.MaxInt64) // the last job may end later than what was allowed
			if use.units > got {
				t.eventual.GiveBack(q, got-use.units)
			}
			want = min(want, use.units)
		}
		x.soft = append(x.soft, use)
		if want == 0 {
			takes, window := t.eventual.Wait(q)
			x.delay(t, max(a.Quantum, takes.Microseconds()))
			x.Out.Bound, x.Out.BoundQuota, x.Out.BoundWindow = delivery.BindQuota, q.ID, window
			return 0
		}
	}
	return want
}

// delay answers that nothing can be granted for the given microseconds.
func (x *request) delay(t *taking, d int64) {
	now := t.shards[x.shard].now()
	*x.Out = delivery.Refused(x.ask.Campaign, delivery.BindRate)
	x.Out.GrantedAt, x.Out.NextAt, x.Out.From.Shard, x.Out.From.Epoch = now, now+d, x.shard, local.Epoch
}

// settleAdmission notes what was granted, and returns the units that were taken before the answer was known and not used.
func (x *request) settleAdmission(t *taking) {
	if x.Out.GrantedAt > 0 && x.Out.From.Epoch != local.Epoch &&
		!t.fence.Add(x.shard, x.Out.From.Epoch, x.ask.Campaign.Quotas, x.Out.Units, x.Out.GrantedAt) {
		x.delay(t, x.ask.Quantum)
	}
	units := x.Out.Units
	for _, s := range x.soft {
		used := min(units, s.units)
		if s.sizes != nil {
			n, _ := x.ask.Jobs(units, units)
			used = sum(s.sizes[:min(len(s.sizes), n)])
		}
		if s.units > used {
			t.eventual.GiveBack(s.quota, s.units-used)
		}
	}
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
