package consumer

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// positionTimeout bounds one save or load of positions, and one call of Lanes.Drained.
const positionTimeout = 5 * time.Second

// checkpointer saves the positions of lanes and timers, and tells Lanes which campaigns are drained. One goroutine runs
// it.
type checkpointer struct {
	opt     *Options
	sources func() []*source
	lanes   func() []*laneSource
	// count returns how many lanes there are; nil if that is not known.
	count func(ctx context.Context) (int, error)

	saving   retry.Outage
	snapshot *delivery.Snapshot // that follow has seen; nil: none
	followed []*laneSource      // the lanes that it has told
}

// run works until ctx ends.
func (k *checkpointer) run(ctx context.Context) {
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
			k.trackLanes()
			k.drained(ctx, now)
		case <-pins.C:
			k.pinned(ctx)
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

// drained reports the campaigns that have almost nothing left in their lane. A report that fails is repeated later, as is
// one that does not release the campaign.
func (k *checkpointer) drained(ctx context.Context, now time.Time) {
	for _, lane := range k.lanes() {
		for _, d := range lane.drained(now, k.opt.LaneRate) {
			call, cancel := context.WithTimeout(ctx, positionTimeout)
			released, err := k.opt.Lanes.Unpin(call, d.id, lane.ID, d.used)
			cancel()
			if err != nil {
				k.opt.Logger.Debug("a drained lane was not noted", "campaign", d.id, "error", err)
			} else if released {
				lane.returned(d)
			}
		}
	}
}

// trackLanes makes the lanes watch the campaigns that have got one of them besides others: it may stay without a job, and the campaign
// keeps all its lanes until it, too, is reported as drained. A campaign's only lane was asked for because there is a job for it.
func (k *checkpointer) trackLanes() {
	is, was, held := k.opt.Snapshot(), k.snapshot, k.lanes()
	same := slices.Equal(held, k.followed)
	if is == nil || is == was && same {
		return
	}
	if was == nil || !same {
		was = &delivery.Snapshot{}
	}
	k.snapshot, k.followed = is, held
	lanes := byNumber(held)
	for id := range is.Changed(was) {
		c := is.Campaign(id)
		if c == nil || len(c.Lanes) < 2 {
			continue
		}
		for _, number := range c.Lanes {
			if lane := lanes[number]; lane != nil {
				lane.expect(id)
			}
		}
	}
}

// byNumber returns lanes by their numbers.
func byNumber(list []*laneSource) map[int]*laneSource {
	lanes := make(map[int]*laneSource, len(list))
	for _, lane := range list {
		lanes[lane.ID] = lane
	}
	return lanes
}

const (
	// pinsEvery is how often pins are compared with what their lanes hold.
	pinsEvery = time.Minute
	// oldPin is how long a pin is kept without a job: the daemon that asked for it may be about to write.
	oldPin = 10 * time.Minute
)

// pinned makes the lanes watch the campaigns that are pinned to them and have had no job since the generation
// began: nothing was written after the lane was requested, it went to other lanes of the campaign, or its last job was
// settled between two generations.
func (k *checkpointer) pinned(ctx context.Context) {
	lanes := k.lanes()
	if len(lanes) == 0 {
		return
	}
	call, cancel := context.WithTimeout(ctx, positionTimeout)
	defer cancel()
	pins, err := k.opt.Lanes.Pinned(call, oldPin)
	if err != nil {
		k.opt.Logger.Debug("the pins of lanes cannot be read; trying again in a minute", "error", err)
		return
	}
	byID, count := byNumber(lanes), k.counted(call)
	for campaign, ids := range pins {
		for _, id := range ids {
			if lane := byID[id]; lane != nil {
				lane.expect(campaign)
			} else if id >= count && byID[0] != nil {
				k.forget(call, campaign, id)
			}
		}
	}
}

// counted returns how many lanes there are, or more than any pin says.
func (k *checkpointer) counted(ctx context.Context) int {
	if k.count != nil {
		if n, err := k.count(ctx); err == nil && n > 0 {
			return n
		}
	}
	return math.MaxInt
}

// forget reports a lane as drained of a campaign that the topic does not have any more, since nobody reads it. One daemon does so, that
// with the first lane. The campaign is released if its other lanes are drained at that moment.
func (k *checkpointer) forget(ctx context.Context, campaign string, lane int) {
	if _, err := k.opt.Lanes.Unpin(ctx, campaign, lane, true); err != nil {
		k.opt.Logger.Debug("a pin to a lane that is gone was not removed", "campaign", campaign, "lane", lane, "error", err)
	}
}
