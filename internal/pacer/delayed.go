package pacer

import (
	"context"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// delayedJobs are the jobs in memory that wait for anything but a slot. The zero value is empty.
type delayedJobs struct {
	waits timeHeap[*delivery.Job] // by the local time at which they are ready: after a short back-off, or a not-before
	sinks []*sinkState            // with follow-ups
}

// addSink adds a sink that gets follow-ups.
func (a *delayedJobs) addSink(s *sinkState) {
	if !slices.Contains(a.sinks, s) {
		a.sinks = append(a.sinks, s)
	}
}

// eachSink calls f for every sink with follow-ups.
func (a *delayedJobs) eachSink(f func(*sinkState)) {
	for i := 0; i < len(a.sinks); i++ { // f may add one
		f(a.sinks[i])
	}
}

// forget drops the sinks without follow-ups.
func (a *delayedJobs) forget() {
	a.sinks = slices.DeleteFunc(a.sinks, func(s *sinkState) bool { return s.followUps.len() == 0 })
}

// drop drops every job.
func (a *delayedJobs) drop() {
	for _, s := range a.sinks {
		s.followUps.filter(func(*delivery.Job, bool) bool { return false })
	}
	*a = delayedJobs{}
}

// wait returns where a job waits for its time: in memory if that is near, in a timer if not.
func (p *Pacer) wait(j *delivery.Job, why delivery.Reason, due time.Time, now instant) placement {
	long := j.From == delivery.FromLane && j.Destination != "" && p.overdue(j, now) // the lane would wait for one destination
	if due.Sub(now.wall) >= p.opt.MaxOpenAge || long {
		return toTimer(why, due)
	}
	return placement{where: delayed, Reroute: delivery.Reroute{Due: due}}
}

// delay keeps a job in memory until its time.
func (p *Pacer) delay(j *delivery.Job, to placement, now instant) {
	at := now.in(to.Due.Sub(now.wall)) + 1 // not a moment before it is ready
	if to.sink == nil {
		p.aside.waits.push(j, at)
		return
	}
	j.Due = to.Due
	p.hasFollowUps(to.sink)
	to.sink.followUps.wait(j, at)
}

// moveDelayed places the jobs whose wait in memory is over.
func (p *Pacer) moveDelayed(now instant) {
	for waits := &p.aside.waits; waits.len() > 0 && waits.first().at <= now.local; {
		p.replace(waits.pop(), now)
	}
	p.aside.eachSink(func(s *sinkState) {
		for j := s.followUps.due(now.local); j != nil; j = s.followUps.due(now.local) {
			p.replace(j, now)
		}
	})
}

// giveBack handles a job that was accepted and lost its place, usually since its campaign may not send. Its lane or its ingress
// partition takes it back; one that has used up attempts meanwhile is written once more, since the record there does not know of them.
// Several jobs are given back last first.
func (p *Pacer) giveBack(j *delivery.Job, now instant) {
	if e := p.campaign(j.Campaign, now); e != nil && j.Attempt > 0 && !j.Call.At.IsZero() {
		p.carryOut(j, relayed(j, e.campaign, now), now)
	} else {
		j.Source.Release(j.Campaign, j.Offset)
	}
}

// InMemory lists the campaigns that have jobs in this daemon's memory, waiting for a slot, for their time, or for their
// campaign to be resumed; jobs in a sink call are counted apart. The scheduler visits every queue and every job that
// waits for anything but a slot; campaigns without jobs cost nothing. It is meant to be called about once a second.
func (p *Pacer) InMemory(ctx context.Context) ([]delivery.MemoryJobs, error) {
	answer := make(chan []delivery.MemoryJobs, 1)
	p.inbox.do(func(now instant) { answer <- p.inMemory(now) })
	select {
	case list := <-answer:
		return list, nil
	case <-p.inbox.closed:
		return nil, ErrDraining
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *Pacer) inMemory(now instant) (list []delivery.MemoryJobs) {
	list = make([]delivery.MemoryJobs, 0, len(p.queues.list))
	for _, q := range p.queues.list {
		if n := int64(q.len()); n > 0 || q.calls.inFlight > 0 {
			m := delivery.MemoryJobs{Campaign: q.id, Jobs: n, Units: q.units, Direct: int64(q.direct), InHand: int64(q.calls.inFlight)}
			if turn := q.paced(now); turn > 0 {
				m.Turn = p.timeOf(turn)
			}
			list = append(list, m)
		}
	}
	if p.aside.waits.len() == 0 && len(p.aside.sinks) == 0 && p.destinations.jobs == 0 {
		return list
	}
	at := make(map[string]int, len(list))
	for i := range list {
		at[list[i].Campaign] = i
	}
	of := func(campaign string) *delivery.MemoryJobs {
		i, ok := at[campaign]
		if !ok {
			i = len(list)
			at[campaign] = i
			list = append(list, delivery.MemoryJobs{Campaign: campaign})
		}
		return &list[i]
	}
	count := func(j *delivery.Job, early int64) {
		m := of(j.Campaign)
		m.Jobs++
		m.Early += early
		if j.State == nil {
			m.Units += j.Weight
		}
		if j.From != delivery.FromLane {
			m.Direct++
		}
	}
	early := func(j *delivery.Job) { count(j, 1) }
	ready := func(j *delivery.Job) { count(j, 0) }
	for _, e := range p.aside.waits.entries {
		early(e.item)
	}
	p.aside.eachSink(func(s *sinkState) { s.followUps.each(early) })
	for d := range p.destinations.lines() {
		for i := range d.line.len() {
			if j := d.line.at(i); d.shut {
				early(j)
			} else {
				ready(j)
			}
		}
	}
	return list
}
