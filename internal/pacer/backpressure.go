package pacer

import (
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// maxLaneUnits bounds the units of one campaign held here that could also wait where they were
// read, unless it sends as many in a tenth of a second.
const maxLaneUnits = 2048

// laneCapacity is the number of units of a campaign that may wait here although they could wait in their lane: two seconds' worth up to
// maxLaneUnits, or a tenth of a second's worth if that is more. Sources learn of room once in a few quanta. It is less if all campaigns
// together would not fit into the memory (see ahead), and after yielding.
func (a *ahead) laneCapacity(q *queue) int64 {
	room := a.units(q.campaign.Rate)
	if q.window > 0 {
		return min(room, q.window)
	}
	return room
}

const (
	// soonWithin is within what time jobs are sent that are not worth a trip through a lane.
	soonWithin = 2 * time.Second
	// relaySpeed is how many jobs a daemon relays in a second, as measured, about. A campaign no slower than that may stop its partition:
	// relaying it would let those behind it through no sooner, and writing a job to a lane and reading it again costs several times what
	// sending it costs. A slower one must not, or the jobs behind it would wait for its rate.
	relaySpeed = 10_000
)

// fast reports whether the units ahead are sent soon, and as fast as they would be relayed.
func (q *queue) fast(ahead int64, now instant) bool {
	sent := q.sentIn(soonWithin, now)
	return ahead <= sent && sent >= relaySpeed*int64(soonWithin/time.Second)
}

// sentIn is how many units may be sent within a time, as far as the campaign's rate and the calls of its sink go; -1 if
// its turn is later.
func (q *queue) sentIn(within time.Duration, now instant) int64 {
	s := q.sink
	if s == nil || now.until(q.turn()) > within {
		return -1
	}
	calls := int64(s.max)
	if q.campaign.MaxInFlight > 0 {
		calls = min(calls, int64(q.campaign.MaxInFlight))
	}
	return min(q.campaign.Rate.UnitsIn(within)/q.competitors, calls*within.Microseconds()/max(s.calls.lately(now.local), 1))
}

// refuses reports whether a job of ingress that does not fit, for want of memory alone, is refused although its campaign uses
// lanes: when what is before it is sent as fast as it would be relayed. Its partition is not read meanwhile.
func (q *queue) refuses(j *delivery.Job, maxBytes int64, now instant) bool {
	return j.From == delivery.FromIngress && now.local >= q.behindUntil && q.size+j.Size > maxBytes && q.fast(q.ahead(rank(j)), now)
}

// far reports whether the campaign's turn is so far off that its jobs may not wait for it here.
func (q *queue) far(openAge time.Duration, now instant) bool {
	return now.until(q.turn()) > openAge
}

// makeCapacity tells the sources whose jobs were refused that the queue has room again, once it is half empty and its turn is near.
// Ingress is also notified when it should relay the jobs that it keeps.
func (p *placing) makeCapacity(q *queue, now instant) {
	if len(q.waiting) == 0 || q.campaign == nil {
		return
	}
	room := p.ahead.laneCapacity(q)
	if q.campaign.Overflow != delivery.OverflowBlock && !q.fast(q.units, now) {
		q.grant(q.id, room, false)
	}
	if !q.far(p.opt.MaxOpenAge, now) && q.units <= room/2 && q.size <= p.opt.MaxQueueBytes/2 {
		q.grantLanes(room, p.opt.MaxQueueBytes, now)
	}
}

// grantLanes tells sources of the room that is left of room units, less what there is no memory for. The next are told when these have
// had time to use it.
func (q *queue) grantLanes(room, maxBytes int64, now instant) {
	if now.local < q.toldUntil {
		return
	}
	if q.units > 0 {
		q.unit = max(1, q.size/q.units)
	}
	left := room - q.units
	if q.unit > 0 {
		left = min(left, max(1, (maxBytes-q.size)/q.unit))
	}
	q.grant(q.id, left, true)
	soon := time.Duration(float64(time.Second) * float64(room) / 4 / max(q.campaign.Rate.PerSecond(), 1))
	q.toldUntil = now.in(min(max(soon, leastComing), mostComing))
}

// widen lets more jobs wait in a queue that has yielded, each time that it has sent half of them. So a campaign that sends soon has its
// whole room again.
func (q *queue) widen() {
	if q.window == 0 || q.units > q.window/2 {
		return
	}
	if q.window *= 2; q.window >= maxLaneUnits {
		q.window = 0
	}
}

// intake is what of a campaign's jobs may come from the sources that keep them until there is room. The zero value is ready.
type intake struct {
	waiting   []delivery.Source // sources with jobs that were refused for want of room, in the order in which they began to wait
	window    int64             // units that may wait here, after yielding; 0: as many as usual
	toldUntil int64             // local time until which lanes that were told of room are waited for
	unit      int64             // bytes of a unit, about
}

const (
	// leastGranted and mostGranted bound the units of room that one lane is told of. For fewer, as long as there are other lanes to be
	// told later, a read costs more than what it brings; for more, it may not hand over as many.
	leastGranted, mostGranted = 512, 2048
	// leastComing and mostComing bound how long room that lanes were told of is waited for. After a job
	// from a lane, it is leastComing: the lane may have had few jobs left.
	leastComing, mostComing = 20 * time.Millisecond, 250 * time.Millisecond
)

// await adds a source that keeps jobs until there is room for them.
func (i *intake) await(src delivery.Source) {
	if !slices.Contains(i.waiting, src) {
		i.waiting = append(i.waiting, src)
	}
}

// grant notifies waiting sources, with lanes or without, of room for units. Each gets a part: the campaign may have several lanes here,
// and a job read for room that another has taken is read again. Where the parts would be small, the lanes that began to wait last go on
// waiting, so that all take turns.
func (i *intake) grant(campaign string, units int64, lanes bool) {
	n, most := int64(max(1, len(i.waiting))), max(1, units/leastGranted)
	part := func(of int64) int64 { return (units + of - 1) / of }
	room := part(min(n, most))
	if units < settleAll {
		room = min(room, mostGranted)
	}
	list := i.waiting
	i.waiting = nil
	for _, src := range list {
		switch {
		case src.Place() == delivery.FromIngress:
			src.GrantCapacity(campaign, part(n))
		case lanes && most > 0:
			most--
			src.GrantCapacity(campaign, room)
		default:
			i.waiting = append(i.waiting, src)
		}
	}
}

// Yield gives jobs back to their lanes, because a lane with unread jobs waits for memory. It returns all jobs but one of each campaign
// whose turn is far off. If there are none, it returns the later half of the jobs of every campaign. It is called again while lanes wait.
func (p *Pacer) Yield() {
	p.inbox.do(func(now instant) {
		u := &p.maintenance
		if len(u.yields) > 0 {
			return
		}
		var far, all []*queue
		for _, q := range p.queues.list {
			n := q.len() - q.direct
			if n > 0 {
				all = append(all, q)
			}
			if n > 1 && q.far(p.opt.MaxOpenAge, now) {
				far = append(far, q)
			}
		}
		if u.yields = far; len(far) == 0 {
			u.yields = all
		}
		p.yield(now)
	})
}

// yield gives back the jobs of lanes of some of the queues that are to yield, except for those that have a slot, and goes on in the next turn.
// A queue whose turn is near gives half, and what it keeps is all that may wait there until it sends.
func (p *Pacer) yield(now instant) {
	u := &p.maintenance
	for most := perTurn; len(u.yields) > 0 && most > 0; u.yields = u.yields[1:] {
		q := u.yields[0]
		far, keep := q.far(p.opt.MaxOpenAge, now), (q.len()-q.direct)/2
		if far {
			keep = 1
		}
		jobs := takeOut(q, func(ahead int64, j *delivery.Job) bool {
			if j.From == delivery.FromLane {
				keep--
			}
			return j.From == delivery.FromLane && keep < 0 && ahead >= q.granted
		})
		for _, j := range slices.Backward(jobs) { // the last first: a lane gives them back from its end
			p.carryOut(j, placement{where: stays}, now)
		}
		if most -= len(jobs); !far {
			q.window = max(1, q.units)
		}
	}
	if len(u.yields) > 0 {
		p.inbox.do(p.yield)
	}
}

// ahead is for how long before their turn jobs of lanes are read at most, so that all campaigns that send fit into the memory. It
// is the same for all: their backlogs lie in a lane in proportion to their rates, so that one read of it serves them all. It is
// pure; the zero value is ready.
type ahead struct {
	limit time.Duration // 0: none
	each  int64         // bytes of a unit, about; 0: not known
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

// measureRates notes the rates of the campaigns that have jobs here or in lanes that wait for room, and may send, and sets by them for how long
// before their turn jobs of lanes are read.
func (p *placing) measureRates(now instant) {
	rates := p.quantum.rates[:0]
	for _, q := range p.queues.list {
		if len(q.waiting) == 0 && q.empty() {
			continue
		}
		if e := p.campaigns.effective(q.id, now); e != nil && standingOf(e.campaign, e.sink, now.wall) == sending {
			rates = append(rates, e.campaign.Rate)
		}
	}
	p.quantum.rates = rates
	p.ahead.fit(rates, 4*p.opt.MaxQueueBytes) // half of the buffer, of which a campaign may take an eighth
}
