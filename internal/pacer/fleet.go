package pacer

import (
	"context"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// freshFor is how long a success is told to other daemons.
	freshFor = 10 * time.Second
	// maxAsks bounds the campaigns that other daemons are asked about.
	maxAsks = 1000
)

// Answers returns what sinks lately answered, for the other daemons; of campaigns only what they asked for.
func (p *Pacer) Answers(ctx context.Context, asked []string) (delivery.Answers, error) {
	answer := make(chan delivery.Answers, 1)
	p.inbox.do(func(now instant) { answer <- p.answers(asked, now) })
	select {
	case a := <-answer:
		return a, nil
	case <-p.inbox.closed:
		return delivery.Answers{}, ErrDraining
	case <-ctx.Done():
		return delivery.Answers{}, ctx.Err()
	}
}

func (p *Pacer) answers(asked []string, now instant) delivery.Answers {
	a := delivery.Answers{Works: map[string]time.Time{}, Taken: map[string]time.Time{}, Untried: map[string]time.Time{}}
	lately := func(at int64) bool { return at > 0 && now.local-at < freshFor.Microseconds() }
	for id, s := range p.sinks {
		if lately(s.workedAt) {
			a.Works[id] = p.timeOf(s.workedAt)
		}
	}
	for _, id := range p.untriedSinks(now) {
		a.Untried[id] = now.wall
	}
	for _, id := range asked {
		if q := p.queues.byID[id]; q != nil && lately(q.takenAt) {
			a.Taken[id] = p.timeOf(q.takenAt)
		}
	}
	for _, q := range p.queues.list {
		if q.circuit.doubtful(now.local) && len(a.Asks) < maxAsks {
			a.Asks = append(a.Asks, q.id)
		}
	}
	return a
}

// SetFleetAnswers tells the pacer what sinks answer to the other daemons. A sink that takes jobs from them has no outage, and a
// campaign that it takes jobs of fails here by the jobs' own fault.
func (p *Pacer) SetFleetAnswers(e delivery.FleetAnswers) {
	p.inbox.do(func(now instant) {
		for id, t := range e.Works {
			s, at := p.sinks[id], p.at(t).local
			if s == nil {
				continue
			}
			s.othersAt = max(s.othersAt, at)
			if s.breaker.fleetDelivered(at, now.local) {
				p.opt.Logger.Info("the sink takes jobs from other daemons; what fails here is each campaign's own", "sink", id)
				p.askSoon(s, now)
			}
		}
		for id, t := range e.Untried {
			if s := p.sinks[id]; s != nil {
				s.untriedUntil = max(s.untriedUntil, p.at(t.Add(elsewhereFor)).local)
			}
		}
		for id, t := range e.Taken {
			q := p.queues.byID[id]
			if q == nil {
				continue
			}
			if q.circuit.fleetDelivered(p.at(t).local, now.local) {
				p.opt.Logger.Info("other daemons deliver this campaign's jobs: those that fail here are judged one by one", "campaign", id)
				p.takes.askLater(q, now.local)
			}
		}
		for id, t := range e.Refused {
			if q := p.queues.byID[id]; q != nil && q.sink != nil && q.takenAt < p.at(t).local && q.circuit.fleetRefused() {
				p.opt.Logger.Info("another daemon holds this campaign for refusals: it is held here, too", "campaign", id)
				p.holdRefused(q, now)
			}
		}
	})
}
