package progress

import (
	"math"

	"github.com/pacer/pacer/internal/delivery"
)

// wholeTo is the limit up to which the units of a window are followed one by one. If it is larger, what they do together differs by
// less than a hundredth.
const wholeTo = 100

// observed is a window as it was observed, and a campaign's part of it.
type observed struct {
	quota *delivery.Quota
	state delivery.WindowState
	part  float64
}

func (o observed) limit() float64 { return float64(o.quota.Windows[o.state.Window].Limit) }

// count sets how much is to be sent under which windows. Where one is small, it is counted in the units that go together through it:
// a job that goes as a whole, of any of the campaigns that share it. Three campaigns that share 7 units go on as one that has all of
// them, not each with two and a third; and of jobs that weigh 5, each 7 units carry one.
func (p *simulation) count(jobs, weight float64, parts []observed) {
	small := parts[0]
	for _, one := range parts {
		if one.part*one.limit() < small.part*small.limit() {
			small = one
		}
	}
	whole, all := weight, 1.0 // where jobs differ, it is not known which of them go together
	if weight != math.Round(weight) || small.limit() < weight {
		whole = 1
	}
	p.whole = small.part > 0 && small.limit()/whole <= wholeTo
	if p.whole {
		all = small.part
	} else {
		whole = 1
	}
	p.each = whole * all
	p.most /= p.each
	// The last one goes as soon as there is room for any of it.
	p.units = max(0, jobs*weight/p.each-1) + 0.01
	for _, one := range parts {
		x := newSpent(one.quota, one.part/p.each, one.state, p.now)
		x.whole = p.whole && x.limit <= wholeTo && math.Abs(one.part-all) < tiny
		p.windows = append(p.windows, x)
	}
}

// line is how much there is room for, how fast that grows, and until when it does.
type line struct{ room, slope, until float64 }

// whole is how much was sent, after a step in which units went: without errors of rounding, and if none go now, with all of a unit
// that is under way, since a unit goes when its slot begins.
func whole(sent, slope float64) float64 {
	if n := math.Round(sent); math.Abs(sent-n) < tiny {
		return n
	}
	if slope == 0 {
		return math.Ceil(sent)
	}
	return sent
}

// completed is until when a unit that is under way takes its slot, or a period ends meanwhile.
func (p *simulation) completed(t, sent, slope, until float64) float64 {
	until = min(until, t+(math.Ceil(sent)-sent)/slope)
	for _, x := range p.windows {
		if x.reset > t {
			until = min(until, x.reset)
		}
	}
	return until
}

// sent is how much was sent before a time, as the window counts it.
func (x *windowState) sent(c *curve, at float64) float64 {
	if x.whole {
		return c.begun(at)
	}
	return c.by(at)
}

// freeWhole is the room of a window that units leave one by one, with that which what was counted at first leaves to it. It does
// not grow before the next unit leaves.
func (x *windowState) freeWhole(c *curve, t float64, before line) (units, slope, until float64) {
	units, until = math.Floor(before.room+tiny), before.until
	if before.slope > 0 {
		until = min(until, t+(units+1-before.room)/before.slope)
	}
	counts := t - x.span
	if x.width > 0 {
		counts = x.first(t)
	}
	gone := c.begun(counts)
	next := c.leaves(gone)
	if x.width == 0 && next <= counts+tiny && next < t {
		gone++
		next = c.leaves(gone)
	}
	return units + gone, 0, min(until, x.leavesAt(max(next, counts)))
}

// begun is how many units were sent before a time, if each goes when the line begins that ends with it.
func (c *curve) begun(at float64) float64 { return math.Ceil(c.by(at) - tiny) }

// leaves is when the unit after so many was sent, or the end.
func (c *curve) leaves(sent float64) float64 {
	i := c.last(func(i int) bool { return c.sent[i] <= sent+tiny })
	if i < 0 {
		return c.at[0]
	}
	if i+1 == len(c.at) || c.sent[i] >= sent-tiny {
		return c.at[i]
	}
	return c.at[i] + (c.at[i+1]-c.at[i])*(sent-c.sent[i])/(c.sent[i+1]-c.sent[i])
}
