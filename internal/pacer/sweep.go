package pacer

import (
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// sweepEvery is how often each queue is looked at. Many queues are looked at bit by bit: at most sweepSteps times in
	// that time, so many at once that their slots need not wait for it.
	sweepEvery = 250 * time.Millisecond
	sweepSteps = 10
	sweepBit   = 1000
)

// queue is the campaign's queue, made when it is first needed.
func (p *Pacer) queue(c *delivery.Campaign) *queue {
	q := p.queueNamed(c.ID)
	if q.campaign == nil {
		q.campaign, q.sink = c, p.sinkOf(c)
	}
	return q
}

func (p *Pacer) queueNamed(id string) *queue {
	q := p.queues[id]
	if q == nil {
		q = newQueue(id)
		q.kept = delivery.Kept(p.opt.LateTolerance.Microseconds())
		q.place = len(p.order)
		p.queues[id], p.order = q, append(p.order, q)
	}
	return q
}

// drop forgets an empty queue.
func (p *Pacer) drop(q *queue) {
	last := len(p.order) - 1
	p.order[q.place] = p.order[last]
	p.order[q.place].place = q.place
	p.order[last] = nil
	p.order = p.order[:last]
	delete(p.queues, q.id)
}

// apply takes a new catalog snapshot into use.
func (p *Pacer) apply(s *delivery.Snapshot) {
	if s == nil {
		return
	}
	p.snapshot = s
	for id, f := range p.inForce {
		if s.Campaign(id) == nil {
			p.forget(id, f)
		}
	}
	now := time.Now()
	for _, q := range p.order {
		p.change(q, now)
	}
}

// change brings the queue to its campaign as the catalog and the schedule have it now.
func (p *Pacer) change(q *queue, now time.Time) {
	was, is := q.campaign, p.campaign(q.id)
	if was == is {
		return
	}
	if was == nil || is == nil || changed(was, is) {
		p.handBack(q) // the slots lie on the old timeline
		if q.blocked {
			q.blocked = false
			q.sink.full = slices.DeleteFunc(q.sink.full, func(o *queue) bool { return o == q })
		}
		q.sink, q.failures, q.restsUntil = nil, 0, 0
		if is != nil {
			q.sink = p.sinkOf(is)
		}
	}
	q.campaign, q.turnAt = is, 0
	p.askLater(q, p.now()) // what was in its way may be gone: a quota may have been raised
	p.review(q, now)
}

// changed tells whether slots granted under a may no longer be used under b.
func changed(a, b *delivery.Campaign) bool {
	return a == nil || b == nil || a.Rate != b.Rate || a.Status != b.Status || a.Sink != b.Sink || a.Invalid != b.Invalid
}

// review empties the queue of a campaign that may not send, and wakes whoever holds jobs for one that need not wait.
func (p *Pacer) review(q *queue, now time.Time) {
	p.unpark(q, now)
	if q.campaign != nil && p.standing(q.campaign, now) == sending {
		p.roomFor(q)
		return
	}
	p.handBack(q)
	var jobs []*delivery.Job
	q.filter(func(_ int64, j *delivery.Job) bool { jobs = append(jobs, j); return false })
	for _, j := range slices.Backward(jobs) { // the last first: a lane gives them back from its end
		if !p.placeOne(j, now) {
			p.giveBack(j)
		}
	}
	if q.campaign == nil || p.standing(q.campaign, now) != held {
		for src := range q.waiting { // the jobs need no slots any more
			src.Room(q.id, math.MaxInt32)
		}
		q.waiting = nil
	}
}

// sweep looks at what no event announces, jobs that have waited too long and load: at some of the queues, and at the rest
// when all have been looked at.
func (p *Pacer) sweep(now int64) {
	if p.swept == 0 {
		p.roundAt = now
		if s := p.opt.Catalog.Snapshot(); s != p.snapshot {
			p.apply(s) // loaded anew without a change: its age decides on unknown campaigns
		}
	}
	wall := time.Now()
	for n := max(sweepBit, len(p.order)/sweepSteps+1); n > 0 && p.swept < len(p.order); n-- {
		q := p.order[p.swept]
		if p.lookAt(q, now, wall); q.idle(now) && len(p.parked[q.id]) == 0 {
			p.drop(q)
		} else {
			p.swept++
		}
	}
	if p.swept < len(p.order) {
		p.sweepAt = now + sweepEvery.Microseconds()/sweepSteps
		return
	}
	p.swept, p.sweepAt = 0, max(p.roundAt, now-sweepEvery.Microseconds()/2)+sweepEvery.Microseconds()
	for _, s := range p.sinks {
		p.wake(s) // a free call may have been meant for a queue that could not use it any more
	}
	p.returnUnsent()
	p.senders.trim()
	p.dropCounts(now)
	p.measure()
	p.adapt()
}

// lookAt is the sweep's look at one queue.
func (p *Pacer) lookAt(q *queue, now int64, wall time.Time) {
	if q.campaign == nil || p.standing(q.campaign, wall) != sending {
		p.review(q, wall)
		return
	}
	p.unpark(q, wall)
	p.moveOn(q, now, wall)
	p.roomFor(q)
}

// idleQueue is how long an empty queue is remembered.
const idleQueue = time.Minute

// moveOn relays the jobs from ingress and timers that will not get their turn in time: an ingress offset must not stay
// open for long, except where the campaign's overflow is block. Jobs that hold a slot stay.
func (p *Pacer) moveOn(q *queue, now int64, wall time.Time) {
	turn := time.Duration(max(0, q.turnAt-now)) * time.Microsecond
	latest := wall.Add(turn - p.opt.MaxOpenAge) // what was read by then is not to wait any longer
	if q.ingress == 0 || q.oldest.After(latest) {
		return
	}
	var moved []*delivery.Job
	q.oldest = wall
	q.filter(func(ahead int64, j *delivery.Job) bool {
		if stays(j, q.campaign) {
			return true
		}
		if ahead < q.held || j.ReadAt.After(latest) {
			if j.ReadAt.Before(q.oldest) {
				q.oldest = j.ReadAt
			}
			return true
		}
		moved = append(moved, j)
		return false
	})
	for _, j := range moved {
		if j.Expired(wall) {
			p.dead(j, delivery.ReasonExpired, "expires-at or the campaign's job_ttl passed before its turn")
		} else {
			p.overflow(j, q.campaign)
		}
	}
}

// relieve moves on the jobs of src that keep its window of open offsets from advancing.
func (p *Pacer) relieve(src delivery.Source, before int64) {
	for _, q := range p.order {
		if q.ingress == 0 || q.campaign == nil {
			continue
		}
		var moved []*delivery.Job
		q.filter(func(ahead int64, j *delivery.Job) bool {
			if j.Source != src || j.Offset >= before || ahead < q.held || stays(j, q.campaign) {
				return true
			}
			moved = append(moved, j)
			return false
		})
		for _, j := range moved {
			p.overflow(j, q.campaign)
		}
	}
}

// adapt makes the quantum as long as it must be for the takes to stay within their budget, and no longer. It is foreseen
// from the rates of the queues that have jobs, so that ten thousand campaigns do not first overload the store: slots that
// come late are lost, and what is left of a timeline begins anew together with all others of its take. Takes that last
// long make the quantum long, too: a reply must come while its slots are ahead.
func (p *Pacer) adapt() {
	shortest, longest := float64(p.opt.MinQuantum.Microseconds()), float64(p.opt.MaxQuantum.Microseconds())
	budget := float64(p.opt.ItemsPerSecond)
	q := max(shortest, float64(p.takeTime))
	for q < longest {
		n := p.itemsPerSecond(q)
		if n <= budget {
			break
		}
		q *= max(1.05, n/budget)
	}
	p.quantum = int64(min(max(q, float64(p.quantum)*0.9), longest)) // longer at once, shorter by and by
}

// itemsPerSecond is about how many items a second all queues with jobs will ask for: one a quantum, or one a slot where
// those are further apart.
func (p *Pacer) itemsPerSecond(quantum float64) (n float64) {
	each := 1e6 / quantum
	for _, rate := range p.rates {
		n += min(each, rate)
	}
	return n
}

// measure notes the rates of the queues with jobs, and sets the gauges.
func (p *Pacer) measure() {
	jobs := 0
	p.rates = p.rates[:0]
	for _, q := range p.order {
		jobs += q.len()
		if q.units > 0 && q.campaign != nil && q.campaign.Status == delivery.StatusActive {
			p.rates = append(p.rates, q.campaign.Rate.PerSecond())
		}
	}
	for _, parked := range p.parked {
		jobs += len(parked)
	}
	p.metrics.quantum.Set(float64(p.quantum) / 1e6)
	p.metrics.queued.Set(float64(jobs))
	p.metrics.queues.Set(float64(len(p.queues)))
}
