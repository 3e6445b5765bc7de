package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
)

const (
	// maxLag is how far a replica may be behind the master, in microseconds of the store's time.
	maxLag = 2_000_000
	// trustFor is how long a time stored by the master may be used to judge its replica.
	trustFor = 5 * time.Second
)

// Peek reports the windows of the quotas that takes debit, in their order, and the times of the shards. It changes
// nothing and opens no window. With an error the windows of the shards that did not answer are missing.
func (e *Engine) Peek(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, []delivery.ShardClock, error) {
	views, err := e.look(ctx, quotas, e.peekMaster)
	var clocks []delivery.ShardClock
	for shard, v := range views {
		if v.now > 0 {
			clocks = append(clocks, delivery.ShardClock{Shard: shard, Now: v.now})
		}
	}
	return e.assemble(quotas, views), clocks, err
}

// PeekReplica is Peek for show: it asks a shard's replica where there is one and it is at most seconds behind. With an
// error, the windows of the shards that did not answer are missing.
func (e *Engine) PeekReplica(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, error) {
	views, err := e.look(ctx, quotas, e.peekReplica)
	return e.assemble(quotas, views), err
}

// view is one shard's answer about quotas.
type view struct {
	now    int64 // 0: it did not answer
	kept   int64 // the latest time that was stored on the server asked
	states map[string][]delivery.WindowState
}

// look asks all shards that have quotas of the list, concurrently.
func (e *Engine) look(
	ctx context.Context, quotas []*delivery.Quota, ask func(context.Context, *shard, []*delivery.Quota) (view, error),
) ([]view, error) {
	lists := make([][]*delivery.Quota, len(e.shards))
	for _, q := range quotas {
		if counts(q) {
			shard := shards.Of(uint64(q.Shard), len(e.shards))
			lists[shard] = append(lists[shard], q)
		}
	}
	views := make([]view, len(e.shards))
	err := spread(e, lists, func(s *shard, list []*delivery.Quota) (err error) {
		views[s.index], err = ask(ctx, s, list)
		return err
	})
	return views, err
}

// peekReplica asks the replica, and the master if the replica is too far behind.
func (e *Engine) peekReplica(ctx context.Context, s *shard, quotas []*delivery.Quota) (view, error) {
	if known := s.kept.Load(); s.replica != nil && known != nil && time.Since(known.at) < trustFor {
		if v, err := peek(ctx, s, s.replica.run, quotas); err == nil && v.kept >= s.kept.Load().now-maxLag {
			refill(quotas, v, s.now())
			return v, nil
		}
	}
	return e.peekMaster(ctx, s, quotas)
}

func (e *Engine) peekMaster(ctx context.Context, s *shard, quotas []*delivery.Quota) (view, error) {
	v, err := peek(ctx, s, s.run, quotas)
	if v.now > 0 {
		s.keep(v.kept)
	}
	return v, err
}

// refill counts windows as full that a replica, whose clock may be behind, still reports as used.
func refill(quotas []*delivery.Quota, v view, now int64) {
	for _, q := range quotas {
		for i, w := range v.states[q.ID] {
			if w.ResetAt <= now {
				v.states[q.ID][i] = delivery.WindowState{Quota: q.ID, Window: w.Window, Remaining: q.Windows[w.Window].Limit, ResetAt: w.ResetAt}
			}
		}
	}
}

// runs sends calls to one of a shard's servers.
type runs func(ctx context.Context, script *shards.Script, calls []*call)

func peek(ctx context.Context, s *shard, run runs, quotas []*delivery.Quota) (view, error) {
	parts := byCost(quotas, quotaCost)
	var calls []*call
	for _, part := range parts {
		calls = append(calls, encodePeek(s.keys, part, s.now()))
	}
	run(ctx, peekScript, calls)
	v := view{states: map[string][]delivery.WindowState{}}
	var errs []error
	for i, c := range calls {
		if c.err != nil {
			errs = append(errs, fmt.Errorf("peek %d quotas: %w", len(parts[i]), c.err))
			continue
		}
		states, kept, err := decodePeek(c, parts[i])
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v.now, v.kept = max(v.now, c.now), max(v.kept, kept)
		for _, w := range states {
			v.states[w.Quota] = append(v.states[w.Quota], w)
		}
	}
	return v, errors.Join(errs...)
}

// assemble puts the states in the order of the quotas.
func (e *Engine) assemble(quotas []*delivery.Quota, views []view) []delivery.WindowState {
	var out []delivery.WindowState
	for _, q := range quotas {
		out = append(out, views[shards.Of(uint64(q.Shard), len(views))].states[q.ID]...)
	}
	return out
}

// kept is the latest time that a shard's master stored, and when this process heard of it.
type kept struct {
	now int64
	at  time.Time
}

func (s *shard) keep(now int64) { s.kept.Store(&kept{now: now, at: time.Now()}) }
