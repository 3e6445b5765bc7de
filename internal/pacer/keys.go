package pacer

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// leastHeadStart and mostHeadStart bound how long before its slot, in microseconds, a job's keys are asked: when its slot comes, their answer
	// must still hold.
	leastHeadStart = int64(delivery.LeastKeyMargin/time.Microsecond) / 2
	mostHeadStart  = leastHeadStart * 7 / 4
	// mostAsked bounds the jobs whose keys are asked at once, two batches: what waits behind more of them is not answered in time.
	mostAsked = 512
	// askedAgain is the pause, in microseconds, of a queue that may not ask now.
	askedAgain = 1000
	// turnFrom is how long a job waits in its queue at least for its turn to be asked for: what goes sooner is asked about only when it goes.
	turnFrom = 500 * time.Millisecond
)

// headStart is how long before its slot, in microseconds, a job's keys are asked: a little longer than they take to answer.
func (s *sends) headStart() int64 {
	return min(max(leastHeadStart, int64(s.keys+s.keys/8)), mostHeadStart)
}

// keyed reports whether keyed quotas limit the queue's jobs.
func (q *queue) keyed() bool { return q.campaign != nil && len(q.campaign.Keyed) > 0 }

// ready reports whether a job of the queue needs nothing but a slot and a call.
func (q *queue) ready() bool {
	return q.parts[rankAllowed].len() > 0 || !q.keyed() && q.len() > q.chosen()
}

// needsTurn reports whether a job that comes to the queue has to ask when its keys will allow it.
func (q *queue) needsTurn(j *delivery.Job) bool {
	return q.keyed() && j.State == nil && !j.HadTurn() && q.ahead(rank(j)) > q.granted+q.campaign.Rate.UnitsIn(turnFrom)/q.competitors
}

// turnAway takes the jobs out of their queues that have to wait for their keys. Those that have left them give their turns up.
func (p *Pacer) turnAway(answers []keyAsk, now instant) {
	if len(answers) == 0 {
		return
	}
	turns, queues := map[*delivery.Job]keyAsk{}, map[*queue]bool{}
	for _, a := range answers {
		if a.leave == nil {
			continue
		}
		turns[a.job] = a
		if q := p.queues.byID[a.campaign.ID]; q != nil {
			queues[q] = true
		}
	}
	for q := range queues {
		p.moveOut(q, func(_ int64, j *delivery.Job) bool { return turns[j].leave != nil }, func(j *delivery.Job) placement {
			answer := turns[j].answer
			delete(turns, j)
			return p.keptBack(q, j, answer, now)
		}, now)
		p.refill(q, now)
	}
	for _, a := range turns {
		a.leave()
	}
}

// keptBack returns where a job goes that its keys do not allow now.
func (v *judge) keptBack(q *queue, j *delivery.Job, a delivery.KeyAnswer, now instant) placement {
	if a.Capped == "" && a.Reason != delivery.ReasonKey && a.Reason != delivery.ReasonKeyLine {
		return v.unsentJob(q, j, a.Wait, a.Reason, now)
	}
	j.Turned, j.Due = a.Reason != delivery.ReasonKeyLine, now.wall.Add(a.Wait)
	switch {
	case a.Capped != "":
		j.Capped, j.Reason = true, a.Capped
	case !j.Turned:
		j.Reason = string(a.Reason)
	}
	return v.decide(j, now)
}

// refill lets a queue that has lost jobs, or got one back, use its slots and its room.
func (p *Pacer) refill(q *queue, now instant) {
	p.schedule(q)
	p.makeCapacity(q, now)
	p.takes.want(q)
	p.returnUnused(q)
}

// asksAt is the local time when the keys of a further job of the queue are to be asked. Jobs are asked about, or allowed, for slots that are
// about to come; where calls are short, for all calls that come free (mayAsk). It is never when no job or no slot is left for that.
func (sl *slots) asksAt(q *queue) int64 {
	switch ahead := q.sums[rankAllowed] + q.sums[rankAsked]; {
	case !q.keyed() || q.len() <= q.chosen() || q.granted == 0:
	case ahead < q.granted:
		return sl.clocks.of(q.grants[0].From.Shard).local(q.slot(ahead)) - sl.sends.headStart()
	case q.ask.short:
		return 0
	}
	return never
}

// mayAsk reports whether the keys of a further job may be asked: the answer comes in time, and a call is free then.
func (p *Pacer) mayAsk(q *queue) bool {
	free := q.sink.calls.within(q.sink.max, p.sends.headStart())
	if most := q.campaign.MaxInFlight; most > 0 {
		free = min(free, q.calls.within(most, p.sends.headStart()))
	}
	return p.sends.asked < mostAsked && int64(q.chosen()) < max(free, 1)
}

// askKeys asks the keys of the jobs whose slots are about to come.
func (p *Pacer) askKeys(q *queue, now instant) {
	for p.asksAt(q) <= now.local && p.mayAsk(q) {
		j := q.candidate()
		if p.setAside(q, j, now) {
			continue
		}
		q.remove(j)
		q.put(rankAsked, j)
		p.sends.asked++
		asked := keyAsk{at: now.local, dispatch: dispatch{queue: q, campaign: q.campaign, sink: q.sink, job: j}}
		p.opt.Keys.Count(delivery.KeyAsk{Job: j, Campaign: q.campaign, Sink: q.sink.id}, func(a delivery.KeyAnswer) {
			asked.answer = a
			p.inbox.answer(asked)
		})
	}
}

// keyAsk is a job whose keys are asked, or have answered. It has no slot yet.
type keyAsk struct {
	dispatch
	at     int64 // local time when they were asked
	answer delivery.KeyAnswer
	leave  func() // of a turn: gives it up
}

// stillAllowed reports whether a job that its keys have allowed may wait for a slot: nothing has changed since, and it is allowed until its slot
// comes. One that is not would keep others from being asked about meanwhile, and be asked about when it is too late for that slot.
func (p *Pacer) stillAllowed(x *dispatch, now instant) bool {
	q, j := x.queue, x.job
	until := now.local
	if ahead := q.sums[rankAllowed]; ahead < q.granted && !q.ask.short { // where calls are short, it waits for one of those
		until = max(until, p.clocks.of(q.grants[0].From.Shard).local(q.slot(ahead)))
	}
	return now.timeOf(until).Before(j.SendBy.Time()) && x.campaign == q.campaign && x.sink == q.sink && q.standing(now) == sending &&
		!revoked(j.Source) && !p.disown(now)
}

// keysAnswered has a job wait for its slot that its keys allow. Any other goes where it waits.
func (p *Pacer) keysAnswered(a keyAsk, now instant) {
	p.sends.asked--
	p.sends.keys.observe(now.local - a.at)
	q, j := a.queue, a.job
	p.forfeit(q, now)
	q.take(rankAsked, j)
	j.Turned = j.Turned || a.answer.SendBy != 0 || a.answer.Late // it was counted: if it is given back, it goes before those that came to its keys meanwhile
	if j.SendBy = a.answer.SendBy; p.stillAllowed(&a.dispatch, now) {
		q.put(rankAllowed, j)
		p.schedule(q)
		p.takes.want(q)
		return
	}
	if j.SendBy != 0 {
		p.opt.Keys.Release(j)
		j.SendBy = 0
	}
	if p.disown(now) {
		p.letGo(j, now)
		return
	}
	p.carryOut(j, p.keptBack(q, j, a.answer, now), now)
	p.refill(q, now)
}

// disallow has the jobs of a queue that which selects wait for their keys once more; they are at its front.
func (sl *slots) disallow(q *queue, which func(*delivery.Job) bool) {
	var back []*delivery.Job
	for i := range q.parts[rankAllowed].len() {
		if j := q.parts[rankAllowed].at(i); which(j) {
			back = append(back, j)
		}
	}
	for _, j := range slices.Backward(back) {
		q.take(rankAllowed, j)
		sl.opt.Keys.Release(j)
		j.SendBy = 0
		q.putFront(rank(j), j)
	}
	if len(back) > 0 {
		sl.schedule(q)
	}
}

func every(*delivery.Job) bool { return true }

// tooLate selects the jobs that their keys allow no longer at a time.
func tooLate(at time.Time) func(*delivery.Job) bool {
	return func(j *delivery.Job) bool { return j.SendBy.Time().Before(at) }
}
