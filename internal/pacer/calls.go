package pacer

const (
	callSmoothing = 8                 // about how many calls their duration is averaged over
	farSpacing    = int64(10_000_000) // slots as far apart as this, in microseconds, are never too many for the calls
)

// calls are the calls of a campaign, or of a sink, that are in flight in one daemon, and how long they last. It is pure; times
// are local ones, in microseconds.
type calls struct {
	inFlight int
	lasts    int64 // how long a call lasts, until the next job can take its place; smoothed; 0: not known
	endedAt  int64 // when a call last ended, or the first of those in flight began
	freeAt   int64 // of a campaign: when a call last came free while all were in flight; 0: never
}

func (c *calls) began(now int64) {
	if c.inFlight == 0 {
		c.endedAt = now
	}
	c.inFlight++
}

func (c *calls) ended(since, now int64) {
	c.inFlight--
	c.endedAt = now
	if c.lasts == 0 {
		c.lasts = max(1, now-since)
	}
	c.lasts += (now - since - c.lasts) / callSmoothing
}

// over records the end of a call, which says nothing of their length if the job was not sent.
func (c *calls) over(x *sent, now instant) {
	if x.forfeited {
		c.inFlight--
	} else {
		c.ended(x.begun, now.local)
	}
}

// lately is how long a call lasts, as far as it is known. It is at least as long as no call has ended.
func (c *calls) lately(now int64) int64 {
	if c.inFlight > 0 {
		return max(c.lasts, now-c.endedAt)
	}
	return c.lasts
}

// need is what slots are to be used for.
type need struct {
	most    int64 // calls that may be in flight at once
	spacing int64 // of the slots of two jobs that come to this daemon; this and the others in microseconds
	late    int64 // how long a slot can wait for a call
	ahead   int64 // how soon the first slot comes
	soon    int64 // until the slots of the next ask can be used
	horizon int64 // how far ahead slots are granted
}

// free is how many further jobs can be sent: one with each call that is free, and one with each that comes free in time. While slots are
// not closer together than the ends of calls, that is within the horizon. If they are, each slot waits longer for its call than the one
// before, and is lost in the end. So an ask is for the slots that are used before the next ask, and in time.
func (c *calls) free(n need, now int64) int64 {
	free := n.most - int64(c.inFlight)
	if c.lasts == 0 {
		return free
	}
	lasts := c.lately(now)
	if behind := lasts - min(n.spacing, farSpacing)*n.most; behind > 0 {
		return free + n.ahead*n.most/lasts + min(n.late*n.most/behind, n.soon*n.most/lasts)
	}
	return free + n.horizon*n.most/lasts
}

// within is how many of the calls are free, or come free within a time.
func (c *calls) within(most int, d int64) int64 {
	return int64(most-c.inFlight) + d*int64(most)/max(c.lasts, 1)
}

// outOfCalls reports whether all calls that the campaign may have are in flight.
func (q *queue) outOfCalls() bool {
	return q.campaign != nil && q.campaign.MaxInFlight > 0 && q.calls.inFlight >= q.campaign.MaxInFlight
}

// freeCalls is for how many further units there are calls: of the sink, besides those that its campaigns have slots for, and for this
// campaign alone; its queue has jobs.
func (sl *slots) freeCalls(q *queue, horizon int64, now instant) (shared, own int64) {
	c, s := q.campaign, q.sink
	n := need{most: int64(s.max), spacing: farSpacing, soon: sl.quantum.length * 5 / 8, horizon: horizon}
	if q.keyed() && !q.ask.short {
		n.ahead = sl.sends.headStart()
	}
	shared = s.calls.free(n, now.local) - s.granted - s.asked
	weight := max(1, q.units/int64(q.len())) // of a job, on average
	late := sl.opt.lateBy(c, c.Rate)
	n.spacing, n.late = weight*q.competitors*min(c.Rate.Spacing(), farSpacing), late-late/16
	own = s.calls.free(n, now.local)
	if c.MaxInFlight > 0 {
		n.most = min(n.most, int64(c.MaxInFlight))
		own = min(own, q.calls.free(n, now.local))
	}
	return shared, weight*own - q.granted
}

// callEnded records the end of a call. A campaign that was short of calls then uses the slots that have waited for one, or
// asks for more.
func (sl *slots) callEnded(q *queue, r *sent, now instant) {
	waited := q.outOfCalls()
	q.calls.over(r, now)
	r.sink.calls.over(r, now)
	if r.destination != nil {
		r.destination.callEnded(r, now)
	}
	if waited {
		q.calls.freeAt = now.local
		sl.schedule(q)
	}
	if q.ask.short && q.ask.index >= 0 {
		sl.takes.askLater(q, min(q.ask.at, q.askSooner(sl.quantum.length, now)))
	}
}

// askSooner is when a campaign that is short of calls asks again: half a quantum after it has asked last, or now. It asks
// for what is used until then. If its calls are short, it asks in half that time, so that it still has slots when a take is slow,
// or calls become quicker.
func (q *queue) askSooner(quantum int64, now instant) int64 {
	after := quantum / 2
	if q.calls.lasts < quantum {
		after /= 2
	}
	return max(now.local, q.ask.last+after)
}

// waitedForCall reports whether the queue's slots are late because no call was free, of the campaign or of its sink, not for want of
// CPU.
func (q *queue) waitedForCall(now, late int64) bool {
	lately := func(at int64) bool { return at != 0 && now-at <= late }
	return q.outOfCalls() || q.blocked || lately(q.calls.freeAt) || lately(q.sink.fullAt)
}
