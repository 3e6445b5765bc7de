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
	save := time.NewTicker(k.opt.PositionInterval)
	defer save.Stop()
	for {
		select {
		case <-save.C:
			k.save(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// save stores the positions of the last commit or of the next one: they are used only when the group has none.
func (k *checkpointer) save(ctx context.Context) {
	held := k.sources()
	positions := make([]delivery.Position, 0, len(held))
	sources := make([]*source, 0, len(held)) // of the positions
	for _, s := range held {
		if p, ok := s.storedPosition(); ok {
			sources, positions = append(sources, s), append(positions, p)
		}
	}
	if len(positions) == 0 || k.store(ctx, positions) != nil || k.opt.Trim == nil {
		return
	}
	for i, s := range sources {
		if s.from == delivery.FromIngress { // its records are not pacer's to delete
			continue
		}
		if before, ok := s.lowWatermark(positions[i].Committed); ok {
			k.opt.Trim(s.partition, positions[i].TopicID, before)
		}
	}
}

// store saves positions.
func (k *checkpointer) store(ctx context.Context, positions []delivery.Position) error {
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	err := k.opt.Positions.SavePositions(ctx, k.opt.Group, positions)
	if errors.Is(err, context.Canceled) {
		return err
	}
	if err == nil {
		if _, over := k.saving.Worked(); over {
			k.opt.Logger.Info("positions of lanes and timers are saved again")
		}
	} else if k.saving.Failed() {
		k.opt.Logger.Warn("positions of lanes and timers cannot be saved; trying again", "error", err)
	}
	return err
}
