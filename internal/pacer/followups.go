package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// followUps are the jobs of one sink in this daemon's memory whose request has begun and has a further step that may be made
// now. They need no slots, and have a ceiling of their own; campaigns take turns. It is pure; times are local ones, in microseconds. Make one with newFollowUps.
//
// Memory holds few of them: what cannot be sent soon waits in timers. While there is more to do than the ceiling allows, each
// job that has to come back is told a time behind all that were told one before (see book), so that all make progress, and
// none comes back in vain.
type followUps struct {
	gap   int64 // between two calls
	slack int64 // by how much calls may come closer, for a daemon that was late
	next  int64 // when the next call may be made

	lines map[string]*stepLine
	order []*stepLine // those with jobs; the first goes next
	ready int         // jobs
	size  int64       // their memory

	last bool // the call that came free last went to one of them
}

// stepLine is what followUps know of one campaign.
type stepLine struct {
	campaign string
	jobs     fifo
	booked   int64 // the last time that a job in a timer was told to come back
}

const (
	// defaultFollowUps is the ceiling of a sink that has none, in calls a second.
	defaultFollowUps = 100
	followUpSlack    = 20 * time.Millisecond
	// maxBooked bounds how far ahead a job is told to come back for the sake of others.
	maxBooked = time.Hour
)

func newFollowUps(perSecond int) followUps {
	if perSecond <= 0 {
		perSecond = defaultFollowUps
	}
	return followUps{gap: 1_000_000 / int64(perSecond), slack: followUpSlack.Microseconds(), lines: map[string]*stepLine{}}
}

// has reports whether there are jobs of a campaign whose turn may come.
func (f *followUps) has(campaign string) bool {
	l := f.lines[campaign]
	return l != nil && l.jobs.len() > 0
}

// line returns the campaign's line, made if it is missing.
func (f *followUps) line(campaign string) *stepLine {
	l := f.lines[campaign]
	if l == nil {
		l = &stepLine{campaign: campaign}
		f.lines[campaign] = l
	}
	return l
}

// push adds a job whose turn may come.
func (f *followUps) push(j *delivery.Job) {
	l := f.line(j.Campaign)
	if l.jobs.len() == 0 {
		f.order = append(f.order, l)
	}
	l.jobs.pushBack(j)
	f.ready++
	f.size += j.Size
}

// turnOf is about when a further job of the campaign would be sent.
func (f *followUps) turnOf(campaign string, now int64) int64 {
	lines, own := len(f.order), 0
	if l := f.lines[campaign]; l != nil && l.jobs.len() > 0 {
		own = l.jobs.len()
	} else {
		lines++
	}
	return max(f.next, now) + int64(min(f.ready, own*lines))*f.gap
}

// book is when a job of the campaign that waits in a timer until at should come back: then, or behind all that were told to
// come back before, if there are more than the ceiling allows. late says that it has to make room now.
func (f *followUps) book(campaign string, at int64, late bool, now int64) int64 {
	l := f.line(campaign)
	if !late && l.booked <= at {
		return at
	}
	sharing := int64(0) // campaigns that have jobs in line, or told to come back
	for _, other := range f.lines {
		if other.booked > now || other.jobs.len() > 0 || other == l {
			sharing++
		}
	}
	l.booked = min(max(l.booked, f.turnOf(campaign, now))+f.gap*sharing, now+maxBooked.Microseconds())
	return max(at, l.booked)
}

// nextJob takes out the job that goes at now, of a campaign that may send; nil if none may, and then the next call is tried a
// little later.
func (f *followUps) nextJob(now int64, may func(campaign string) bool) *delivery.Job {
	if f.ready == 0 || f.next > now {
		return nil
	}
	for range f.order {
		l := f.order[0]
		f.order = append(f.order[:0], f.order[1:]...)
		if !may(l.campaign) {
			f.order = append(f.order, l)
			continue
		}
		j := l.jobs.popFront()
		f.ready--
		f.size -= j.Size
		if l.jobs.len() > 0 {
			f.order = append(f.order, l)
		}
		f.next = max(f.next, now-f.slack) + f.gap
		return j
	}
	f.next = now + f.slack
	return nil
}

// filter keeps the jobs for which keep returns true.
func (f *followUps) filter(keep func(before int64, j *delivery.Job) bool) {
	order := f.order
	f.order, f.ready, f.size = nil, 0, 0
	for _, l := range order {
		l.jobs.filter(func(i int64, j *delivery.Job) bool {
			ok := keep(i, j)
			if ok {
				f.ready, f.size = f.ready+1, f.size+j.Size
			}
			return ok
		})
		if l.jobs.len() > 0 {
			f.order = append(f.order, l)
		}
	}
}

// forget drops what is known of campaigns that have no jobs here, in memory or told to come back.
func (f *followUps) forget(now int64) {
	for id, l := range f.lines {
		if l.jobs.len() == 0 && l.booked <= now {
			delete(f.lines, id)
		}
	}
}
