package limits

import (
	"context"
	"errors"
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
)

// Peek reports the windows of the quotas, in their order, and the times of the shards. It changes nothing and opens no
// window. With an error the windows of the shards that did not answer are missing.
func (e *Engine) Peek(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, []delivery.ShardClock, error) {
	lists := make([][]*delivery.Quota, len(e.shards))
	var asked []*shard
	for _, q := range quotas {
		if !counts(q) {
			continue
		}
		s := e.shards[shardOf(q, len(e.shards))]
		if lists[s.index] == nil {
			asked = append(asked, s)
		}
		lists[s.index] = append(lists[s.index], q)
	}
	views := make([]view, len(e.shards))
	err := e.each(asked, func(s *shard) (err error) {
		views[s.index], err = e.peek(ctx, s, s.run, lists[s.index])
		return err
	})
	return assemble(quotas, views), clocksOf(views), err
}

// view is what one shard says of quotas.
type view struct {
	now    int64 // 0: it did not answer
	states map[string][]delivery.WindowState
}

// runs sends calls to one of the shard's servers.
type runs func(ctx context.Context, script *script, calls []*call)

func (e *Engine) peek(ctx context.Context, s *shard, run runs, quotas []*delivery.Quota) (view, error) {
	var calls []*call
	var parts [][]*delivery.Quota
	for len(quotas) > 0 {
		n := min(len(quotas), maxItems)
		calls, parts, quotas = append(calls, encodePeek(s.keys, quotas[:n], s.now())), append(parts, quotas[:n]), quotas[n:]
	}
	run(ctx, peekScript, calls)
	v := view{states: map[string][]delivery.WindowState{}}
	var errs []error
	for i, c := range calls {
		if c.err != nil {
			errs = append(errs, fmt.Errorf("peek %d quotas: %w", len(parts[i]), c.err))
			continue
		}
		states, err := decodePeek(c, parts[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v.now = max(v.now, c.now)
		for _, w := range states {
			v.states[w.Quota] = append(v.states[w.Quota], w)
		}
	}
	return v, errors.Join(errs...)
}

// assemble puts the states in the order of the quotas.
func assemble(quotas []*delivery.Quota, views []view) []delivery.WindowState {
	var out []delivery.WindowState
	for _, q := range quotas {
		out = append(out, views[shardOf(q, len(views))].states[q.ID]...)
	}
	return out
}

func clocksOf(views []view) []delivery.ShardClock {
	var list []delivery.ShardClock
	for shard, v := range views {
		if v.now > 0 {
			list = append(list, delivery.ShardClock{Shard: shard, Now: v.now})
		}
	}
	return list
}
