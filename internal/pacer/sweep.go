package pacer

import (
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const sweepEvery = 250 * time.Millisecond

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
		p.queues[id] = q
	}
	return q
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
	for _, q := range p.queues {
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

// sweep looks at what no event announces: jobs that have waited too long, load.
func (p *Pacer) sweep(now int64) {
	p.sweepAt = now + sweepEvery.Microseconds()
	if s := p.opt.Catalog.Snapshot(); s != p.snapshot {
		p.apply(s) // loaded anew without a change: its age decides on unknown campaigns
	}
	wall := time.Now()
	for id, q := range p.queues {
		if q.campaign == nil || p.standing(q.campaign, wall) != sending {
			p.review(q, wall)
		} else {
			p.unpark(q, wall)
			p.moveOn(q, now, wall)
			p.roomFor(q)
		}
		if q.len() == 0 && len(q.waiting) == 0 && q.inFlight == 0 && q.held == 0 && q.asking == 0 && q.askIndex < 0 &&
			len(p.parked[id]) == 0 && now-q.askAt > idleQueue.Microseconds() {
			delete(p.queues, id)
		}
	}
	for _, s := range p.sinks {
		p.wake(s) // a free call may have been meant for a queue that could not use it any more
	}
	p.senders.trim()
	p.adapt()
	p.measure()
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
	for _, q := range p.queues {
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
	for _, q := range p.queues {
		if q.units > 0 && q.campaign != nil && q.campaign.Status == delivery.StatusActive {
			n += min(each, q.campaign.Rate.PerSecond())
		}
	}
	return n
}

// measure sets the gauges.
func (p *Pacer) measure() {
	p.metrics.quantum.Set(float64(p.quantum) / 1e6)
	jobs := 0
	for _, q := range p.queues {
		jobs += q.len() + len(p.parked[q.id])
	}
	p.metrics.queued.Set(float64(jobs))
	p.metrics.queues.Set(float64(len(p.queues)))
}
