package limits

import (
	"context"
	"errors"
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
)

// Peek reports the windows of the quotas that takes debit, in their order. It changes nothing and opens no window. With an
// error the windows that could not be read are missing.
func (e *Engine) Peek(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, error) {
	lists := make([][]*delivery.Quota, len(e.shards))
	for _, q := range quotas {
		if q.Stored() {
			shard := shards.Of(uint64(q.Shard), len(e.shards))
			lists[shard] = append(lists[shard], q)
		}
	}
	answers := make([][]delivery.WindowState, len(e.shards)) // of each shard, in the order of its quotas
	err := forEachShard(e, lists, func(s *shard, list []*delivery.Quota) (err error) {
		answers[s.index], err = s.peek(ctx, list)
		return err
	})
	var all []delivery.WindowState
	for _, q := range quotas {
		rest := &answers[shards.Of(uint64(q.Shard), len(answers))]
		for len(*rest) > 0 && (*rest)[0].Quota == q.ID {
			all, *rest = append(all, (*rest)[0]), (*rest)[1:]
		}
	}
	return all, err
}

// peek reads windows of quotas of one shard.
func (s *shard) peek(ctx context.Context, quotas []*delivery.Quota) (all []delivery.WindowState, err error) {
	parts := byCost(quotas, quotaCost)
	var calls []*call
	for _, part := range parts {
		calls = append(calls, encodePeek(s.keys, part, s.now()))
	}
	s.run(ctx, peekScript, calls)
	var errs []error
	for i, c := range calls {
		states, err := decodePeek(c, parts[i])
		if err != nil {
			errs = append(errs, fmt.Errorf("peek %d quotas: %w", len(parts[i]), err))
			continue
		}
		all = append(all, states...)
	}
	return all, errors.Join(errs...)
}
