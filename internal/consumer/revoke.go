package consumer

import "context"

// The stages of a partition.
const (
	staying int32 = iota
	leaves        // it is about to move to another daemon
	hasLeft       // it is not this daemon's any more
)

// Revoked implements delivery.Source.
func (s *source) Revoked() (leaving, left bool) {
	stage := s.stage.Load()
	return stage == leaves, stage == hasLeft
}

// revoke begins to let go of the partition: its reader has to end, and who has jobs of it in hand finishes them or gives them back.
func (s *source) revoke() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stage.Store(leaves)
}

// awaitInFlight waits until no jobs of a revoked partition are in flight, or ctx ends. It returns how many are left.
func (s *source) awaitInFlight(ctx context.Context) (jobs int) {
	for {
		s.mu.Lock()
		jobs = s.position.Open()
		moved := waitOn(&s.onMove)
		s.mu.Unlock()
		if jobs == 0 {
			return 0
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return jobs
		}
	}
}

// leave marks the source as gone: it forgets its open offsets and returns their bytes to the budget.
func (s *source) leave() {
	s.mu.Lock()
	s.stage.Store(hasLeft)
	s.mu.Unlock()
	s.forget()
}

// forget is leave for a log that is gone itself: who has jobs of it in hand goes on with them.
func (s *source) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone {
		s.metrics.openJobs[s.from].Sub(float64(s.position.Open()))
		s.budget.charge(-s.position.OpenBytes())
	}
	s.gone = true
	s.repeats.Forget()
	signal(&s.onMove)
}
