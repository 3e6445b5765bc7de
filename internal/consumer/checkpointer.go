package consumer

import (
	"context"
	"errors"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// positionTimeout bounds one save or load of positions.
const positionTimeout = 5 * time.Second

// checkpointer saves the positions of lanes and timers. One goroutine runs it.
type checkpointer struct {
	opt     *Options
	sources func() []*source

	saving retry.Outage
}

// run works until ctx ends.
func (k *checkpointer) run(ctx context.Context) {
	retry.Every(ctx, k.opt.PositionInterval, func(time.Time) { k.save(ctx) })
}

// save stores the positions of the last commit or of the next one: they are used only when the group has none.
func (k *checkpointer) save(ctx context.Context) {
	var positions []delivery.Position
	var sources []*source // of the positions
	for _, s := range k.sources() {
		if p, ok := s.storedPosition(); ok {
			sources, positions = append(sources, s), append(positions, p)
		}
	}
	if len(positions) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	if err := k.opt.Positions.SavePositions(ctx, k.opt.Group, positions); err != nil {
		if !errors.Is(err, context.Canceled) && k.saving.Failed() {
			k.opt.Logger.Warn("positions of lanes and timers cannot be saved; trying again", "error", err)
		}
		return
	}
	if _, over := k.saving.Worked(); over {
		k.opt.Logger.Info("positions of lanes and timers are saved again")
	}
	for i, s := range sources {
		s.keep(positions[i].Committed)
	}
}
