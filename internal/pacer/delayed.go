package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// delayedJobs are the jobs in memory that wait for a time: after a short back-off, for a not-before, or for their next step. The zero value
// is empty.
type delayedJobs struct {
	waits timeHeap[*delivery.Job] // by local time
	steps int64                   // memory of those whose request has begun
}

func (a *delayedJobs) push(j *delivery.Job, at int64) {
	a.waits.push(j, at)
	a.count(j, 1)
}

func (a *delayedJobs) count(j *delivery.Job, sign int64) {
	if j.State != nil {
		a.steps += sign * j.Size
	}
}

// due takes out a job whose time has come; nil if there is none.
func (a *delayedJobs) due(now int64) *delivery.Job {
	if a.waits.len() == 0 || a.waits.first().at > now {
		return nil
	}
	j := a.waits.pop()
	a.count(j, -1)
	return j
}

func (a *delayedJobs) filter(keep func(before int64, j *delivery.Job) bool) {
	entries := a.waits.entries
	*a = delayedJobs{}
	for i, e := range entries {
		if keep(int64(i), e.item) {
			a.push(e.item, e.at)
		}
	}
}

// wait returns where a job waits for its time: in memory if that is near, in a timer if not.
func (p *placing) wait(j *delivery.Job, why delivery.Reason, due time.Time, now instant) placement {
	long := j.From == delivery.FromLane && j.Destination != "" && p.campaigns.overdue(j, p.opt.MaxOpenAge, now) // the lane would wait for one destination
	if due.Sub(now.wall) >= p.opt.MaxOpenAge || long {
		return toTimer(why, due)
	}
	return placement{where: delayed, Reroute: delivery.Reroute{Due: due}}
}

// giveBack handles a job that was accepted and lost its place, usually since its campaign may not send. Its lane or its ingress
// partition takes it back; one that has used up attempts meanwhile is written once more, since the record there does not know of them.
// Several jobs are given back last first.
func (p *Pacer) giveBack(j *delivery.Job, now instant) {
	if e := p.campaign(j.Campaign, now); e != nil && tried(j) {
		p.carryOut(j, relayed(j, e.campaign, now), now)
	} else {
		j.Source.Release(j.Offset)
	}
}

// tried reports whether the job has used up attempts here, of which its record does not know.
func tried(j *delivery.Job) bool { return j.Attempt > 0 && !j.Call.At.IsZero() }
