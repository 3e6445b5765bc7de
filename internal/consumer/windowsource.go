package consumer

import (
	"time"

	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
)

// windowSource is one partition of ingress or of a timer.
type windowSource struct {
	source

	// The lock of source guards everything below.
	window *offset.Window // the position of source
	onRoom chan struct{}  // closed and set to nil when room is granted; nil while no goroutine listens
	ages   ages
}

// windowReceipt is what jobs of a timer see.
type windowReceipt struct {
	*windowSource
	era int
}

// Settle implements delivery.Receipt.
func (e windowReceipt) Settle(job *delivery.Job, _ delivery.Outcome) { e.settle(job.Offset, e.era) }

// Drop implements entrance.
func (e windowReceipt) Drop(offset int64) { e.dropOf(offset, e.era) }

// ingressReceipt is what jobs of ingress see, where they may stay until there is room for them.
type ingressReceipt struct{ windowReceipt }

// GrantCapacity reports that there is room for jobs that their campaign keeps in ingress.
func (e ingressReceipt) GrantCapacity(string, int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	signal(&e.onRoom)
}

// Release gives back the job at offset, with its bytes: it is read again.
func (e ingressReceipt) Release(_ string, offset int64) { e.budget.charge(-e.giveBack(offset, e.era)) }

var (
	_ receipt = ingressReceipt{}
	_ placed  = (*windowSource)(nil)
)

func newWindowSource(at partition, from delivery.Place, w *offset.Window, b *budget, m *metrics, kick func()) *windowSource {
	s := &windowSource{window: w}
	s.partition, s.from, s.budget, s.metrics, s.kick, s.position = at, from, b.of(from), m, kick, w
	return s
}

func (s *windowSource) place(from start) error {
	w, err := offset.RestoreWindow(from.offset, from.metadata)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.placedAt(from)
	s.window, s.position = w, w
	s.ages.forget()
	return err
}

// register opens the offset of a job, whose bytes are charged; false if it was settled before this generation, or is open.
func (s *windowSource) register(at, size int64) bool {
	s.mu.Lock()
	fresh := s.window.Read(at, size)
	if !fresh {
		s.commits.Changed() // base may have moved over it
	}
	s.mu.Unlock()
	if fresh {
		s.metrics.openJobs[s.from].Inc()
	}
	return fresh
}

// passed records that the log holds no more records before an offset.
func (s *windowSource) passed(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.window.Pass(at) {
		s.commits.Changed()
	}
}

// giveBack takes back the job at an offset that was read in an era. It returns the bytes that were charged for it; 0 if it is not open.
func (s *windowSource) giveBack(at int64, era int) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.left() || s.forgotten(at, era) {
		return 0
	}
	size, ok := s.window.GiveBack(at)
	if ok {
		s.metrics.openJobs[s.from].Dec()
		signal(&s.onMove)
	}
	return size
}

// isBack reports whether an offset before this one was given back.
func (s *windowSource) isBack(before int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.IsBack(before)
}

// next returns the next offset to read.
func (s *windowSource) next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.Next()
}

// listen returns a channel that is closed at the next grant of room. A reader that listens before an offer misses no
// grant.
func (s *windowSource) listen() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return waitOn(&s.onRoom)
}

// isFull reports whether the window is three quarters full, or has no room for the offsets. It returns the offset that
// will be committed.
func (s *windowSource) isFull(maxOpen int, offsets []int64) (base int64, is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.Base(), s.window.Fill(maxOpen) >= 0.75 || !s.window.HasCapacity(maxOpen, offsets...)
}

// middle returns an offset before which there is the older half of the open ones. It looks at all of them.
func (s *windowSource) middle() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.Middle()
}

// waits implements surveyed.
func (s *windowSource) waits() (w waits, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.first, w.next = s.window.Base(), s.window.Base()+s.window.Width()
	if w.first < w.next {
		w.since, _ = s.ages.at(w.first)
	}
	return w, !s.unplaced
}

// dated implements surveyed.
func (s *windowSource) dated(offset int64, at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ages.note(offset, at)
}
