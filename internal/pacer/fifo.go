package pacer

import "github.com/pacer/pacer/internal/delivery"

// fifo is a double-ended queue of jobs in a ring that grows by doubling and shrinks when it empties. The zero
// value is empty and ready to use.
type fifo struct {
	ring []*delivery.Job // length is zero or a power of two
	head int
	n    int
}

func (f *fifo) len() int { return f.n }

// at is the i-th job from the front.
func (f *fifo) at(i int) *delivery.Job { return f.ring[(f.head+i)&(len(f.ring)-1)] }

func (f *fifo) pushBack(j *delivery.Job) {
	f.grow()
	f.ring[(f.head+f.n)&(len(f.ring)-1)] = j
	f.n++
}

func (f *fifo) pushFront(j *delivery.Job) {
	f.grow()
	f.head = (f.head - 1) & (len(f.ring) - 1)
	f.ring[f.head] = j
	f.n++
}

func (f *fifo) popFront() *delivery.Job {
	j := f.ring[f.head]
	f.ring[f.head] = nil
	f.head = (f.head + 1) & (len(f.ring) - 1)
	if f.n--; f.n == 0 {
		f.head = 0
		if len(f.ring) > 1024 {
			f.ring = nil
		}
	}
	return j
}

func (f *fifo) grow() {
	if f.n < len(f.ring) {
		return
	}
	ring := make([]*delivery.Job, max(8, 2*len(f.ring)))
	for i := range f.n {
		ring[i] = f.at(i)
	}
	f.ring, f.head = ring, 0
}

// filter keeps the jobs for which keep returns true, in order; keep is called once for each job with its position.
func (f *fifo) filter(keep func(i int, j *delivery.Job) bool) {
	kept := 0
	for i := range f.n {
		j := f.at(i)
		if keep(i, j) {
			f.ring[(f.head+kept)&(len(f.ring)-1)] = j
			kept++
		}
	}
	for i := kept; i < f.n; i++ {
		f.ring[(f.head+i)&(len(f.ring)-1)] = nil
	}
	f.n = kept
}
