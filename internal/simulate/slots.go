package simulate

import (
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// How the daemon asks, by default.
const (
	quantum       = int64(25 * time.Millisecond / time.Microsecond)
	horizon       = 3 * quantum
	lateTolerance = int64(20 * time.Millisecond / time.Microsecond)
)

// slots reserves stretches of the campaign's timeline as the daemon does: every quantum it asks for the slots up to the horizon, and
// sends one job at each. Slots without a job are handed back.
type slots struct {
	store *model.Store
	ask   delivery.Ask
	held  []delivery.Grant // what is left of the grants, in order; none is empty
	count int64            // of the units in held
	askAt int64            // microseconds since the start
}

func newSlots(rate int64) limiter {
	return &slots{store: model.NewStore(), ask: delivery.Ask{
		Campaign: &delivery.Campaign{ID: campaignID, Rate: delivery.PerSecond(rate), PriorityWeight: 1},
		Horizon:  horizon, Quantum: quantum, LateTolerance: lateTolerance,
	}}
}

func (s *slots) take(now, want int64) (units, next int64) {
	if want == 0 {
		s.handBack(now)
		return 0, now
	}
	if now >= s.askAt {
		s.reserve(now, want)
	}
	for s.count > 0 && s.due() <= now {
		s.use()
		units++
	}
	if s.count == 0 {
		return units, s.askAt
	}
	return units, min(s.due(), s.askAt)
}

// due is when the first of the held slots is to be used.
func (s *slots) due() int64 { return s.held[0].First.Micros() - epoch }

// reserve asks for slots for the jobs that have none.
func (s *slots) reserve(now, want int64) {
	s.askAt = now + quantum
	s.ask.Want = want - s.count
	g := s.store.Take(epoch+now, node, []delivery.Ask{s.ask}).Items[0]
	if g.Units > 0 {
		s.held = append(s.held, g.Grant())
		s.count += g.Units
		s.ask.LastGranted = g.First.Advance(g.Units-1, g.Rate).Micros()
	}
	s.askAt = max(s.askAt, g.NextAt-epoch)
}

// use spends the first of the held slots.
func (s *slots) use() {
	g := &s.held[0]
	g.First, g.Units = g.First.Advance(1, g.Rate), g.Units-1
	s.count--
	if g.Units == 0 {
		s.held = s.held[1:]
	}
}

// handBack refunds what is held, the last grant first: slots become free again only at the end of the timeline.
func (s *slots) handBack(now int64) {
	slices.Reverse(s.held)
	s.store.Refund(epoch+now, s.held)
	s.held, s.count, s.ask.LastGranted, s.askAt = nil, 0, 0, now
}
