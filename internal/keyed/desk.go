package keyed

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
)

// Desk reads and changes keys by hand.
type Desk struct {
	Shards    *shards.Set
	KeyPrefix string
}

// State is what is known of one value of a key.
type State struct {
	Line, Held, Free time.Duration // until the next turn that is not reserved, until it is held by an answer, and until a unit is free
	Used             []int64       // of each window
}

// Show returns the state of a value of the quota's key.
func (d Desk) Show(ctx context.Context, q *delivery.Quota, value string) (s State, err error) {
	reply, err := d.run(ctx, "show", q, value, q.WindowsOf(value))
	if err != nil {
		return s, err
	}
	list, _ := reply.([]any)
	numbers := make([]int64, len(list))
	for i := range list {
		numbers[i], _ = list[i].(int64)
	}
	if len(numbers) != 3+len(q.WindowsOf(value)) {
		return s, errShort
	}
	ms := func(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
	return State{Line: ms(numbers[0]), Held: ms(numbers[1]), Free: ms(numbers[2]), Used: numbers[3:]}, nil
}

// Release ends what an answer has held.
func (d Desk) Release(ctx context.Context, q *delivery.Quota, value string) error {
	windows := slices.Clone(q.WindowsOf(value))
	for i := range windows { // in which zone the recipient's day ends is not known: nothing is forgotten before a span is over
		windows[i].Anchor = ""
	}
	_, err := d.run(ctx, "hold", q, value, windows) // for no time
	return err
}

func (d Desk) run(ctx context.Context, what string, q *delivery.Quota, value string, windows []delivery.Window) (any, error) {
	i, now := idOf(q.ID, value), time.Now()
	text, _ := spec(windows, now, nil)
	shard := i.shard(d.Shards.Count())
	clock := shards.Tag(d.KeyPrefix, shard) + shards.ClockKey
	run := shards.Run{
		Keys: []string{i.hash(d.KeyPrefix, shard), clock, clock},
		Args: []any{i.field(), asked(what, 1, false, text), 0, ahead(q.Keys[value].HeldUntil, now), 0, 0},
	}
	replies, err := script.Run(ctx, d.Shards.Master(shard), run).Slice()
	switch {
	case err == nil && len(replies) != 1:
		err = errShort
	case err == nil && replies[0] == int64(foreign):
		return nil, fmt.Errorf("%s: %w", i.spelled(d.KeyPrefix, shard), errForeign)
	}
	if err != nil {
		return nil, fmt.Errorf("redis.addrs: the quota store does not answer: %w", err)
	}
	return replies[0], nil
}
