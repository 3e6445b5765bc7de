package pacer

import (
	"github.com/pacer/pacer/internal/delivery"
)

// campaign is the campaign with this id, its schedule applied, nil while it is unknown.
func (p *placing) campaign(id string, now instant) *effective {
	e := p.campaigns.effective(id, now)
	if e != nil && e.lacksSink(now.wall) {
		p.opt.Logger.Error("the campaign is held: its sink is not configured; add it under sinks, or set another",
			"campaign", id, "sink", e.campaign.Sink)
	}
	return e
}

// queue is the campaign's queue, made when it is first needed.
func (p *placing) queue(e *effective) *queue {
	q := p.queues.byID[e.campaign.ID]
	if q == nil {
		q = p.queues.add(e.campaign.ID)
	}
	if q.campaign == nil {
		q.campaign, q.sink = e.campaign, e.sink
	}
	return q
}

func (p *Pacer) apply(s *delivery.Snapshot, now instant) {
	if s == nil {
		return
	}
	if lost := p.campaigns.use(s, p.opt.UnknownGrace, now); lost > 0 {
		p.opt.Logger.Error("the catalog has lost most of its campaigns at once; they stay in force as they were until that is seen "+
			"again after unknown_grace: restore their rows, or pause what is not to be sent", "lost", lost, "unknown_grace", p.opt.UnknownGrace)
	}
	p.measureRates(now) // before many campaigns that are resumed together are told of room
	for _, q := range p.queues.list {
		p.change(q, now)
	}
	for _, d := range p.destinations.byKey { // nothing else may look at a closed one for as long as it is
		if !d.shut(now.local) {
			continue
		}
		if p.limitsOf(d, now); !d.shut(now.local) {
			p.destinations.note(d, now.local)
		}
	}
}

func (p *Pacer) applyDueChanges(now instant) {
	for range perTurn {
		e := p.campaigns.change(now.wall)
		if e == nil {
			return
		}
		if q := p.queues.byID[e.row.ID]; q != nil {
			p.change(q, now)
		}
	}
}

// change updates the queue to its campaign's current state.
func (p *Pacer) change(q *queue, now instant) {
	var is *delivery.Campaign
	var sink *sinkState
	if e := p.campaign(q.id, now); e != nil {
		is, sink = e.campaign, e.sink
	}
	was := q.campaign
	if was == is {
		return
	}
	p.disallow(q, every)
	p.changeCircuit(q, is, sink, now)
	if changed(was, is) {
		if q.sink == sink {
			p.refundSlots(q, validFrom(was, is)) // the slots lie on the old timeline
		} else {
			p.refundSlots(q, noRevision)
		}
		if q.blocked {
			q.blocked = false
			q.sink.leave(q)
		}
		if q.sink != sink {
			steps := q.takeSteps()
			q.sink = sink
			p.replaceAll(steps, now)
		}
	}
	q.campaign, q.turnAt = is, 0
	if q.heavy > 0 && is != nil { // a limit may have been lowered: the first that weighs more would never be granted, and the others wait behind it
		most := maxUnits(is)
		p.replaceAll(takeOut(q, func(_ int64, j *delivery.Job) bool { return j.Weight > most }), now)
		p.returnUnused(q)
	}
	p.schedule(q)                  // it may have more calls now
	p.takes.askLater(q, now.local) // the reason it waited may be gone: a quota may have been raised
	p.review(q, now)
}

// changeCircuit forgets the sink's answers where a change may alter them. A step of a schedule, or of the rate that
// spreads what is left, changes nothing of that.
func (p *Pacer) changeCircuit(q *queue, is *delivery.Campaign, sink *sinkState, now instant) {
	was := q.campaign
	switch {
	case was != nil && is != nil && was.SetRevision() == is.SetRevision() && q.sink == sink:
	case changed(was, is):
		q.circuit = breaker{}
	case q.circuit.forgive(now.local):
		p.opt.Logger.Info("the campaign was changed; it is held for refusals no longer", "campaign", q.id)
	}
}

// review empties the queue of a campaign that may not send, and wakes sources whose jobs need not wait.
func (p *Pacer) review(q *queue, now instant) {
	if q.campaign != nil && q.standing(now) == sending {
		p.makeCapacity(q, now)
		return
	}
	p.disallow(q, every)
	p.refundSlots(q, noRevision)
	p.replaceAll(q.takeSteps(), now)
	p.replaceAll(takeOut(q, func(int64, *delivery.Job) bool { return true }), now)
	if q.campaign == nil {
		q.grant(q.id, settleAll, p.campaigns.absent(q.id, p.opt.UnknownGrace))
	} else if held := q.standing(now) == held; !held || q.campaign.Overflow != delivery.OverflowBlock {
		q.grant(q.id, settleAll, !held)
	}
}
