package pacer

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

// dispatchDue sends every job whose slot has come.
func (p *Pacer) dispatchDue(now instant) {
	for range perTurn {
		if p.due.len() == 0 {
			return
		}
		q := p.due.first().item
		if p.dueAt() > now.local {
			return
		}
		p.askKeys(q, now)
		if at := p.sendsAt(q); at > now.local || !p.dispatchNext(q, at, now) {
			p.wake(q.sink) // the free call that it did not use can serve another queue
		}
		if p.schedule(q); p.asksAt(q) <= now.local && p.sendsAt(q) > now.local { // too many are asked
			p.due.set(q, min(p.sendsAt(q), now.local+askedAgain))
		}
	}
}

// dueAt is the local time when the first queue of the slot heap is due, by what is known of its store's clock by now.
func (sl *slots) dueAt() int64 {
	first := sl.due.first()
	return min(first.at, sl.sendsAt(first.item))
}

// dispatchNext uses the queue's first slot, which is due at the local time at, if possible, and reports whether it did.
func (p *Pacer) dispatchNext(q *queue, at int64, now instant) bool {
	if p.forfeit(q, now) > 0 {
		p.takes.want(q)
		return false
	}
	s := q.sink
	if opens := q.opens(); opens > now.local {
		p.refundSlots(q, noRevision)
		p.takes.askLater(q, opens)
		return false
	}
	if s.calls.inFlight >= s.max {
		q.blocked = true
		s.full, s.fullAt = append(s.full, q), now.local
		return false
	}
	if q.outOfCalls() { // it is scheduled again when one comes free
		return false
	}
	if p.returnBeyond(q, now); q.granted == 0 {
		return false
	}
	j := q.goes()
	if q.keyed() && j.SendBy.Time().Before(now.wall) {
		p.disallow(q, tooLate(now.wall))
		return false
	}
	if p.setAside(q, j, now) { // the next one goes
		return false
	}
	if q.granted < j.Weight { // a heavier job has come to the front since
		p.schedule(q)
		p.takes.want(q)
		return false
	}
	q.remove(j)
	used := q.use(j.Weight)
	s.granted -= j.Weight
	p.send(q, j, used, at, now)
	q.widen()
	p.makeCapacity(q, now)
	p.takes.want(q)
	p.returnUnused(q)
	return true
}

// setAside takes a job out of its queue that may not be sent, as its destination is busy, its hours have ended, or it has expired. It reports
// whether that is so.
func (p *Pacer) setAside(q *queue, j *delivery.Job, now instant) bool {
	d, expired := p.busyAt(q.sink, q, j, now), j.Expired(now.wall)
	if d == nil && !expired && !q.campaign.Opens(j, now.wall).After(now.wall) {
		return false
	}
	p.disallow(q, func(other *delivery.Job) bool { return other == j })
	switch {
	case expired:
		q.remove(j)
		p.carryOut(j, late(), now)
	case d != nil:
		p.putApart(q, d, j, now)
	default:
		q.remove(j)
		p.replace(j, now)
	}
	p.refill(q, now)
	return true
}

// reuse has the next job of the queue use the slot of one that a ledger has kept from being sent, while the slot may be used. It
// reports whether there was such a job.
func (p *Pacer) reuse(x *sent, now instant) bool {
	q, s := x.queue, x.sink
	switch class := x.result.Class; {
	case x.forfeited, class != delivery.Duplicate && class != delivery.Cancelled, x.latest == never, now.local > x.latest:
		return false
	case q.campaign != x.campaign, q.sink != s:
		return false
	case !q.ready() || q.opens() > now.local || q.outOfCalls() || s.calls.inFlight >= s.max:
		return false
	}
	j := q.goes()
	if j.Weight != x.job.Weight || j.Expired(now.wall) || q.campaign.Opens(j, now.wall).After(now.wall) || p.busyAt(s, q, j, now) != nil {
		return false
	}
	q.remove(j)
	p.begin(dispatch{queue: q, sink: s, job: j, used: x.used, at: x.at, latest: x.latest}, now)
	p.makeCapacity(q, now)
	p.takes.want(q)
	p.returnUnused(q)
	return true
}

// returnUnused hands back the slots of a queue that has become empty.
func (sl *slots) returnUnused(q *queue) {
	if q.empty() && q.granted > 0 {
		sl.refundSlots(q, noRevision)
	}
}

// forfeit drops the slots that can no longer be used without turning a stall into a burst, and returns how many.
func (sl *slots) forfeit(q *queue, now instant) (n int64) {
	for q.granted > 0 {
		g := &q.grants[0]
		k := q.tooLate(sl.clocks.of(g.From.Shard).store(now.local) - 1 - sl.opt.lateBy(q.campaign, g.Rate))
		if k == 0 {
			break
		}
		sl.unsent.add(q.use(k))
		n += k
	}
	if n > 0 {
		q.sink.granted -= n
		if !q.waitedForCall(now.local, sl.opt.LateTolerance.Microseconds()) {
			sl.sends.lateAt = now.local
		}
		sl.metrics.forfeited.Add(float64(n))
		sl.schedule(q)
	}
	return n
}

// lateBy is how late, in microseconds, a slot of the campaign at a rate may go to its sink: three quarters of the configured tolerance.
// Where a tenth of the spacing is longer, it is three quarters of that, since a tenth of a unit does not move the bound. The last quarter
// is for the way to the wire, which also takes time on a busy machine. Quota windows are widened by the plain tolerance only, so under a
// strict quota only that applies.
func (o *Options) lateBy(c *delivery.Campaign, r delivery.Rate) int64 {
	tolerance := o.LateTolerance.Microseconds()
	if !slices.ContainsFunc(c.Quotas, func(q *delivery.Quota) bool { return q.Strict() && q.Covers(c.ID) }) {
		tolerance = max(tolerance, r.Spacing()/10)
	}
	return tolerance * 3 / 4
}

// dispatch is one job to be passed to its sink.
type dispatch struct {
	ctx         context.Context
	queue       *queue
	sink        *sinkState
	destination *destination // nil: the job has none of its own
	job         *delivery.Job
	campaign    *delivery.Campaign // as it was then
	used        []delivery.Grant   // its slots, as counted by quotas
	at          int64              // local time of its slot
	latest      int64              // local time until which the slot may be used; never without a slot
	begun       int64              // local time when it was passed on
	since       int64              // local time when the job was last sent before, or else when it is now
}

// sent is the result of one sink call.
type sent struct {
	dispatch
	result    delivery.Result
	forfeited bool // it was not sent: its slot had passed too long ago
}

// send passes the job, whose slot came at the local time at, to a goroutine that calls its sink; see deliver.
func (p *Pacer) send(q *queue, j *delivery.Job, used []delivery.Grant, at int64, now instant) {
	s := q.sink
	late := now.local - max(at, q.calls.freeAt, s.fullAt)
	if late > p.opt.LateTolerance.Microseconds()/2 {
		p.noteLate(now)
	}
	p.begin(dispatch{queue: q, sink: s, job: j, used: used, at: at, latest: at + p.opt.lateBy(q.campaign, q.campaign.Rate)}, now)
}

// noteLate lets what is not sent wait: a slot was used late, or not at all.
func (p *Pacer) noteLate(now instant) {
	p.sends.lateAt = now.local
	p.opt.Requeuer.Throttle(p.opt.MinQuantum)
}

// begin passes a job to a goroutine.
func (p *Pacer) begin(x dispatch, now instant) {
	x.queue.calls.began(now.local)
	x.sink.calls.began(now.local)
	x.ctx, x.begun, x.since, x.campaign = p.sends.ctx, now.local, now.lastTry(x.job), x.queue.campaign
	if x.destination = p.destinationOf(x.sink, x.job, now); x.destination != nil {
		x.destination.left(x.job)
		x.destination.calls.began(now.local)
		p.destinations.note(x.destination, now.local)
	}
	p.sends.start(x)
}

// deliver passes a job to its sink. On a busy machine time may have passed since its slot: a job that is too late is
// not sent, and its slot is forfeited. How late it was is counted when the sink has answered: by then the trace of the attempt is known.
func (p *Pacer) deliver(x dispatch) {
	begun := time.Now()
	now := p.at(begun).local
	late, slotted := time.Duration(max(0, now-x.at))*time.Microsecond, x.latest != never
	if slotted {
		p.metrics.late.Observe(late)
		if allowed := x.job.SendBy; now > x.latest || allowed != 0 && begun.After(allowed.Time()) {
			metric.Observe(p.metrics.lateness, late, "")
			p.inbox.result(sent{dispatch: x, forfeited: true})
			return
		}
		if by := delivery.StampOf(begun.Add(time.Duration(x.latest-now) * time.Microsecond)); x.job.SendBy == 0 || by < x.job.SendBy {
			x.job.SendBy = by
		}
	}
	r := p.opt.Sinks.Deliver(x.ctx, x.sink.id, x.job)
	if slotted {
		metric.Observe(p.metrics.lateness, late, r.TraceID)
	}
	if r.Class <= delivery.Interrupted {
		x.job.Call = delivery.Call{At: begun, Took: uint32(min(r.Took.Microseconds(), math.MaxUint32)), Status: int32(r.Status), Provider: r.Provider}
	}
	p.inbox.result(sent{dispatch: x, result: r})
}

// sends are the calls of sinks.
type sends struct {
	*senders
	ctx    context.Context // of the calls
	cancel context.CancelFunc
	asked  int     // jobs whose keys are asked
	keys   latency // of the answers of keys
	lateAt int64   // local time when a slot was last used so late that relaying has to wait; 0: never
}

// begin makes the context of calls, which do not end with ctx.
func (s *sends) begin(ctx context.Context) {
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
}

// behindFor is how long after a late slot sending counts as behind.
const behindFor = 500 * time.Millisecond

// behind reports whether sending is behind for want of CPU.
func (s *sends) behind(now instant) bool {
	return s.lateAt != 0 && now.local <= s.lateAt+behindFor.Microseconds()
}
