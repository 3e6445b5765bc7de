package pacer

import (
	"context"

	"github.com/pacer/pacer/internal/delivery"
)

// refused handles a job that the sink will never take: it becomes a dead letter. After many without a success in between
// the campaign is held. Then one job a second is tried, and one that is refused waits, until a job is taken or somebody
// changes the campaign.
func (p *Pacer) refused(q *queue, s *sinkState, j *delivery.Job, r delivery.Result, now instant) {
	p.sinkWorked(s, now)
	held := q.circuit.isHeld()
	first, closes := q.circuit.refused(now.local)
	if closes && !first {
		p.takesAgain(q, s, now)
	}
	if q.circuit.isHeld() {
		p.holdRefused(q, now)
	}
	if first {
		p.opt.Logger.Error("the sink refused many jobs of this campaign in a row and took none; the campaign is held, one job a "+
			"second is tried, and no other is given up: look at its dead letters, repair, then pacer campaign resume",
			"campaign", q.id, "sink", s.id, "refused", heldRefusals, "detail", r.Detail)
	}
	if held {
		p.waitAlone(j, p.opt.MaxOpenAge, now) // another job is tried next
		return
	}
	j.Attempt++
	p.dead(j, delivery.ReasonRefused, r.Detail)
}

// holdRefused lets no job of the campaign pass for a while.
func (p *Pacer) holdRefused(q *queue, now instant) {
	if done, _ := q.circuit.open(now.local); done {
		p.pauseQueue(q)
	}
}

// Troubles lists the campaigns of this daemon whose circuit is open, because of failures or of refusals.
func (p *Pacer) Troubles(ctx context.Context) ([]delivery.Trouble, error) {
	answer := make(chan []delivery.Trouble, 1)
	p.inbox.do(func(now instant) { answer <- p.troubles(now) })
	select {
	case list := <-answer:
		return list, nil
	case <-p.inbox.closed:
		return nil, ErrDraining
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (p *Pacer) troubles(now instant) (list []delivery.Trouble) {
	for _, q := range p.queues.list {
		switch c := &q.circuit; {
		case q.campaign == nil:
		case c.isHeld():
			list = append(list, delivery.Trouble{Campaign: q.id, Kind: delivery.TroubleRefused, Since: p.timeOf(c.refusals.since)})
		case c.openUntil > c.waitUntil && c.failures > 0:
			list = append(list, delivery.Trouble{Campaign: q.id, Since: p.timeOf(c.since)})
		}
	}
	return list
}
