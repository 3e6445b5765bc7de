package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// positionTimeout bounds one save or load of positions.
const positionTimeout = 5 * time.Second

// savePositions stores the positions of the last commit or of the next one: they are used only when the group has none.
func (t *assignment) savePositions(ctx context.Context) {
	var positions []delivery.Position
	var sources []*source // of the positions
	for _, s := range t.sources() {
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
