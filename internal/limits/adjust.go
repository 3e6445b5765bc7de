package limits

import (
	"context"
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
)

// Adjustment is a correction of what one window of a quota has counted.
type Adjustment struct {
	Quota  *delivery.Quota
	Window int   // index into Quota.Windows
	Used   int64 // units that it is to have counted
	Lower  bool  // whether that may be fewer than it has
}

// Adjusted is what an adjustment did. Used is as before if it would have made room and was not allowed to.
type Adjusted struct {
	Before, Used int64
	At           int64 // store time, microseconds
}

// Adjust corrects a count, while daemons take from the quota or not. Added units count as if they were granted now. Where units are taken
// off, those that remain do: they count for at least as long as before.
func (e *Engine) Adjust(ctx context.Context, a Adjustment) (done Adjusted, err error) {
	if err := Validate(a.Quota); err != nil {
		return Adjusted{}, err
	}
	if !a.Quota.Stored() {
		return Adjusted{}, fmt.Errorf("quota %s is not counted in the store", a.Quota.ID)
	}
	s := e.shards[shards.Of(uint64(a.Quota.Shard), len(e.shards))]
	var c *call
	err = s.once(ctx, adjustScript, func(slot *scriptSlot) *call {
		l := newSpecs(s.keys, s.now(), s.keys.reply(e.node, slot.index))
		l.add(claim{quota: a.Quota})
		c = &call{head: header{seq: slot.seq}, keys: l.keys, args: []any{l.list, put(put(put(nil, 1, int64(a.Window)), 7, a.Used), 1, bit(a.Lower))}}
		return c
	})
	if err != nil {
		return Adjusted{}, fmt.Errorf("adjust quota %s: %w", a.Quota.ID, err)
	}
	in := reader{rest: c.reply}
	return Adjusted{Before: in.next(7), Used: in.next(7), At: c.now}, in.err
}
