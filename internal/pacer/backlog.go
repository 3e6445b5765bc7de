package pacer

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/pacer/pacer/internal/delivery"
)

// Held lists the campaigns that have jobs in this daemon's memory, waiting for a slot, for their time, or for their
// campaign to go on; those with a sink are not among them. It costs the scheduler a look at every queue and at every job
// that waits for anything but a slot, and campaigns without jobs nothing: meant to be called about once a second.
func (p *Pacer) Held(ctx context.Context) ([]delivery.HeldJobs, error) {
	answer := make(chan []delivery.HeldJobs, 1)
	p.inbox.do(func() { answer <- p.held() })
	select {
	case held := <-answer:
		return held, nil
	case <-p.inbox.closed:
		return nil, ErrDraining
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *Pacer) held() (list []delivery.HeldJobs) {
	list = make([]delivery.HeldJobs, 0, len(p.order))
	for _, q := range p.order {
		if n := int64(q.len()); n > 0 {
			list = append(list, delivery.HeldJobs{Campaign: q.id, Jobs: n, Units: q.units, Direct: int64(q.ingress)})
		}
	}
	if p.waits.len() == 0 && len(p.parked) == 0 {
		return list
	}
	at := make(map[string]int, len(list))
	for i := range list {
		at[list[i].Campaign] = i
	}
	add := func(j *delivery.Job) {
		i, ok := at[j.Campaign]
		if !ok {
			i = len(list)
			at[j.Campaign] = i
			list = append(list, delivery.HeldJobs{Campaign: j.Campaign})
		}
		list[i].Jobs++
		list[i].Units += j.Weight
		if j.From != delivery.FromLane {
			list[i].Direct++
		}
	}
	for _, e := range p.waits.entries {
		add(e.item)
	}
	for _, jobs := range p.parked {
		for _, j := range jobs {
			add(j)
		}
	}
	return list
}

// tallies count what became of each campaign's jobs since the start. They are written by whoever settles a job.
type tallies struct {
	mu   sync.Mutex // guards the map; its values are safe without
	byID map[string]*tally
}

type tally struct{ delivered, dead, expired, cancelled, sent atomic.Int64 }

// of is the tally of a campaign, made when it is first asked for.
func (t *tallies) of(campaign string) *tally {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.byID[campaign]
	if c == nil {
		if t.byID == nil {
			t.byID = map[string]*tally{}
		}
		c = &tally{}
		t.byID[campaign] = c
	}
	return c
}

func (t *tallies) forget(campaign string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.byID, campaign)
}

// count adds one settled job.
func (t *tally) count(j *delivery.Job, o delivery.Outcome) {
	switch o {
	case delivery.OutcomeDelivered:
		t.delivered.Add(1)
	case delivery.OutcomeDead:
		t.dead.Add(1)
	case delivery.OutcomeExpired:
		t.expired.Add(1)
	case delivery.OutcomeCancelled:
		t.cancelled.Add(1)
	default:
		return // it has only moved (see tried), or its twin counts
	}
	t.sent.Add(j.Weight)
}

// tried counts a job that was sent and is to be sent again.
func (p *Pacer) tried(j *delivery.Job) {
	if p.inForce[j.Campaign] != nil {
		p.metrics.tallies.of(j.Campaign).sent.Add(j.Weight)
	}
}

// Tallies lists what this daemon has done for each campaign of the catalog that had jobs here. One that was deleted, and
// some minutes later created anew, begins at zero.
func (p *Pacer) Tallies() []delivery.Tally {
	t := &p.metrics.tallies
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]delivery.Tally, 0, len(t.byID))
	for id, c := range t.byID {
		list = append(list, delivery.Tally{Campaign: id, Sent: c.sent.Load(), Settled: delivery.Settled{
			Delivered: c.delivered.Load(), Dead: c.dead.Load(), Expired: c.expired.Load(), Cancelled: c.cancelled.Load(),
		}})
	}
	return list
}
