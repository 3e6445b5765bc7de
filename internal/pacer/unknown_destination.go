package pacer

import (
	"strings"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// maxAstray bounds the destinations that are remembered as not known.
const maxAstray = 10_000

// unknownSince are destinations that jobs name and that are not known, with the time since when.
type unknownSince map[string]time.Time

// parkUnknownDestination lets a job wait for its destination to appear, as unknown does for campaigns, and tells whether the job is one of those
// that have none. The grace begins when the job is first read or the destination disappears.
func (p *Pacer) parkUnknownDestination(s *sinkState, j *delivery.Job, now instant) bool {
	if p.opt.Missing == nil {
		return false
	}
	why := p.opt.Missing(s.id, j)
	if why == "" {
		delete(p.aside.astray, j.Destination)
		return false
	}
	since, known := p.aside.astray[j.Destination]
	if !known {
		if p.aside.astray == nil || len(p.aside.astray) >= maxAstray {
			p.aside.astray = unknownSince{}
		}
		since = now.wall
		p.aside.astray[strings.Clone(j.Destination)] = since
	}
	seen := j.FirstRead
	if seen.IsZero() {
		seen = j.ReadAt
	}
	if since.After(seen) {
		seen = since
	}
	if loaded := p.campaigns.snapshot; loaded != nil && loaded.LoadedAt.Sub(seen) > p.opt.UnknownGrace {
		p.dead(j, delivery.ReasonUnknownDestination, why)
		return true
	}
	p.opt.Requeuer.Put(j, delivery.Reroute{
		Kind: delivery.ToTimer, Reason: delivery.ReasonUnknownDestination, Due: now.wall.Add(p.unknownWait(j)),
	})
	return true
}

// unknownWait is how long a job waits in a timer for what is not known to appear.
func (p *Pacer) unknownWait(j *delivery.Job) time.Duration {
	wait := 5 * time.Second
	if j.TimerHops > 0 {
		wait = 30 * time.Second
	}
	return min(wait, max(time.Second, p.opt.UnknownGrace))
}
