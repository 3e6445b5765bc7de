package pacer

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// placing decides where jobs wait. None of its methods puts a job anywhere; they make queues and destinations that a job needs, and move gates of
// destinations whose row has changed.
type placing struct {
	gates
	campaigns    campaigns
	destinations destinations
	aside        delayedJobs
	ahead        ahead
}

// A placement says what happens with a job next. It is decided by decide, for a job that has come or whose wait is over, and by placementAfter, for
// one that was sent. Only carryOut acts on it.
type placement struct {
	where
	delivery.Reroute                  // of a job that is moved; of a delayed one, its Due
	outcome          delivery.Outcome // of a job that is settled
	queue            *queue           // of a job that waits there
	destination      *destination     // of a job that waits there
	front            bool             // of its line
	bound            bool             // it is done even if the job's source is another daemon's by now: what has happened must not be lost
}

type where uint8

const (
	stays         where = iota // where it was read, until there is room
	queued                     // in its queue
	atFront                    // at the front of its queue
	atDestination              // apart from its queue, for its destination
	delayed                    // in memory, until Due
	moved                      // to a lane, a timer, or the dead letters
	settled
)

func settledAs(o delivery.Outcome) placement {
	return placement{where: settled, outcome: o, bound: true}
}

func dead(why delivery.Reason, detail string) placement {
	return placement{where: moved, bound: true, Reroute: delivery.Reroute{Kind: delivery.ToDead, Reason: why, Detail: detail}}
}

func toLane(why delivery.Reason) placement {
	return placement{where: moved, Reroute: delivery.Reroute{Kind: delivery.ToLane, Reason: why}}
}

func toTimer(why delivery.Reason, due time.Time) placement {
	return placement{where: moved, Reroute: delivery.Reroute{Kind: delivery.ToTimer, Reason: why, Due: due}}
}

// late is where a job goes that has waited for so long that it expired.
func late() placement {
	return dead(delivery.ReasonExpired, "expires-at or the campaign's job_ttl passed before its turn")
}

// carryOut does what was decided for a job.
func (p *Pacer) carryOut(j *delivery.Job, to placement, now instant) {
	if !to.bound && revoked(j.Source) {
		p.letGo(j, now)
		return
	}
	switch q := to.queue; to.where {
	case settled:
		j.Settle(to.outcome)
	case moved:
		if e := p.campaigns.byID[j.Campaign]; to.Reason == delivery.ReasonNoZone && e != nil && e.zoneless.Failed() {
			p.opt.Logger.Warn("jobs of a campaign wait, since they name no time zone and its active hours are those of their recipients: publish them with pacer-time-zone, "+
				"or set time_zone_missing", "campaign", j.Campaign, "job", j.ID)
		}
		p.opt.Requeuer.Put(j, to.Reroute)
	case delayed:
		p.aside.push(j, now.in(to.Due.Sub(now.wall))+1) // not a moment before it is ready
	case atDestination:
		to.destination.line.push(j, to.front)
		p.destinations.checkAt(to.destination, now.in(checkEvery))
		p.destinations.note(to.destination, now.local)
	case atFront:
		q.putFront(rank(j), j)
		p.schedule(q)
		p.takes.want(q)
	case queued:
		if j.State != nil { // a step needs no slot
			q.sink.followUps.push(q, j)
			return
		}
		q.put(rank(j), j)
		if q.granted > 0 {
			p.schedule(q)
		}
		p.takes.want(q)
		if j.From == delivery.FromLane { // the lanes that were told of room have begun to bring jobs
			q.toldUntil = min(q.toldUntil, now.in(leastComing))
		}
	case stays:
		p.awaitCapacity(j, now)
		p.giveBack(j, now)
	}
}

// place decides for each job where it waits. Jobs that stay where they are and do not fit are returned, with every later job of the same
// campaign, so that order is kept; high-priority jobs overtake those of ingress. asks
// are for the turns of those that are queued.
func (p *Pacer) place(jobs []*delivery.Job, now instant) (refused []*delivery.Job, asks []delivery.KeyAsk) {
	full := map[string]bool{}
	if len(jobs) > 0 && jobs[0].From == delivery.FromLane {
		p.ahead.saw(jobs[0])
	}
	for _, j := range jobs {
		if full[j.Campaign] && (j.From == delivery.FromLane || j.Priority != delivery.PriorityHigh) {
			refused = append(refused, j)
		} else if to := p.decide(j, now); to.where == stays {
			p.awaitCapacity(j, now)
			full[j.Campaign] = true
			refused = append(refused, j)
		} else {
			if to.where == queued && to.queue.needsTurn(j) {
				j.Turned = true
				asks = append(asks, delivery.KeyAsk{Job: j, Campaign: to.queue.campaign, Sink: to.queue.sink.id})
			}
			p.carryOut(j, to, now)
		}
	}
	return refused, asks
}

// replace places a job that was taken before.
func (p *Pacer) replace(j *delivery.Job, now instant) { p.carryOut(j, p.decide(j, now), now) }

// replaceAll places jobs that were taken before, the last first: a lane gives them back from its end.
func (p *Pacer) replaceAll(jobs []*delivery.Job, now instant) {
	for _, j := range slices.Backward(jobs) {
		p.replace(j, now)
	}
}

// awaitCapacity has a job's source told when there is room for its campaign, if it waits for that.
func (p *placing) awaitCapacity(j *delivery.Job, now instant) {
	if j.From == delivery.FromTimer {
		return
	}
	q := p.queues.byID[j.Campaign]
	if e := p.campaign(j.Campaign, now); e != nil {
		q = p.queue(e)
	} else if q == nil {
		q = p.queues.add(j.Campaign)
	}
	q.await(j.Source)
}

// decide returns where a job waits: its queue, a lane, a timer, memory for a moment, or the dead letters.
func (p *placing) decide(j *delivery.Job, now instant) placement {
	if j.Flaw != nil {
		return dead(j.Flaw.Defect, j.Flaw.Detail)
	}
	e := p.campaign(j.Campaign, now)
	if e == nil {
		return p.decideUnknown(j, now)
	}
	c := e.campaign
	j.Campaign, j.Account = c.ID, e.account // one string for all jobs of the campaign
	if j.Duplicate {
		return settledAs(delivery.OutcomeDuplicate)
	}
	if j.Cancelled {
		return settledAs(delivery.OutcomeCancelled)
	}
	if j.TTL = c.TTL; j.Capped {
		return settledAs(delivery.OutcomeCapped)
	}
	s := standingOf(c, e.sink, now.wall)
	switch {
	case s == cancelled:
		return settledAs(delivery.OutcomeCancelled)
	case s == completed:
		return dead(delivery.ReasonExpired, delivery.DetailCompleted)
	case j.Expired(now.wall):
		return late()
	case j.State != nil:
		return p.decideStep(j, e, now)
	case j.Weight > p.opt.MaxWeight || j.Weight > maxUnits(c):
		return dead(delivery.ReasonOverweight, overweight(j.Weight, p.opt.MaxWeight, c))
	case s == held && j.From != delivery.FromTimer: // one that waits for its time goes on to wait for it
		return overflow(j, c, now)
	}
	if j.From == delivery.FromTimer && (j.Reason == string(delivery.ReasonHours) || j.Reason == string(delivery.ReasonNoZone)) {
		j.Due, j.Reason = time.Time{}, "" // the hours may have changed since they were computed
	}
	if ready, why := readyAt(j, c, now.wall); ready.After(now.wall) {
		return p.wait(j, why, ready, now)
	}
	if s == held {
		return overflow(j, c, now)
	}
	if detail := p.opt.Missing(e.sink.id, j); detail != "" {
		const why = delivery.ReasonUnknownDestination
		if id, _ := j.DestinationAt(e.sink.id); id != "" {
			d := &destination{destinationKey: destinationKey{e.sink.id, id}}
			p.destinations.keep(j, keeper{d, now.local, true}, now)
		}
		if seen := j.FirstRead; j.Reason != string(why) && !seen.IsZero() && now.wall.Sub(seen) > p.opt.UnknownGrace {
			return toTimer(why, now.wall.Add(p.opt.UnknownGrace)) // the row may have been there until now
		}
		return p.awaitRow(j, true, why, detail, now)
	}
	if d := p.closedTo(e.sink, j, now); d != nil {
		return p.apart(p.queue(e), d, j, false, now)
	}
	q, fresh := p.queue(e), j.From == delivery.FromIngress && rank(j) == rankOther
	if fresh && p.opt.Backlog(c.ID) > c.Rate.UnitsIn(time.Second) {
		q.behindUntil = now.in(drainedFor)
	}
	if p.fits(q, j, now) {
		return placement{where: queued, queue: q}
	}
	if q.refuses(j, p.opt.MaxQueueBytes, now) {
		return placement{where: stays}
	}
	if fresh && now.local >= q.behindUntil && !remains(j, c) {
		q.behindUntil = now.in(knownAfter)
	}
	return overflow(j, c, now)
}

// readyAt returns when the job may be sent, and what it waits for until then.
func readyAt(j *delivery.Job, c *delivery.Campaign, now time.Time) (at time.Time, why delivery.Reason) {
	at = j.ReadyAt()
	if at.Before(now) {
		at = now
	}
	opens, waited := c.Opens(j, at), at.After(j.NotBefore) // for what it was moved for, which goes on
	switch why = delivery.Reason(j.Reason); {
	case waited && why == delivery.ReasonUnknownDestination: // it has looked for its row, whatever else it waits for
		return opens, why
	case !opens.Equal(at) && c.ZoneOf(j) == nil:
		return opens, delivery.ReasonNoZone
	case !opens.Equal(at):
		return opens, delivery.ReasonHours
	case waited && j.HadTurn():
		return at, delivery.ReasonKey
	case waited && (why == delivery.ReasonKeyLine || why == delivery.ReasonDestination):
		return at, why
	}
	return at, delivery.ReasonNotBefore
}

const (
	// knownAfter is how soon after its first job went to a lane a campaign is known to have a backlog there. Until then the jobs
	// behind it must not take the room of those that are sent meanwhile.
	knownAfter = 5 * time.Second
	// drainedFor is how long a campaign's backlog in lanes stays below a second of its rate before new jobs go direct.
	drainedFor = 10 * time.Second
)

// remains reports whether a job of the campaign that does not fit here waits where it was read: in a lane, or in ingress if
// the campaign's overflow is block.
func remains(j *delivery.Job, c *delivery.Campaign) bool {
	return j.From == delivery.FromLane || j.From == delivery.FromIngress && c.Overflow == delivery.OverflowBlock
}

// blockedRetry is how long a job that came back from a timer waits in another one when it does not fit and its campaign
// does not use lanes. Timers are shared, so it cannot stay in the one it came from.
const blockedRetry = 30 * time.Second

// overflow returns where a job goes that does not fit.
func overflow(j *delivery.Job, c *delivery.Campaign, now instant) placement {
	if remains(j, c) {
		return placement{where: stays}
	}
	return relayed(j, c, now)
}

// relayed returns where a job goes that is moved on: to its campaign's lane, or to a timer if the campaign does not use lanes.
func relayed(j *delivery.Job, c *delivery.Campaign, now instant) placement {
	if c.Overflow != delivery.OverflowBlock {
		return toLane(delivery.ReasonOverflow)
	}
	due := now.wall.Add(blockedRetry)
	if ready := j.ReadyAt(); ready.After(due) {
		due = ready
	}
	return toTimer(delivery.ReasonOverflow, due)
}

// fits reports whether the job may wait in the queue: its turn, behind the jobs of its rank and of those before, comes soon enough, and
// the campaign's part of the memory has room. A job that stays where it is until it is taken may wait there for any time: of a campaign
// whose turn is far off, only one is taken, to ask for slots with.
func (p *placing) fits(q *queue, j *delivery.Job, now instant) bool {
	if j.From == delivery.FromIngress && rank(j) == rankOther && now.local < q.behindUntil {
		return false // behind the campaign's backlog
	}
	room, far := p.ahead.laneCapacity(q), q.far(p.opt.MaxOpenAge, now)
	if !remains(j, q.campaign) {
		if far {
			return false
		}
		room = max(1, q.campaign.Rate.UnitsIn(p.opt.MaxOpenAge-now.until(q.turn()))/q.competitors)
	}
	ahead := q.ahead(rank(j))
	return ahead == 0 || !far && ahead+j.Weight <= room && q.size+j.Size <= p.opt.MaxQueueBytes
}

// maxUnknown bounds the queues above which no further one is made for an unknown campaign.
const maxUnknown = 10_000

// decideUnknown returns where a job waits whose campaign is not known: in its lane for the grace, and in a timer otherwise.
func (p *placing) decideUnknown(j *delivery.Job, now instant) placement {
	j.Account = nil // of the campaign that it had, if it was deleted just now
	absent := p.campaigns.absent(j.Campaign, p.opt.UnknownGrace)
	if j.From == delivery.FromLane && !absent && (p.queues.byID[j.Campaign] != nil || len(p.queues.list) < maxUnknown) {
		return placement{where: stays}
	}
	return p.awaitRow(j, absent, delivery.ReasonUnknownCampaign, "no campaign with this id; create it, then replay", now)
}

// awaitRow returns where a job waits whose campaign or destination has no row: in a timer. If the row is absent, and was not in a catalog loaded after the
// grace that began when the job was first read, the job becomes a dead letter.
func (p *placing) awaitRow(j *delivery.Job, absent bool, why delivery.Reason, detail string, now instant) placement {
	seen := j.FirstRead
	if seen.IsZero() {
		seen = j.ReadAt
	}
	if s := p.campaigns.snapshot; absent && s != nil && s.LoadedAt.Sub(seen) > p.opt.UnknownGrace {
		return dead(why, detail)
	}
	wait := 5 * time.Second
	if j.TimerHops > 0 {
		wait = 30 * time.Second
	}
	wait = min(wait, max(time.Second, p.opt.UnknownGrace))
	return toTimer(why, now.wall.Add(wait))
}
