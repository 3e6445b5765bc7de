package pacer

import (
	"math"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// ahead is for how long before their turn jobs of lanes are read at most, so that all campaigns that send fit into the memory. It
// is the same for all: their backlogs lie in a lane in proportion to their rates, so that one read of it serves them all. It is
// pure; the zero value is ready.
type ahead struct {
	limit time.Duration // 0: none
	each  int64         // bytes of a unit, about; 0: not known
	rates []delivery.Rate
}

const (
	// mostAhead is the highest limit: beyond it there is none. leastAhead is the lowest.
	mostAhead, leastAhead = time.Minute, 50 * time.Millisecond
	// unitBytes is what a unit takes as long as nothing is known of it.
	unitBytes = 1 << 10
	// leastLaneUnits is how many units of one campaign may wait here in any case: one that is sent next, and one that comes
	// after it.
	leastLaneUnits = 2
)

// saw takes note of the memory of a job of a lane.
func (a *ahead) saw(j *delivery.Job) {
	each := j.Size / max(1, j.Weight)
	if a.each == 0 {
		a.each = max(1, each)
	}
	a.each = max(1, a.each+(each-a.each)/64)
}

// usual is how many units of a campaign of a rate may wait here that could also wait where they were read, if there is memory.
func usual(r delivery.Rate) int64 {
	return max(16, min(r.UnitsIn(2*time.Second), maxLaneUnits), r.UnitsIn(100*time.Millisecond))
}

// units is how many it may be.
func (a *ahead) units(r delivery.Rate) int64 {
	if a.limit == 0 {
		return usual(r)
	}
	return min(usual(r), max(leastLaneUnits, r.UnitsIn(a.limit)))
}

// fit sets the limit so that campaigns of the rates take so much memory at most, as far as leastLaneUnits and leastAhead allow.
func (a *ahead) fit(rates []delivery.Rate, bytes int64) {
	each := a.each
	if each == 0 {
		each = unitBytes
	}
	fits := func(limit time.Duration) bool {
		a.limit = limit
		sum := int64(0)
		for _, r := range rates {
			if sum += a.units(r); sum > bytes/each {
				return false
			}
		}
		return true
	}
	if fits(0) {
		return
	}
	low, high := leastAhead, mostAhead
	for low < high/16*15 {
		if middle := time.Duration(math.Sqrt(float64(low) * float64(high))); fits(middle) {
			low = middle
		} else {
			high = middle
		}
	}
	a.limit = low
}

// setReadahead sets for how long before their turn jobs of lanes are read, by the campaigns that have jobs here or in lanes that wait
// for room, and may send.
func (p *Pacer) setReadahead(now instant) {
	a := &p.maintenance.ahead
	a.rates = a.rates[:0]
	for _, q := range p.queues.list {
		if len(q.waiting) == 0 && q.empty() {
			continue
		}
		if e := p.campaigns.effective(q.id, now); e != nil && standingOf(e.campaign, e.sink, now.wall) == sending {
			a.rates = append(a.rates, e.campaign.Rate)
		}
	}
	a.fit(a.rates, 4*p.opt.MaxQueueBytes) // half of the buffer, of which a campaign may take an eighth
}
