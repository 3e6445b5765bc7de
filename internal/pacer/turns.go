package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// turnFrom is how long a job waits in its queue at least for its turn to be asked for: what goes sooner is asked about only when it goes.
const turnFrom = 500 * time.Millisecond

// needsTurn reports whether a job that comes to the queue has to ask when its keys will allow it.
func (q *queue) needsTurn(j *delivery.Job) bool {
	return len(q.campaign.Keyed) > 0 && j.State == nil && !j.HadTurn() && q.ahead(rank(j)) > q.granted+q.campaign.Rate.UnitsIn(turnFrom)/q.competitors
}

// turnAway takes the jobs out of their queues that have to wait for their keys.
func (p *Pacer) turnAway(asks []delivery.TurnAsk, waits map[*delivery.Job]delivery.Turn, now instant) {
	seen := map[string]bool{}
	for _, a := range asks {
		q := p.queues.byID[a.Campaign.ID]
		if _, waits := waits[a.Job]; !waits || q == nil || seen[q.id] {
			continue
		}
		seen[q.id] = true
		p.moveOut(q, func(_ int64, j *delivery.Job) bool { _, waits := waits[j]; return waits }, func(j *delivery.Job) placement {
			t := waits[j]
			if j.Due = t.Due; t.Capped != "" {
				j.Capped, j.Reason = true, t.Capped
			}
			return p.decide(j, now)
		}, now)
		p.schedule(q)
		p.makeCapacity(q, now)
		p.returnUnused(q)
	}
}
