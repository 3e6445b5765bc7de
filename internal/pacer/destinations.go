package pacer

import (
	"cmp"
	"container/list"
	"iter"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
)

// maxDestinations is how many destinations a daemon remembers that have no call in flight and no job waiting here.
const maxDestinations = 10_000

// destinationKey names a destination of a sink.
type destinationKey struct{ sink, name string }

// destination is one destination of a sink in this daemon: its circuit breaker, its calls, and the jobs that wait for it here.
type destination struct {
	destinationKey
	breaker
	flow
	line     line  // jobs that wait for it in memory
	returned int   // jobs that have left the line, and for which it waits
	turnAt   int64 // local time when one more job in a timer could have its turn, while it is busy

	at         *sinkState
	set        DestinationLimits // as last seen
	absentHold int               // refusals that hold it if nothing is there, as many as fall to this daemon
	renewedAt  int64             // local time when that changed; what was sent before says nothing of it

	index int           // in the heap of looks, -1 when not there
	idler *list.Element // in of, the list of those that are idle; nil when it is in none
	of    *list.List
}

// shut reports whether its breaker is open or half-open, so that not all of its jobs may be sent.
func (d *destination) shut(now int64) bool { return d.tripped || d.open(now) }

// idle reports whether nothing here needs it but what is known of it.
func (d *destination) idle() bool { return d.calls.inFlight == 0 && d.line.len() == 0 }

// busy takes it out of the list of those that are idle.
func (d *destination) busy() {
	if d.idler != nil {
		d.of.Remove(d.idler)
		d.idler = nil
	}
}

// destinations are those destinations that have had jobs here lately. Keys come from jobs, so their number is bounded. Destinations
// without calls and jobs here are forgotten, first those that work, and of each kind those used longest ago. It is pure; use
// newDestinations.
type destinations struct {
	byKey   map[destinationKey]*destination
	most    int
	checks  timeHeap[*destination] // by when there is something to do for them
	fine    list.List              // without calls and jobs here, of which nothing is known; in the order in which they became idle
	bad     list.List              // without calls and jobs here, of which something is
	waiting *waiting               // in all lines
	keeps   map[string]keeper      // by campaign, one that takes no jobs
}

// keeper is a destination that takes no jobs, and the local time when a job of the campaign was last found to wait for it.
type keeper struct {
	*destination
	at     int64
	absent bool // it has no row
}

func newDestinations(most int) destinations {
	return destinations{
		byKey: map[destinationKey]*destination{}, most: most, keeps: map[string]keeper{}, waiting: &waiting{},
		checks: timeHeap[*destination]{index: func(d *destination) *int { return &d.index }},
	}
}

// get returns a destination, which is made if it is not known. The caller calls note when it has changed it.
func (l *destinations) get(key destinationKey) *destination {
	d := l.byKey[key]
	if d == nil {
		key.name = strings.Clone(key.name) // of the memory of a job
		d = &destination{destinationKey: key, index: -1, line: line{all: l.waiting}}
		l.byKey[key] = d
		l.trim(l.most - 1)
		d.of = &l.fine
		d.idler = d.of.PushBack(d)
	}
	return d
}

// trim forgets idle destinations if there are more.
func (l *destinations) trim(most int) {
	for l.fine.Len()+l.bad.Len() > most {
		l.forget(cmp.Or(l.fine.Front(), l.bad.Front()).Value.(*destination))
	}
}

// note brings the lists to what has become of a destination, and forgets others if they are too many. A destination that
// has no calls and no jobs here may be forgotten by this itself.
func (l *destinations) note(d *destination, now int64) {
	d.busy()
	if d.open(now) {
		l.checkAt(d, d.openUntil)
	}
	if !d.idle() {
		return
	}
	d.line.fifo = fifo[*delivery.Job]{} // many may be remembered
	if d.of = &l.fine; d.troubled(now) {
		d.of = &l.bad
	}
	d.idler = d.of.PushBack(d)
	l.trim(l.most)
}

// checkAt makes sure that the destination is looked at by then.
func (l *destinations) checkAt(d *destination, at int64) {
	if d.index < 0 || l.checks.entries[d.index].at > at {
		l.checks.set(d, at)
	}
}

// due returns the next destination to be looked at now, nil for none, and takes it out of those to be looked at.
func (l *destinations) due(now int64) *destination {
	if l.checks.len() == 0 || l.checks.first().at > now {
		return nil
	}
	return l.checks.pop()
}

// shut is how many destinations of a sink are. It visits all destinations.
func (l *destinations) shut(sink string, now int64) (n int) {
	for key, d := range l.byKey {
		if key.sink == sink && d.shut(now) {
			n++
		}
	}
	return n
}

func (l *destinations) forget(d *destination) {
	d.busy()
	l.checks.remove(d)
	delete(l.byKey, d.destinationKey)
}

// waiting is how many jobs wait in lines, and their memory.
type waiting struct {
	jobs  int
	bytes int64
}

// line are the jobs in memory that wait for a destination.
type line struct {
	fifo[*delivery.Job]
	all *waiting
}

func (l *line) push(j *delivery.Job, front bool) {
	if front {
		l.pushFront(j)
	} else {
		l.pushBack(j)
	}
	l.all.jobs, l.all.bytes = l.all.jobs+1, l.all.bytes+j.Size
}

func (l *line) filter(keep func(i int64, j *delivery.Job) bool) {
	l.fifo.filter(func(i int64, j *delivery.Job) bool {
		ok := keep(i, j)
		if !ok {
			l.left(j)
		}
		return ok
	})
}

func (l *line) left(j *delivery.Job) {
	l.all.jobs, l.all.bytes = l.all.jobs-1, l.all.bytes-j.Size
}

// pop takes out the first job of a line, which must not be empty, or that with the fewest attempts.
func (l *line) pop(fewest bool) *delivery.Job {
	next := l.at(0)
	for i := 0; fewest && i < l.len(); i++ {
		if j := l.at(i); j.Attempt < next.Attempt {
			next = j
		}
	}
	if next == l.at(0) {
		l.popFront()
		l.left(next)
	} else {
		l.filter(func(_ int64, j *delivery.Job) bool { return j != next })
	}
	return next
}

// lines yields the destinations with jobs that wait here. It visits all destinations if there are such jobs.
func (l *destinations) lines() iter.Seq[*destination] {
	return func(yield func(*destination) bool) {
		if l.waiting.jobs == 0 {
			return
		}
		for _, d := range l.byKey {
			if d.line.len() > 0 && !yield(d) {
				return
			}
		}
	}
}
