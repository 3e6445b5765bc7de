package limits

import (
	"context"
	"fmt"
	"strings"
	"time"

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
	if !counts(a.Quota) {
		return Adjusted{}, fmt.Errorf("quota %s is not counted in the store", a.Quota.ID)
	}
	s := e.shards[shards.Of(uint64(a.Quota.Shard), len(e.shards))]
	lower := int64(0)
	if a.Lower {
		lower = 1
	}
	var c *call
	err = s.once(ctx, adjustScript, func(slot *scriptSlot) *call {
		l := newKeyList(s.keys.clock(), s.keys.reply(e.node, slot.index))
		spec := appendSpec(nil, l.add(s.keys.quota(a.Quota.ID)), a.Quota, s.now())
		c = &call{head: header{seq: slot.seq}, keys: l.keys, args: []any{spec, put(put(put(nil, 1, int64(a.Window)), 7, a.Used), 1, lower)}}
		return c
	})
	if err != nil {
		return Adjusted{}, fmt.Errorf("adjust quota %s: %w", a.Quota.ID, err)
	}
	in := reader{rest: c.reply}
	return Adjusted{Before: in.next(7), Used: in.next(7), At: c.now}, in.err
}

// Claim is units of a quota that are kept for a campaign which was refused some, or for all that wait on a daemon.
type Claim struct {
	Campaign string    `json:"campaign" doc:"empty: several wait on the daemon"`
	Daemon   string    `json:"daemon,omitempty"` // by the name under which it competes; "" where one campaign waits
	Units    int64     `json:"units" doc:"that are kept"`
	Asked    time.Time `json:"asked_at"`
	Due      time.Time `json:"due_at" doc:"when it asks again at the latest"`
}

const (
	// claimKept is how long after a campaign's last ask units are kept for it, as in take.lua.
	claimKept = 15 * second
	// asksAgain is after how long a daemon asks again that waits for a quota, however far off its next unit is: see the pacer's askAgain.
	asksAgain = 12_500_000
)

// Claims lists the claims on a quota that others give way to, and changes nothing.
func (e *Engine) Claims(ctx context.Context, q *delivery.Quota) (list []Claim, err error) {
	if !counts(q) {
		return nil, nil
	}
	s := e.shards[shards.Of(uint64(q.Shard), len(e.shards))]
	c := &call{keys: []string{s.keys.clock(), s.keys.quota(q.ID)}}
	if s.run(ctx, claimsScript, []*call{c}); c.err != nil {
		return nil, fmt.Errorf("read the claims on quota %s: %w", q.ID, c.err)
	}
	in := reader{rest: c.reply}
	for range in.next(2) {
		one := Claim{Campaign: in.text(int(in.next(2)))}
		if daemon, several := strings.CutPrefix(one.Campaign, " "); several { // see model.jointName
			one.Campaign, one.Daemon = "", daemon
		}
		asked, due := in.next(7), in.next(7)
		one.Asked, one.Due = time.UnixMicro(asked).UTC(), time.UnixMicro(min(due, asked+asksAgain)).UTC()
		one.Units = in.next(4)
		if c.now <= asked+claimKept {
			list = append(list, one)
		}
	}
	return list, in.err
}
