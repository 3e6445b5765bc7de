package pacer

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Ranks of jobs. High priority goes first, then the jobs that have left the line of their destination. A job that has waited for its
// time, in a timer or here, should not wait again. Behind a full window of others it would be late, or go to the end of its campaign's
// lane. Such jobs take turns with the others, since many that keep failing must not block the rest.
const (
	rankAllowed  = iota // by its keys; it has been chosen
	rankAsked           // its keys are asked
	rankBound           // with slots, of which some may be those of a heavy job: nothing overtakes them, see bind
	rankHigh            // high priority
	rankLined           // from the line of a destination
	rankReturned        // from a timer, or tried before
	rankOther
	ranks
)

func rank(j *delivery.Job) int {
	switch {
	case j.Priority == delivery.PriorityHigh:
		return rankHigh
	case j.Returned:
		return rankLined
	case j.From == delivery.FromTimer, j.Attempt > 0, !j.Due.IsZero():
		return rankReturned
	}
	return rankOther
}

// ranked are the jobs of one campaign, which leave from the front, in the order of their ranks. It is pure; the zero value
// is empty.
type ranked struct {
	parts    [ranks]fifo[*delivery.Job]
	sums     [ranks]int64 // of the weights of the jobs in each part
	units    int64        // of weights of all jobs
	size     int64        // of memory that all jobs take
	heavy    int          // jobs with a weight above 1
	untried  int          // jobs that have used up no attempt
	retrying int          // jobs for which Job.Retrying holds
	direct   int          // jobs that were not read from a lane, and so must not stay open for long
	oldest   time.Time    // no job of those was read before
	returned bool         // the last job that left, of those that take turns, had returned
}

func (r *ranked) empty() bool { return r.len() == 0 }

func (r *ranked) len() (n int) {
	for i := range r.parts {
		n += r.parts[i].len()
	}
	return n
}

// chosen is how many jobs are not in the order of their ranks any more: their keys are asked, or allow them.
func (r *ranked) chosen() int { return r.parts[rankAllowed].len() + r.parts[rankAsked].len() }

// ahead is about the sum of the weights of the jobs that go before a new one of the rank.
func (r *ranked) ahead(rank int) int64 {
	switch first, returned := r.sums[rankAllowed]+r.sums[rankAsked]+r.sums[rankHigh]+r.sums[rankLined], r.sums[rankReturned]; rank {
	case rankHigh, rankLined:
		return first
	case rankReturned:
		return first + returned + min(returned, r.sums[rankOther])
	}
	return r.units
}

func (r *ranked) put(k int, j *delivery.Job) {
	r.parts[k].pushBack(j)
	r.count(k, j, 1)
}

// putFront puts back a job that was taken out before its time.
func (r *ranked) putFront(k int, j *delivery.Job) {
	r.parts[k].pushFront(j)
	r.count(k, j, 1)
}

// turn is the rank of the job that goes next after passed jobs of each rank have gone; returned reports whether the last of
// those that take turns had returned. There must be such a job.
func (r *ranked) turn(passed [ranks]int, returned bool) int {
	left := func(rank int) bool { return r.parts[rank].len() > passed[rank] }
	switch {
	case left(rankBound):
		return rankBound
	case left(rankHigh):
		return rankHigh
	case left(rankLined):
		return rankLined
	case !left(rankOther) || left(rankReturned) && !returned:
		return rankReturned
	}
	return rankOther
}

// head is the job that goes next of those that are not chosen; there must be one.
func (r *ranked) head() *delivery.Job { return r.parts[r.turn([ranks]int{}, r.returned)].at(0) }

// remove takes a job out that is sent now, or chosen.
func (r *ranked) remove(j *delivery.Job) {
	for _, k := range [...]int{rankAllowed, rankBound} {
		if part := &r.parts[k]; part.len() > 0 && part.at(0) == j {
			r.take(k, j)
			return
		}
	}
	r.take(rank(j), j)
}

func (r *ranked) take(k int, j *delivery.Job) {
	if part := &r.parts[k]; part.at(0) == j {
		part.popFront()
	} else {
		part.filter(func(_ int64, other *delivery.Job) bool { return other != j })
	}
	if k >= rankReturned {
		r.returned = k == rankReturned
	}
	r.count(k, j, -1)
}

// bind fixes the order of the jobs in front that have slots.
func (r *ranked) bind(slots int64) {
	slots -= r.sums[rankAllowed] + r.sums[rankAsked]
	for {
		var passed [ranks]int
		if passed[rankBound] = r.parts[rankBound].len(); r.len() == passed[rankBound]+r.chosen() {
			return
		}
		k := r.turn(passed, r.returned)
		j := r.parts[k].at(0)
		if r.sums[rankBound]+j.Weight > slots {
			return
		}
		r.remove(j)
		r.put(rankBound, j)
	}
}

func (r *ranked) count(k int, j *delivery.Job, sign int) {
	r.units += int64(sign) * j.Weight
	r.size += int64(sign) * j.Size
	r.sums[k] += int64(sign) * j.Weight
	if j.Weight > 1 {
		r.heavy += sign
	}
	if j.Attempt == 0 {
		r.untried += sign
	}
	if j.Retrying() {
		r.retrying += sign
	}
	if j.From == delivery.FromLane {
		return
	}
	if sign > 0 && (r.direct == 0 || j.ReadAt.Before(r.oldest)) {
		r.oldest = j.ReadAt
	}
	r.direct += sign
}

// filter keeps the jobs that keep approves, and those that are chosen: they go soon. ahead is the sum of the weights of the jobs that go before.
func (r *ranked) filter(keep func(ahead int64, j *delivery.Job) bool) {
	ahead := r.sums[rankAllowed] + r.sums[rankAsked]
	for k := rankBound; k < ranks; k++ {
		r.parts[k].filter(func(_ int64, j *delivery.Job) bool {
			ok := keep(ahead, j)
			ahead += j.Weight
			if !ok {
				r.count(k, j, -1)
			}
			return ok
		})
	}
}

// each calls f for the jobs that are not chosen, in their order of sending, if no others come, until f returns false.
func (r *ranked) each(f func(j *delivery.Job) bool) {
	var passed [ranks]int
	returned := r.returned
	for range r.len() - r.chosen() {
		k := r.turn(passed, returned)
		if !f(r.parts[k].at(passed[k])) {
			return
		}
		passed[k]++
		if k >= rankReturned {
			returned = k == rankReturned
		}
	}
}

// all calls f for the jobs that are chosen, and then as each does.
func (r *ranked) all(f func(j *delivery.Job) bool) {
	for k := rankAllowed; k <= rankAsked; k++ {
		for i := range r.parts[k].len() {
			if !f(r.parts[k].at(i)) {
				return
			}
		}
	}
	r.each(f)
}

// fifo is a double-ended queue in a ring that grows by doubling and shrinks when it empties. The zero
// value is empty and ready to use.
type fifo[T any] struct {
	ring []T // length is zero or a power of two
	head int
	n    int
}

func (f *fifo[T]) len() int { return f.n }

// at is the i-th job from the front.
func (f *fifo[T]) at(i int) T { return f.ring[(f.head+i)&(len(f.ring)-1)] }

func (f *fifo[T]) pushBack(item T) {
	f.grow()
	f.ring[(f.head+f.n)&(len(f.ring)-1)] = item
	f.n++
}

func (f *fifo[T]) pushFront(item T) {
	f.grow()
	f.head = (f.head - 1) & (len(f.ring) - 1)
	f.ring[f.head] = item
	f.n++
}

func (f *fifo[T]) popFront() T {
	item := f.ring[f.head]
	clear(f.ring[f.head : f.head+1])
	f.head = (f.head + 1) & (len(f.ring) - 1)
	if f.n--; f.n == 0 {
		f.head = 0
		if len(f.ring) > 1024 {
			f.ring = nil
		}
	}
	return item
}

func (f *fifo[T]) grow() {
	if f.n < len(f.ring) {
		return
	}
	ring := make([]T, max(8, 2*len(f.ring)))
	for i := range f.n {
		ring[i] = f.at(i)
	}
	f.ring, f.head = ring, 0
}

// filter keeps the items that keep approves, in order. keep is called once for each item, with its position.
func (f *fifo[T]) filter(keep func(i int64, item T) bool) {
	kept := 0
	for i := range f.n {
		item := f.at(i)
		if keep(int64(i), item) {
			f.ring[(f.head+kept)&(len(f.ring)-1)] = item
			kept++
		}
	}
	for i := kept; i < f.n; i++ {
		clear(f.ring[(f.head+i)&(len(f.ring)-1):][:1])
	}
	f.n = kept
}
