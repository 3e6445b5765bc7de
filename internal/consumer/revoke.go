package consumer

import "context"

// The stages of a partition.
const (
	staying int32 = iota
	leaves        // it is about to move to another daemon
	hasLeft       // it is not this daemon's any more
)

// left reports whether the partition is not this daemon's any more.
func (s *source) left() bool { return s.stage.Load() == hasLeft }

// revoke begins to let go of the partition: its reader has to end, and who has jobs of it in hand finishes or drops them.
func (s *source) revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage.Store(leaves)
}

// Revoked reports whether the partition is about to move to another daemon, so that its jobs must not be begun any more, and whether
// it has.
func (s *source) Revoked() (leaving, left bool) {
	stage := s.stage.Load()
	return stage == leaves, stage == hasLeft
}

// dropOf notes that nobody has a job any more that was read in an era, and was not settled: it stays open for the next owner of
// the partition.
func (s *source) dropOf(at int64, era int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stage.Load() == leaves && !s.forgotten(at, era) {
		s.dropped++
		signal(&s.onMove)
	}
}

// awaitInFlight waits until nobody has jobs of a revoked partition in hand, or ctx ends, and returns how many they are then.
func (s *source) awaitInFlight(ctx context.Context) (jobs int) {
	for {
		s.mu.Lock()
		jobs = s.position.Open() - s.dropped
		moved := waitOn(&s.onMove)
		s.mu.Unlock()
		if jobs <= 0 {
			return 0
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return jobs
		}
	}
}
