package catalog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// memoryLedger is the ledger of a Memory; its lock is the catalog's. The zero value is not usable.
type memoryLedger struct {
	incarnations map[int]int64 // by shard
	usage        map[usageKey]int64
	anchors      map[anchorKey]int64         // latest reset
	settled      map[string]delivery.Settled // by campaign
}

type usageKey struct {
	quota  string
	minute int64
	node   string
}

type anchorKey struct {
	quota string
	span  time.Duration
}

func newMemoryLedger() memoryLedger {
	return memoryLedger{
		incarnations: make(map[int]int64), usage: make(map[usageKey]int64), anchors: make(map[anchorKey]int64),
		settled: make(map[string]delivery.Settled),
	}
}

// Incarnation is the recorded incarnation of the shard's data, 0 when none is.
func (m *Memory) Incarnation(ctx context.Context, shard int) (int64, error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("read the incarnation of shard %d: %w", shard, err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.ledger.incarnations[shard], nil
}

// ReplaceIncarnation records the next incarnation, as Postgres.ReplaceIncarnation does.
func (m *Memory) ReplaceIncarnation(ctx context.Context, shard int, old, next int64, _ string) (inForce int64, err error) {
	if err := ctx.Err(); err != nil {
		return 0, fmt.Errorf("record the incarnation of shard %d: %w", shard, err)
	}
	if err := checkIncarnation(shard, old, next); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ledger.incarnations[shard] == old {
		m.ledger.incarnations[shard] = next
	}
	return m.ledger.incarnations[shard], nil
}

// WriteUsage sets this node's units of each quota and minute, as Postgres.WriteUsage does.
func (m *Memory) WriteUsage(ctx context.Context, node string, usage []delivery.Usage, anchors []delivery.Anchor) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("write the usage of quotas: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, u := range usage {
		if m.state.quotas[u.Quota] != nil {
			m.ledger.usage[usageKey{u.Quota, u.Minute, node}] = u.Units
		}
	}
	for _, a := range anchors {
		if m.state.quotas[a.Quota] != nil {
			key := anchorKey{a.Quota, a.Span}
			m.ledger.anchors[key] = max(m.ledger.anchors[key], a.ResetAt)
		}
	}
	return nil
}

// Usage returns the units of the quotas in each minute from sinceMinute on, as Postgres.Usage does.
func (m *Memory) Usage(ctx context.Context, quotas []string, sinceMinute int64) ([]delivery.Usage, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the usage of quotas: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	sums := make(map[usageKey]int64)
	for key, units := range m.ledger.usage {
		if key.minute >= sinceMinute && slices.Contains(quotas, key.quota) {
			key.node = ""
			sums[key] += units
		}
	}
	keys := slices.SortedFunc(maps.Keys(sums), func(a, b usageKey) int {
		return cmp.Or(cmp.Compare(a.minute, b.minute), cmp.Compare(a.quota, b.quota))
	})
	usage := make([]delivery.Usage, 0, len(keys))
	for _, key := range keys {
		usage = append(usage, delivery.Usage{Quota: key.quota, Minute: key.minute, Units: sums[key]})
	}
	return usage, nil
}

// Anchors returns the resets that were noted for windows of the quotas, as Postgres.Anchors does.
func (m *Memory) Anchors(ctx context.Context, quotas []string) ([]delivery.Anchor, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("read the anchors of quotas: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	anchors := make([]delivery.Anchor, 0, len(m.ledger.anchors))
	for key, resetAt := range m.ledger.anchors {
		if slices.Contains(quotas, key.quota) {
			anchors = append(anchors, delivery.Anchor{Quota: key.quota, Span: key.span, ResetAt: resetAt})
		}
	}
	slices.SortFunc(anchors, func(a, b delivery.Anchor) int {
		return cmp.Or(cmp.Compare(a.Quota, b.Quota), cmp.Compare(a.Span, b.Span))
	})
	return anchors, nil
}

// PruneUsage forgets the minutes before the given one.
func (m *Memory) PruneUsage(ctx context.Context, beforeMinute int64) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("prune the usage of quotas: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	maps.DeleteFunc(m.ledger.usage, func(key usageKey, _ int64) bool { return key.minute < beforeMinute })
	return nil
}
