package consumer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// positionTimeout bounds one save or load of positions, and one call of Lanes.Drained.
const positionTimeout = 5 * time.Second

// start is where a partition is to be read from.
type start struct {
	offset    int64
	metadata  string
	committed bool // by the group
}

// startFinder finds out where the partitions of a generation are to be read from: the group's committed offsets; for
// lanes and timers without one, because a group's offsets expire, the positions kept elsewhere; and the earliest record
// where there is neither.
type startFinder struct {
	*shared
	opt *Options
}

// find answers for every partition. It retries until it can, or returns the error of the context: an offset that
// cannot be had for the moment is not the same as none.
func (f *startFinder) find(ctx context.Context, partitions []partition) (map[partition]start, error) {
	var wait backoff
	for {
		starts, err := f.try(ctx, partitions)
		if err == nil {
			f.health.ok("offsets")
			return starts, nil
		}
		if ctx.Err() == nil {
			f.health.fail("offsets", err)
		}
		if err = wait.pause(ctx); err != nil {
			f.health.forget("offsets")
			return nil, err
		}
	}
}

func (f *startFinder) try(ctx context.Context, partitions []partition) (map[partition]start, error) {
	starts, err := f.committed(ctx, partitions)
	if err != nil {
		return nil, err
	}
	var missing []partition
	for _, at := range partitions {
		if _, ok := starts[at]; !ok {
			missing = append(missing, at)
		}
	}
	if err = f.kept(ctx, missing, starts); err != nil {
		return nil, err
	}
	for _, at := range missing {
		if _, ok := starts[at]; ok {
			continue
		}
		first, _, err := f.bounds(ctx, at)
		if err != nil {
			return nil, err
		}
		starts[at] = start{offset: first}
	}
	return starts, nil
}

// committed asks the group's coordinator.
func (f *startFinder) committed(ctx context.Context, partitions []partition) (map[partition]start, error) {
	starts := make(map[partition]start, len(partitions))
	if len(partitions) == 0 {
		return starts, nil
	}
	ctx, cancel := context.WithTimeout(ctx, fetchGrace)
	defer cancel()
	topics := map[string][]int{}
	for _, at := range partitions {
		topics[at.topic] = append(topics[at.topic], at.id)
	}
	answer, err := f.client.OffsetFetch(ctx, &kafka.OffsetFetchRequest{GroupID: f.opt.Group, Topics: topics})
	if err != nil {
		return nil, fmt.Errorf("fetch offsets of group %s: %w", f.opt.Group, err)
	}
	if answer.Error != nil {
		return nil, fmt.Errorf("fetch offsets of group %s: %w", f.opt.Group, answer.Error)
	}
	answered := 0
	for topic, list := range answer.Topics {
		for _, p := range list {
			if p.Error != nil {
				return nil, fmt.Errorf("fetch offset of %s/%d: %w", topic, p.Partition, p.Error)
			}
			answered++
			if p.CommittedOffset >= 0 {
				starts[partition{topic, p.Partition}] = start{p.CommittedOffset, p.Metadata, true}
			}
		}
	}
	if answered < len(partitions) {
		return nil, errors.New("the coordinator has not answered for every partition")
	}
	return starts, nil
}

// kept fills in the lanes and timers that are missing from the positions kept elsewhere.
func (f *startFinder) kept(ctx context.Context, missing []partition, starts map[partition]start) error {
	wanted := map[partition]bool{}
	for _, at := range missing {
		if place, _ := f.opt.place(at.topic); place != delivery.FromIngress {
			wanted[at] = true
		}
	}
	if f.opt.Positions == nil || len(wanted) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	positions, err := f.opt.Positions.LoadPositions(ctx, f.opt.Group)
	if err != nil {
		return fmt.Errorf("load positions of lanes and timers: %w", err)
	}
	for _, p := range positions {
		at := partition{p.Topic, p.Partition}
		if !wanted[at] || p.Committed < 0 {
			continue
		}
		if p.Committed > 0 { // at 0 nothing was lost: nobody has ever committed anything there
			f.log.Warn("the group has no offset for a partition; going on from the position kept in the catalog",
				"partition", at.String(), "offset", p.Committed)
		}
		starts[at] = start{offset: p.Committed, metadata: p.Metadata}
	}
	return nil
}

// keeper saves the positions of lanes and timers, and tells Lanes which campaigns are drained. One goroutine per
// generation runs it.
type keeper struct {
	opt     *Options
	log     *slog.Logger
	sources []positioned
	lanes   []*laneSource
	passed  *passage

	failing bool // saving fails; said once
}

// positioned is a lane or a timer as the keeper sees it.
type positioned interface {
	tracked
	// kept is what to commit now, and about how many jobs wait.
	kept() (p progress, backlog int64)
}

// run works until ctx ends.
func (k *keeper) run(ctx context.Context) {
	save := time.NewTicker(k.opt.PositionInterval)
	defer save.Stop()
	look := time.NewTicker(time.Second)
	defer look.Stop()
	pins := time.NewTicker(pinsEvery)
	defer pins.Stop()
	for {
		select {
		case <-save.C:
			k.save(ctx)
		case now := <-look.C:
			k.drained(ctx, now)
		case <-pins.C:
			k.pinned(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// save keeps the positions as they were last committed, or would be next: they are used only when the group has none.
func (k *keeper) save(ctx context.Context) {
	positions := make([]delivery.Position, 0, len(k.sources))
	for _, s := range k.sources {
		at := s.where()
		p, backlog := s.kept()
		positions = append(positions, delivery.Position{
			Topic: at.topic, Partition: at.id, Committed: p.offset, Metadata: p.metadata, Backlog: backlog,
		})
	}
	if len(positions) == 0 || k.store(ctx, positions) != nil {
		return
	}
	for _, p := range positions {
		k.passed.kept(partition{p.Topic, p.Partition}, p.Committed)
	}
}

// store saves positions, where that is wanted.
func (k *keeper) store(ctx context.Context, positions []delivery.Position) error {
	if k.opt.Positions == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	err := k.opt.Positions.SavePositions(ctx, k.opt.Group, positions)
	switch {
	case err != nil && !k.failing && !errors.Is(err, context.Canceled):
		k.failing = true
		k.log.Warn("positions of lanes and timers cannot be saved; trying again", "error", err)
	case err == nil && k.failing:
		k.failing = false
		k.log.Info("positions of lanes and timers are saved again")
	}
	return err
}

// drained tells about campaigns whose lane has next to nothing left of them. Where
// telling fails, it is tried again in a while.
func (k *keeper) drained(ctx context.Context, now time.Time) {
	if k.opt.Lanes == nil {
		return
	}
	for _, lane := range k.lanes {
		for _, id := range lane.drained(now, k.opt.SendRate) {
			call, cancel := context.WithTimeout(ctx, positionTimeout)
			err := k.opt.Lanes.Drained(call, id, lane.id)
			cancel()
			if err != nil {
				k.log.Debug("a drained lane was not noted", "campaign", id, "error", err)
				lane.again(id)
			}
		}
	}
}

const (
	// pinsEvery is how often pins are compared with what their lanes hold.
	pinsEvery = time.Minute
	// oldPin is for how long a pin stands though nothing has come: who asked for it may be about to write.
	oldPin = 10 * time.Minute
)

// pinned has the lanes look after the campaigns that are pinned to them and have had no job since the generation began:
// nothing was written after the lane was asked for, or the backlog went while nobody looked.
func (k *keeper) pinned(ctx context.Context) {
	if k.opt.Lanes == nil || len(k.lanes) == 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	pins, err := k.opt.Lanes.Pinned(call, oldPin)
	if err != nil {
		k.log.Debug("the pins of lanes cannot be read; trying again in a minute", "error", err)
		return
	}
	byID := make(map[int]*laneSource, len(k.lanes))
	for _, lane := range k.lanes {
		byID[lane.id] = lane
	}
	for campaign, id := range pins {
		if lane := byID[id]; lane != nil {
			lane.expect(campaign)
		}
	}
}
