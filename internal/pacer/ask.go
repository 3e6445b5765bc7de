package pacer

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	takeTimeout = 2 * time.Second // of one take or refund, repeats included
	// askAgain is how long a quota is assumed to stay used up, in microseconds: units that a daemon did not send are
	// returned, and the other daemons do not learn of it.
	askAgain = 10_000_000
)

// slots are those of all campaigns in this daemon, from the ask to the refund: when queues ask for them, when they come due, and the calls for
// which they are used.
type slots struct {
	opt Options
	*metrics
	localClock
	inbox   inbox
	running sync.WaitGroup // takes, refunds and sends

	// Everything below belongs to the scheduler goroutine.
	queues  queues
	sinks   []*sinkState
	due     timeHeap[*queue] // by the local time of their first slot
	takes   takes
	quantum quantum
	clocks  storeClocks
	sends   sends
	unsent  unsent // to be handed back to the windows of quotas
}

// ask sends one take for every campaign that is due.
func (sl *slots) ask(now instant) {
	t := &sl.takes
	if !t.ready(now.local) {
		return
	}
	queues, asks := make([]*queue, 0, t.lastItems), make([]delivery.Ask, 0, t.lastItems)
	for t.asks.len() > 0 && t.asks.first().at <= now.local && len(asks) < maxItems {
		q := t.asks.pop()
		if a, ok := sl.askOf(q, now); ok {
			q.asked(&a, now.local)
			queues = append(queues, q)
			asks = append(asks, a)
		}
	}
	if len(asks) == 0 {
		return
	}
	t.begin(len(asks), now.local)
	sl.background(func(ctx context.Context) {
		sent := sl.now().local
		reply, err := sl.opt.Limiter.Take(ctx, asks)
		arrival := sl.now().local
		sl.inbox.do(func(now instant) {
			if err == nil {
				sl.takes.lasts.observe(arrival - sent)
			}
			sl.taken(queues, asks, reply, err, arrival, now)
		})
	})
}

// askOf is what the queue asks for now; ok is false when there is nothing to ask for, and then the queue has been
// scheduled for a later look.
func (sl *slots) askOf(q *queue, now instant) (a delivery.Ask, ok bool) {
	sl.forfeit(q, now)
	sl.returnBeyond(q, now)
	if q.ask.busy > 0 || q.campaign == nil || q.sink == nil || q.units <= q.granted {
		return a, false
	}
	if opens := q.opens(); opens > now.local {
		sl.takes.askLater(q, opens)
		return a, false
	}
	horizon := sl.quantum.horizon(q.campaign)
	shared, room := sl.freeCalls(q, horizon, now)
	want := min(q.units-q.granted, shared, delivery.MaxGrant)
	q.ask.short = room < want
	want = min(want, room)
	if q.circuit.tripped { // half-open: one job is tried, and its result decides
		want = min(want, 1-int64(q.calls.inFlight)-q.granted)
	}
	if s := q.sink; s.breaker.tripped {
		want = min(want, 1-int64(s.calls.inFlight)-s.granted-s.asked)
	}
	if want <= 0 {
		sl.takes.askLater(q, now.local+sl.quantum.length-1) // a moment before those that were served
		return a, false
	}
	if q.granted == 0 && q.parts[rankAllowed].len() > 0 { // the keys of jobs that they no longer allow when the slots come are asked once more
		sl.disallow(q, tooLate(now.wall.Add(time.Duration(sl.takes.lasts)*time.Microsecond)))
	}
	weights := q.weights()
	if weights != nil {
		want = min(max(want, weights[0]), sum(weights))
	}
	last, clock := q.lastGranted(), sl.clocks.of(q.shard)
	if lead := sl.lead(q); lead > 0 && clock.known > 0 {
		last = max(last, clock.store(now.local)+lead-q.campaign.Rate.Spacing())
	}
	return delivery.Ask{
		Campaign: q.campaign, Want: want, Weights: weights, LastGranted: last, Jumped: clock.jumped,
		Horizon: horizon, Quantum: sl.quantum.length, LateTolerance: sl.opt.LateTolerance.Microseconds(), Gate: q.sink.id,
		Bytes: q.bytes(),
	}, true
}

// lead is how far, in microseconds, the slots that the queue asks for are to come at least: once the reply has come, the keys are asked first, unless
// they allow a job already. Where slots are far apart, none is to have passed when the reply comes. The credit of a burst has passed anyway.
func (sl *slots) lead(q *queue) (lead int64) {
	if q.campaign.Burst > 0 {
		return 0
	}
	if q.keyed() && q.parts[rankAllowed].len() == 0 {
		lead = sl.sends.headStart() + int64(sl.takes.lasts)
	}
	if lasts, rate := int64(sl.takes.lasts), q.campaign.Rate; rate.Spacing() >= farApart && 2*lasts > sl.opt.lateBy(q.campaign, rate) {
		lead = max(lead, lasts+rand.Int64N(lasts)) // apart: those that ask together must not all go together
	}
	return lead
}

// horizon is how far ahead slots of the campaign are asked for, in microseconds.
func (u *quantum) horizon(c *delivery.Campaign) int64 {
	horizon := 3 * u.length
	for _, quota := range c.Quotas {
		if !quota.Strict() || !quota.Covers(c.ID) {
			continue // it is not the horizon that may exceed it
		}
		for _, w := range quota.Windows {
			horizon = min(horizon, max(w.Span.Microseconds()/50, u.length))
		}
	}
	return horizon
}

// taken distributes a take's reply, which arrived at the local time arrival, to the queues that
// asked.
func (sl *slots) taken(queues []*queue, asks []delivery.Ask, reply delivery.TakeReply, err error, arrival int64, now instant) {
	sl.takes.underWay--
	for _, c := range reply.Clocks {
		clock := sl.clocks.of(c.Shard)
		by := c.Jumped - clock.jumped
		if by != 0 {
			clock.jump(by)
			sl.jumped(c.Shard, by)
		}
		if clock.observe(c.Now, arrival) || by != 0 {
			for _, q := range sl.queues.list {
				sl.schedule(q)
			}
		}
	}
	var unanswered []*queue
	for i, q := range queues {
		q.answered()
		switch {
		case err == nil || i < len(reply.Items) && reply.Items[i].GrantedAt > 0:
			sl.grant(q, asks[i], reply.Items[i], now)
		default:
			unanswered = append(unanswered, q)
		}
	}
	if err != nil {
		pause, first := sl.takes.failed(now.local)
		if first {
			sl.opt.Logger.Warn("the quota store does not answer; jobs wait until it does", "error", err)
		}
		for _, q := range unanswered {
			sl.takes.askLater(q, now.in(pause))
		}
	} else if len(reply.Clocks) > 0 {
		sl.takes.answeredAt = arrival
	}
}

// jumped gives up the slots of a shard whose clock has jumped: its data is lost, and their times mean nothing.
func (sl *slots) jumped(shard int, by int64) {
	for _, q := range sl.queues.byID {
		if q.shard == shard && q.lastGranted() > 0 {
			sl.refundSlots(q, noRevision)
			q.lastSlot += by
		}
	}
}

// grant records the slots a queue was granted and decides when it asks again.
func (sl *slots) grant(q *queue, a delivery.Ask, g delivery.Granted, now instant) {
	q.competitors = max(1, g.Competitors)
	held := g.Grant()
	if a.Weights != nil {
		held.BeginBy = g.GrantedAt + a.Horizon
	}
	q.add(held)
	if held.Beyond() > 0 {
		q.bind(q.granted) // if a job overtook the heavy one, its slots would be lost, and it would wait until as many come again
	}
	if q.sink != nil {
		q.sink.granted += g.Units
	}
	switch {
	case q.units == 0:
		sl.refundSlots(q, noRevision)
		sl.takes.askLater(q, now.local)
		return
	case q.campaign != a.Campaign && changed(q.campaign, a.Campaign):
		sl.refundSlots(q, validFrom(a.Campaign, q.campaign))
		sl.takes.askLater(q, now.local)
		return
	}
	sl.schedule(q)
	if g.Bound == delivery.BindGate && q.sink != nil && !q.sink.moving {
		q.sink.breaker.seeGate(0, delivery.Gate{Cause: delivery.GateThrottled}, now.local)
	}
	next := sl.nextAsk(q, a, g, now)
	if q.campaign != a.Campaign { // what kept this one from more may not keep the new one
		next, q.turnAt = now.local, 0
	}
	sl.takes.askLater(q, next)
}

// nextAsk is the local time of a queue's next ask, given its ask and the grant.
func (sl *slots) nextAsk(q *queue, a delivery.Ask, g delivery.Granted, now instant) int64 {
	next := now.local + sl.quantum.length - sl.quantum.spread()
	switch soon := now.local + sl.quantum.length - sl.quantum.shortest; {
	case q.units <= q.granted: // the next job asks at once, while there are not too many that do
		next = soon
	case g.Units == a.Want: // nothing limits the campaign: the jobs that have come meanwhile ask soon
		next = max(soon, q.askSooner(sl.quantum.length, now))
	}
	q.turnAt = 0
	if q.ask.short = q.ask.short && g.Units == a.Want; q.ask.short || q.sums[rankLined] > 0 { // others follow these
		next = min(next, q.askSooner(sl.quantum.length, now))
	}
	if g.Units < a.Want && g.NextAt > 0 {
		at := sl.clocks.of(g.From.Shard).local(g.NextAt)
		if g.Units == 0 && g.Bound != delivery.BindGate { // which its breaker knows
			next, q.turnAt, q.ask.paced = now.local+sl.quantum.length/2, at, g.Bound == delivery.BindRate
		}
		next = max(at, next)
	}
	switch {
	case g.Bound == delivery.BindHeld, g.Bound == delivery.BindQuota && g.NextAt == 0 && g.Units < a.Want:
		next = now.in(time.Second) // nothing but a change helps; if the store knows of one already, it will come
	case g.Bound == delivery.BindQuota:
		next = min(next, now.local+askAgain+rand.Int64N(askAgain/4))
	}
	return next
}

// schedule keeps the queue in the slot heap while it has slots that it can use.
func (sl *slots) schedule(q *queue) {
	if at := min(sl.sendsAt(q), sl.asksAt(q)); at < never {
		sl.due.set(q, at)
	} else {
		sl.due.remove(q)
	}
}

// sendsAt is the local time when the next job of the queue is sent; never while it cannot be.
func (sl *slots) sendsAt(q *queue) int64 {
	if q.granted > 0 && !q.blocked && q.ready() && !q.outOfCalls() && q.granted >= q.goes().Weight {
		return sl.clocks.due(q)
	}
	return never
}

// refundSlots gives the queue's slots before a revision back to the timeline. Until that is done the queue does not ask, so that a take never
// overtakes the refund of the slots before it.
func (sl *slots) refundSlots(q *queue, before int64) {
	refunds, units := q.timeline.withdraw(before)
	sl.refund(q, refunds, units)
}

// returnBeyond hands the slots back if no job may begin at the first of them: the heavy job that they were granted for has gone.
func (sl *slots) returnBeyond(q *queue, now instant) {
	if q.granted > 0 && q.grants[0].Beyond() == q.grants[0].Units {
		q.ask.at, q.turnAt = now.local, 0 // it was told to wait until they have passed
		sl.refundSlots(q, noRevision)
	}
}

// refund returns slots that a queue has given up.
func (sl *slots) refund(q *queue, refunds []delivery.Grant, units int64) {
	sl.schedule(q)
	if len(refunds) == 0 {
		return
	}
	if q.sink != nil {
		q.sink.granted -= units
	}
	sl.takes.asks.remove(q)
	q.ask.busy++
	sl.background(func(ctx context.Context) {
		err := sl.opt.Limiter.Refund(ctx, refunds)
		sl.inbox.do(func(instant) {
			if err != nil {
				sl.opt.Logger.Debug("slots were not handed back and are lost", "campaign", q.id, "error", err)
			}
			q.ask.busy--
			sl.takes.want(q)
		})
	})
}

func sum(list []int64) (total int64) {
	for _, n := range list {
		total += n
	}
	return total
}
