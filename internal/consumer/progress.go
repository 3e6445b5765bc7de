package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/consumer/offset"
	"github.com/pacer/pacer/internal/delivery"
)

// progress returns what to commit now; dirty is false if the last acknowledged commit contained the same.
func (s *source) progress() (p progress, dirty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || s.changes == s.acked {
		return progress{}, false
	}
	if p = s.now(); p.Trimmed {
		s.metrics.trimmed.Inc()
	}
	return p, true
}

// now returns the current progress. Needs the lock.
func (s *source) now() progress {
	p := s.position.Position()
	p.Metadata = offset.InTopic(p.Metadata, s.topic)
	if s.lane != nil && s.lane.TakeFreed() {
		s.wake.Send()
	}
	return progress{p, s.changes}
}

// answered records the outcome of a commit of p.
func (s *source) answered(p progress, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.commitFailures++
		if broker.Declined(err) {
			s.refusals++
		}
		s.commitAfter = time.Now().Add(commitBackoff.Delay(s.commitFailures))
	} else {
		s.commitFailures, s.refusals, s.commitAfter = 0, 0, time.Time{}
		s.acked, s.committed = max(s.acked, p.changes), p.Offset
	}
	signal(&s.onMove)
}

// pending reports whether there is something to commit that the broker has not refused again and again.
func (s *source) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.gone && s.changes != s.acked && s.refusals < lastAttempts
}

var errRefused = errors.New("the broker refuses it")

// flush waits until all changes so far are committed, or the source is gone. It returns an error when the broker refuses that again
// and again, or ctx ends.
func (s *source) flush(ctx context.Context) error {
	s.mu.Lock()
	target := s.changes
	for {
		if s.gone || s.acked >= target {
			s.mu.Unlock()
			return nil
		}
		refused, moved := s.refusals >= lastAttempts, waitOn(&s.onMove)
		s.mu.Unlock()
		if refused {
			return errRefused
		}
		s.kick()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
		s.mu.Lock()
	}
}

// storedPosition returns the position to be stored, which is that of the next commit; ok is false if the partition has left.
func (s *source) storedPosition() (p delivery.Position, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone {
		return delivery.Position{}, false
	}
	now := s.now()
	return delivery.Position{
		Topic: s.Topic, Partition: s.ID, Committed: now.Offset, Metadata: now.Metadata, TopicID: s.topic,
	}, true
}

// keep notes the position that was stored.
func (s *source) keep(stored int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored = stored
}

// lowWatermark returns the offset before which no later owner reads again, of a log of the topic; 0 for none.
func (s *source) lowWatermark(topic delivery.TopicID) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || topic != s.topic {
		return 0
	}
	return min(s.committed, s.stored)
}

// positionTimeout bounds one save or load of positions.
const positionTimeout = 5 * time.Second

// savePositions stores the positions of the last commit or of the next one: they are used only when the group has none.
func (t *assignment) savePositions(ctx context.Context) {
	var positions []delivery.Position
	var sources []*source // of the positions
	for _, s := range t.sources() {
		if leaving, _ := s.Revoked(); leaving && t.work.Err() == nil {
			continue // its next owner may save before this one has
		}
		if p, ok := s.storedPosition(); ok {
			sources, positions = append(sources, s), append(positions, p)
		}
	}
	if len(positions) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	if err := t.opt.Positions.SavePositions(ctx, t.opt.Group, positions); err != nil {
		if !errors.Is(err, context.Canceled) && t.saving.Failed() {
			t.opt.Logger.Warn("positions of lanes and timers cannot be saved; trying again", "error", err)
		}
		return
	}
	if _, over := t.saving.Worked(); over {
		t.opt.Logger.Info("positions of lanes and timers are saved again")
	}
	for i, s := range sources {
		s.keep(positions[i].Committed)
	}
}
