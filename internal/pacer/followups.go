package pacer

import (
	"maps"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// followUps are the jobs of one sink in this daemon's memory whose request has begun and has a further step that may be made
// now. They need no slots, and have a ceiling of their own; campaigns take turns. It is pure; times are local ones, in microseconds. Make one with newFollowUps.
//
// Memory holds few of them: what cannot be sent soon waits in timers. While there is more to do than the ceiling allows, each job gets a
// time behind all times given before (see book). So all make progress, and no job comes back in vain.
type followUps struct {
	gap  int64 // between two calls
	next int64 // when the next call may be made

	order []*queue // those with steps; the first goes next
	ready int      // jobs
	size  int64    // their memory

	booked map[string]int64 // the last time that a job of a campaign in a timer was told to come back

	last bool // the call that came free last went to one of them
}

const (
	// defaultFollowUps is the ceiling of a sink that has none, in calls a second.
	defaultFollowUps = 100
	// followUpSlack is by how much calls may come closer, for a daemon that was late.
	followUpSlack = 20 * time.Millisecond
	// maxBooked bounds how far ahead a job is told to come back for the sake of others.
	maxBooked = time.Hour
)

func newFollowUps(perSecond int) followUps {
	if perSecond <= 0 {
		perSecond = defaultFollowUps
	}
	return followUps{gap: 1_000_000 / int64(perSecond), booked: map[string]int64{}}
}

func (f *followUps) push(q *queue, j *delivery.Job) {
	if q.steps.len() == 0 {
		f.order = append(f.order, q)
	}
	q.steps.pushBack(j)
	f.ready++
	f.size += j.Size
}

// turnOf is about when a further job of the campaign would be sent.
func (f *followUps) turnOf(q *queue, now int64) int64 {
	return max(f.next, now) + int64(min(f.ready, q.steps.len()*len(f.order)))*f.gap
}

// book returns when a job that waits in a timer until at should come back: at, or behind all jobs booked before if there are more than
// the ceiling allows. late: it has to make room now.
func (f *followUps) book(q *queue, at int64, late bool, now int64) int64 {
	booked := f.booked[q.id]
	if !late && booked <= at {
		return at
	}
	f.booked[q.id] = booked // it counts among those that share the ceiling
	booked = max(booked, f.turnOf(q, now)) + f.gap*int64(max(len(f.booked), len(f.order)))
	f.booked[q.id] = min(booked, now+maxBooked.Microseconds())
	return max(at, f.booked[q.id])
}

// nextJob takes out the job that goes at now, of a campaign that may send; nil if none may, and then the next call is tried a
// little later.
func (f *followUps) nextJob(now int64, may func(*queue) bool) *delivery.Job {
	if f.ready == 0 || f.next > now {
		return nil
	}
	for range f.order {
		q := f.order[0]
		f.order = append(f.order[:0], f.order[1:]...)
		if !may(q) {
			f.order = append(f.order, q)
			continue
		}
		j := q.steps.popFront()
		f.ready--
		f.size -= j.Size
		if q.steps.len() > 0 {
			f.order = append(f.order, q)
		}
		f.next = max(f.next, now-followUpSlack.Microseconds()) + f.gap
		return j
	}
	f.next = now + followUpSlack.Microseconds()
	return nil
}

func (f *followUps) filter(keep func(before int64, j *delivery.Job) bool) {
	order := f.order
	f.order, f.ready, f.size = nil, 0, 0
	for _, q := range order {
		q.steps.filter(func(i int64, j *delivery.Job) bool {
			ok := keep(i, j)
			if ok {
				f.ready, f.size = f.ready+1, f.size+j.Size
			}
			return ok
		})
		if q.steps.len() > 0 {
			f.order = append(f.order, q)
		}
	}
}

// forget drops the times that have passed.
func (f *followUps) forget(now int64) {
	maps.DeleteFunc(f.booked, func(_ string, at int64) bool { return at <= now })
}
