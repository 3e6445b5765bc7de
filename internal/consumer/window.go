package consumer

import (
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
)

// register opens the offset of a job, whose bytes are charged; false if it was settled before this generation, or is open.
func (s *source) register(j *delivery.Job) bool {
	is := seen(j)
	s.mu.Lock()
	back := j.Offset < s.window.End()
	fresh := s.window.Read(j.Offset, j.Size)
	if !fresh {
		s.changes++ // base may have moved over it
	} else if !back {
		s.tally.Read(is)
	}
	s.tally.Pass(s.window.End())
	s.mu.Unlock()
	if fresh {
		s.metrics.openJobs[s.from].Inc()
	}
	return fresh
}

// passed records that the log holds no more records before an offset.
func (s *source) passed(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.window.Pass(at) {
		s.changes++
	}
	s.tally.Pass(s.window.End())
}

// seen returns what a tally counts of a job that was just read.
func seen(j *delivery.Job) offset.Seen {
	s := offset.Seen{Offset: j.Offset, Campaign: delivery.CampaignHash(j.Campaign), Destination: inTimer(j), Retrying: j.Retrying()}
	switch due, why := j.ReadyAt(), delivery.Reason(j.Reason); {
	case why == delivery.ReasonKeyLine || why == delivery.ReasonNoZone: // it comes back to look again, not to be sent
		s.Due = delivery.DueUnknown
	case !due.IsZero():
		s.Due = due.UnixMicro()
	}
	return s
}

// inTimer returns the destination that a job of a timer names; "" of any other job: these wait for their campaigns.
func inTimer(j *delivery.Job) string {
	if j.From != delivery.FromTimer || j.FoundDestination() {
		return ""
	}
	return j.Destination
}

// reopen takes back the job at an offset, which is read again. It returns the bytes that were charged for it; 0 if it is not open.
func (s *source) reopen(at int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return 0
	}
	size, ok := s.window.GiveBack(at)
	if ok {
		s.metrics.openJobs[s.from].Dec()
		signal(&s.onMove)
	}
	return size
}

// lose settles an offset that was given back, if it is one, and that the log has lost.
func (s *source) lose(at int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.window.Settle(at); ok {
		s.changes++
	}
}

// isBack reports whether an offset before this one was given back.
func (s *source) isBack(before int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.IsBack(before)
}

// next returns the next offset to read.
func (s *source) next() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.window.Next()
}
