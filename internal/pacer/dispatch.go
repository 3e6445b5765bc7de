package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// sinkState is what the scheduler knows of one sink.
type sinkState struct {
	id       string
	max      int   // calls that may be in flight
	inFlight int   // calls that are
	held     int64 // slots held by the campaigns of this sink
	asked    int64 // slots that takes under way may bring
	latency  int64 // of a call, smoothed; microseconds

	full        []*queue // queues whose slot came due while no call was free, in order
	failures    int      // consecutive calls that failed for the sink's own reasons, but for those that made a campaign rest
	failedAt    int64    // local time of the first of them
	failing     string   // its campaign
	several     bool     // they are not of that one alone, or the sink could not be reached
	closedUntil int64    // local time until which the gate is closed for this daemon
	waitUntil   int64    // local time until which the destination asked to wait; at most closedUntil
	probing     bool     // the gate was closed by failures here, and opens by a success
	elsewhere   bool     // a take found the gate closed, though not by this daemon

	// gateCalls are what is still to be told to the store of the gate, in order; one call is under way at a time, or a
	// late close would undo the open that came after it.
	gateCalls   []gateCall
	gateCalling bool
}

// room is how many further slots within the horizon the sink can serve: the calls that are free, and those that come
// free meanwhile.
func (s *sinkState) room(horizon int64) int64 {
	within := int64(s.max) * horizon / max(s.latency, 1000)
	return int64(s.max-s.inFlight) + within - s.held - s.asked
}

// sinkOf is the state of the campaign's sink, nil when no such sink is configured.
func (p *Pacer) sinkOf(c *delivery.Campaign) *sinkState {
	id, ok := p.opt.Sinks.Resolve(c.Sink)
	if !ok {
		if !p.heldSinks[c.ID+" "+c.Sink] {
			p.heldSinks[c.ID+" "+c.Sink] = true
			p.log.Error("the campaign is held: its sink is not configured; add it under sinks, or set another",
				"campaign", c.ID, "sink", c.Sink)
		}
		return nil
	}
	s := p.sinks[id]
	if s == nil {
		n, _ := p.opt.Sinks.Capacity(id)
		s = &sinkState{id: id, max: max(1, n)}
		p.sinks[id] = s
	}
	return s
}

// maxSpend bounds the jobs sent in one turn, so that results and commands are heard in between.
const maxSpend = 512

// spend sends every job whose slot has come.
func (p *Pacer) spend(now int64) {
	for range maxSpend {
		if p.slots.len() == 0 {
			return
		}
		q := p.slots.first().item
		at := p.due(q)
		if at > now {
			return
		}
		if !p.spendOne(q, at, now) && q.sink != nil {
			p.wake(q.sink) // the call that was free for it is free for another
		}
		p.schedule(q)
	}
}

// spendOne uses the queue's first slot, which is due since at, if that can be done, and tells whether it was.
func (p *Pacer) spendOne(q *queue, at, now int64) bool {
	if p.forfeit(q, now) > 0 {
		p.wantSlots(q)
		return false
	}
	s := q.sink
	if until := max(s.closedUntil, q.restsUntil); until > now {
		p.handBack(q)
		p.askLater(q, until)
		return false
	}
	if s.inFlight >= s.max {
		q.blocked = true
		s.full = append(s.full, q)
		return false
	}
	if most := q.campaign.MaxInFlight; most > 0 && q.inFlight >= most {
		p.handBack(q)
		p.askLater(q, now+p.quantum)
		return false
	}
	if q.held < q.head().Weight { // a heavier job has come to the front since
		p.schedule(q)
		p.wantSlots(q)
		return false
	}
	j := q.pop()
	if j.Expired(time.Now()) {
		p.dead(j, delivery.ReasonExpired, "expires-at or the campaign's job_ttl passed before its turn")
		p.roomFor(q)
		p.returnUnused(q)
		return false
	}
	used := q.use(j.Weight)
	s.held -= j.Weight
	p.send(q, j, used, at, now)
	p.roomFor(q)
	p.wantSlots(q)
	p.returnUnused(q)
	return true
}

// returnUnused gives back the slots of a queue that has run empty.
func (p *Pacer) returnUnused(q *queue) {
	if q.empty() && q.held > 0 {
		p.handBack(q)
	}
}

// forfeit drops the slots that can no longer be used without turning a stall into a burst, and returns how many.
func (p *Pacer) forfeit(q *queue, now int64) (n int64) {
	for q.held > 0 {
		g := q.grants[0]
		late := p.clock(g.From.Shard).store(now) - q.lateBy(p.opt.LateTolerance.Microseconds(), g.Rate.Spacing()) - 1
		k := g.First.CountUntil(late, g.Rate, g.Units)
		if k == 0 || g.GrantedAt > late {
			break
		}
		p.unsend(q.use(k))
		n += k
	}
	if n > 0 {
		if q.sink != nil {
			q.sink.held -= n
		}
		p.lateAt = now
		p.metrics.forfeited.Add(float64(n))
		p.schedule(q)
	}
	return n
}

// sent is the result of one sink call.
type sent struct {
	queue  *queue
	sink   *sinkState
	job    *delivery.Job
	result delivery.Result
	took   time.Duration
	epoch  int
	used   []delivery.Grant // what its slots count for quotas

	forfeited bool // it was not sent: its slot had passed too long ago
}

// send gives the job, whose slot came at the local time at, to a goroutine that hands it to its sink; see deliver.
func (p *Pacer) send(q *queue, j *delivery.Job, used []delivery.Grant, at, now int64) {
	late := now - at
	s := q.sink
	q.inFlight++
	s.inFlight++
	p.inFlight++
	if late > p.opt.LateTolerance.Microseconds()/2 {
		p.lateAt = now
		p.opt.Requeuer.Hold(p.opt.MinQuantum)
	}
	p.senders.hand(dispatch{
		ctx: p.sendCtx, queue: q, sink: s, job: j, used: used, at: at, epoch: p.epoch,
		latest: at + q.lateBy(p.opt.LateTolerance.Microseconds(), q.campaign.Rate.Spacing()),
	})
}

// roomFor tells the lanes whose jobs were refused that the queue has room again, once it is half empty.
func (p *Pacer) roomFor(q *queue) {
	if len(q.waiting) == 0 {
		return
	}
	room := p.laneRoom(q)
	if q.units > room/2 {
		return
	}
	for src := range q.waiting {
		src.Room(q.id, room-q.units)
	}
	q.waiting = nil
}
