package pacer

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	maxTakes = 4    // takes under way at once
	maxItems = 4096 // items of one take
	// recoveredAfter is how long no take must have failed before the store is said to answer again, in microseconds. One
	// of several shards that does not answer makes only the takes fail that need it.
	recoveredAfter = 1_000_000
	takeTimeout    = 2 * time.Second // of one take or refund, repeats included
	// takeSmoothing is of how many takes the time they last is the average, about.
	takeSmoothing = 16
	maxBackOff    = time.Second / 4 // between takes while the limiter does not answer
	// askAgain is how long a used-up quota is believed, in microseconds: units that a daemon did not send come back, and
	// nobody else is told.
	askAgain = 10_000_000
)

// takeGap is the least time between two takes: campaigns that come due in it ask together.
func (p *Pacer) takeGap() int64 { return p.opt.MinQuantum.Microseconds() / 2 }

// wantSlots puts the queue on the list of those that ask, unless it is there or its reply is still to come.
func (p *Pacer) wantSlots(q *queue) {
	if q.askIndex < 0 && q.asking == 0 && q.units > q.held {
		p.asks.push(q, q.askAt)
	}
}

// askLater lets the queue ask again at the local time at.
func (p *Pacer) askLater(q *queue, at int64) {
	q.askAt = at
	if q.askIndex >= 0 {
		p.asks.set(q, at)
		return
	}
	p.wantSlots(q)
}

// ask sends one take for every campaign that is due.
func (p *Pacer) ask(now int64) {
	if p.takes >= maxTakes || p.stopped || now < p.lastTake+p.takeGap() {
		return
	}
	queues, asks := make([]*queue, 0, p.lastItems), make([]delivery.Ask, 0, p.lastItems)
	for p.asks.len() > 0 && p.asks.first().at <= now && len(asks) < maxItems {
		q := p.asks.pop()
		a, ok := p.askOf(q, now)
		if !ok {
			continue
		}
		q.asking++
		q.mayBring = min(a.Want, q.campaign.Rate.UnitsIn(time.Duration(a.Horizon)*time.Microsecond)+1)
		q.asked = q.sink
		q.asked.asked += q.mayBring
		queues = append(queues, q)
		asks = append(asks, a)
	}
	if len(asks) == 0 {
		return
	}
	p.lastTake, p.lastItems = now, len(asks)
	p.takes++
	base := context.WithoutCancel(p.sendCtx)
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(base, takeTimeout)
		defer cancel()
		sent := p.now()
		reply, err := p.opt.Limiter.Take(ctx, asks)
		arrival := p.now()
		p.inbox.do(func() {
			if err == nil {
				p.takeTime += (arrival - sent - p.takeTime) / takeSmoothing
			}
			p.taken(queues, asks, reply, err, arrival)
		})
	})
}

// askOf is what the queue asks for now; ok is false when there is nothing to ask, and then the queue has been put where
// it will be looked at again.
func (p *Pacer) askOf(q *queue, now int64) (a delivery.Ask, ok bool) {
	p.forfeit(q, now)
	if q.campaign == nil || q.sink == nil || q.units <= q.held {
		return a, false
	}
	if until := max(q.sink.closedUntil, q.restsUntil); until > now {
		p.askLater(q, until)
		return a, false
	}
	horizon := 3 * p.quantum
	for _, quota := range q.campaign.Quotas {
		if quota.Mode == delivery.ModeEventual {
			continue // a soft limit, which the horizon does not widen
		}
		for _, w := range quota.Windows {
			horizon = min(horizon, max(w.Span.Microseconds()/50, p.quantum))
		}
	}
	want := min(q.units-q.held, q.sink.room(horizon), delivery.MaxGrant)
	if most := q.campaign.MaxInFlight; most > 0 {
		want = min(want, int64(most-q.inFlight)-q.held)
	}
	if q.restsUntil > 0 { // one job is tried, and what becomes of it decides
		want = min(want, 1-int64(q.inFlight)-q.held)
	}
	if want <= 0 {
		p.askLater(q, now+p.quantum-1) // a moment before those that were served
		return a, false
	}
	weights := q.weights()
	if weights != nil {
		want = min(max(want, weights[0]), sum(weights))
	}
	return delivery.Ask{
		Campaign: q.campaign, Want: want, Weights: weights, HeldUntil: q.heldUntil(),
		Horizon: horizon, Quantum: p.quantum, LateTolerance: p.opt.LateTolerance.Microseconds(), Gate: q.sink.id,
		Bytes: q.bytes(),
	}, true
}

// taken spreads a take's reply over the queues that asked.
func (p *Pacer) taken(queues []*queue, asks []delivery.Ask, reply delivery.TakeReply, err error, arrival int64) {
	p.takes--
	for _, c := range reply.Clocks {
		if p.clock(c.Shard).observe(c.Now, arrival) {
			p.reorder()
		}
	}
	var unanswered []*queue
	for i, q := range queues {
		q.asking--
		q.asked.asked -= q.mayBring
		if err == nil || i < len(reply.Items) && reply.Items[i].GrantedAt > 0 {
			p.granted(q, asks[i], reply.Items[i])
		} else {
			unanswered = append(unanswered, q)
		}
	}
	if err != nil {
		p.takeFailed(unanswered, err)
	} else if p.failing && len(reply.Clocks) > 0 && arrival > p.failedAt+recoveredAfter {
		p.failing, p.failures = false, 0
		p.log.Info("the quota store answers again")
	}
}

func (p *Pacer) takeFailed(queues []*queue, err error) {
	if !p.failing {
		p.failing = true
		p.log.Warn("the quota store does not answer; jobs wait until it does", "error", err)
	}
	p.failures++
	p.failedAt = p.now()
	pause := min(p.opt.MinQuantum<<min(p.failures, 10), maxBackOff).Microseconds()
	for _, q := range queues {
		p.askLater(q, p.now()+pause)
	}
}

// granted notes the slots a queue was given and decides when it asks again.
func (p *Pacer) granted(q *queue, a delivery.Ask, g delivery.Granted) {
	q.competitors = max(1, g.Competitors)
	q.add(g.Grant())
	if q.sink != nil {
		q.sink.held += g.Units
	}
	if q.units == 0 || q.campaign != a.Campaign && changed(q.campaign, a.Campaign) || p.stopped {
		p.handBack(q) // granted for what is no longer so
		if !p.stopped {
			p.askLater(q, p.now())
		}
		return
	}
	p.schedule(q)
	now := p.now()
	next := now + p.quantum - p.spread()
	q.turnAt = 0
	if g.Units < a.Want && g.NextAt > 0 {
		at := p.clock(g.From.Shard).local(g.NextAt)
		if g.Units == 0 {
			next, q.turnAt = now+p.quantum/2, at
		}
		next = max(at, next)
	}
	if g.Bound == delivery.BindQuota {
		next = min(next, now+askAgain+rand.Int64N(askAgain/4))
	}
	if s := q.sink; g.Bound == delivery.BindGate && s != nil && !s.probing {
		s.elsewhere = true
	}
	if g.Bound == delivery.BindHeld {
		next = now + time.Second.Microseconds() // the store knows a newer revision; ours will come
	}
	p.askLater(q, next)
}

// spread is by how much a queue asks earlier than a quantum from now. Where quanta are long there are many queues, which
// should not all ask in the same take for ever.
func (p *Pacer) spread() int64 {
	if p.quantum <= p.opt.MinQuantum.Microseconds() {
		return 0
	}
	return rand.Int64N(p.quantum/4 + 1)
}

// schedule keeps the queue in the slot heap while it holds slots that it can use.
func (p *Pacer) schedule(q *queue) {
	if q.held > 0 && !q.blocked && !q.empty() && (q.heavy == 0 || q.held >= q.head().Weight) {
		p.slots.set(q, p.due(q))
	} else {
		p.slots.remove(q)
	}
}

// reorder brings the slot heap in order again after a step of a clock.
func (p *Pacer) reorder() {
	p.slots.reorder(p.due)
}

// handBack gives the queue's slots back to the timeline. Until that is done the queue does not ask, so that a take never
// overtakes the refund of the slots before it.
func (p *Pacer) handBack(q *queue) {
	n := q.held
	p.slots.remove(q)
	refunds := q.handBack()
	if len(refunds) == 0 {
		return
	}
	if q.sink != nil {
		q.sink.held -= n
	}
	p.asks.remove(q)
	q.asking++
	base := context.WithoutCancel(p.sendCtx)
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(base, takeTimeout)
		defer cancel()
		err := p.opt.Limiter.Refund(ctx, refunds)
		p.inbox.do(func() {
			if err != nil {
				p.log.Debug("slots were not handed back and are lost", "campaign", q.id, "error", err)
			}
			q.asking--
			p.wantSlots(q)
		})
	})
}

func sum(list []int64) (total int64) {
	for _, n := range list {
		total += n
	}
	return total
}
