package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// maxLag is how far a replica may be behind the master, in microseconds of the store's time.
	maxLag = 2_000_000
	// trustFor is for how long a time that the master kept serves to judge its replica.
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

// Glance is Peek for show: it asks a shard's replica where there is one and it is at most seconds behind. With an error
// the windows of the shards of which nobody answered are missing.
func (e *Engine) Glance(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, error) {
	views, err := e.look(ctx, quotas, e.glance)
	return e.assemble(quotas, views), err
}

// view is what one shard says of quotas.
type view struct {
	now    int64 // 0: it did not answer
	kept   int64 // the latest time that was stored, where it was looked at
	states map[string][]delivery.WindowState
}

// look asks all shards that have quotas of the list, at once.
func (e *Engine) look(
	ctx context.Context, quotas []*delivery.Quota, ask func(context.Context, *shard, []*delivery.Quota) (view, error),
) ([]view, error) {
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
	err := e.each(asked, func(s *shard) error {
		v, err := ask(ctx, s, lists[s.index])
		views[s.index] = v
		return err
	})
	return views, err
}

// glance asks the replica, and the master where the replica's word is not good enough.
func (e *Engine) glance(ctx context.Context, s *shard, quotas []*delivery.Quota) (view, error) {
	if s.replica != nil && s.trusted() {
		if v, err := peek(ctx, s, s.replica.run, quotas); err == nil && s.fresh(v.kept) {
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

// refill counts the windows as full that a replica, whose clock may be behind, takes for used still.
func refill(quotas []*delivery.Quota, v view, now int64) {
	for _, q := range quotas {
		for i, w := range v.states[q.ID] {
			if w.ResetAt <= now {
				v.states[q.ID][i].Remaining = q.Windows[w.Window].Limit
			}
		}
	}
}

// runs sends calls to one of a shard's servers.
type runs func(ctx context.Context, script *script, calls []*call)

func peek(ctx context.Context, s *shard, run runs, quotas []*delivery.Quota) (view, error) {
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
		out = append(out, views[shardOf(q, len(views))].states[q.ID]...)
	}
	return out
}

// kept is the latest time that a shard's master stored, and when this process heard of it.
type kept struct {
	now int64
	at  time.Time
}

func (s *shard) keep(now int64) {
	s.mu.Lock()
	s.kept = kept{now: now, at: time.Now()}
	s.mu.Unlock()
}

// trusted tells whether enough is known of the master to judge its replica.
func (s *shard) trusted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.kept.at.IsZero() && time.Since(s.kept.at) < trustFor
}

// fresh tells whether a replica that has kept this time is close enough behind its master.
func (s *shard) fresh(now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return now >= s.kept.now-maxLag
}
