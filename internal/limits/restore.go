package limits

import (
	"context"
	"fmt"
)

// maxRestored is how many quotas one run of the restore script puts in place. Its quotas may bring hundreds of counts
// each.
const maxRestored = 32

// bare runs one script that names an incarnation without counting on it.
func (s *shard) bare(ctx context.Context, script *script, c *call) error {
	r := s.master
	r.clock, r.incarnation = nil, nil
	r.run(ctx, script, []*call{c})
	return c.err
}

// inspect tells which incarnation of its data a shard's store holds, 0 where it holds none or is another process than
// the one that was adopted, and the store's time.
func (e *Engine) inspect(ctx context.Context, shard int) (incarnation, now int64, err error) {
	s := e.shards[shard]
	c := &call{keys: []string{s.keys.clock()}}
	if err := s.bare(ctx, inspectScript, c); err != nil {
		return 0, 0, fmt.Errorf("inspect shard %d: %w", shard, err)
	}
	in := reader{rest: c.reply}
	incarnation = in.next(7)
	return incarnation, c.now, in.err
}

// retire makes a shard's store hold no incarnation, if it is this one that it holds.
func (e *Engine) retire(ctx context.Context, shard int, incarnation int64) error {
	s := e.shards[shard]
	c := &call{head: header{incarnation: incarnation}, keys: []string{s.keys.clock()}}
	if err := s.bare(ctx, retireScript, c); err != nil {
		return fmt.Errorf("retire an incarnation of shard %d: %w", shard, err)
	}
	return nil
}

// restore puts windows in the place of whatever a shard's store has under their names, and then adopts the store. A
// store that holds an incarnation refuses with errIncarnation.
func (e *Engine) restore(ctx context.Context, shard int, incarnation int64, quotas []restoredQuota) error {
	s := e.shards[shard]
	part := firstPart
	for {
		n := min(len(quotas), maxRestored)
		if n == len(quotas) {
			part |= lastPart
		}
		c := encodeRestore(s.keys, incarnation, quotas[:n], s.now(), part)
		if err := s.bare(ctx, restoreScript, c); err != nil {
			return fmt.Errorf("restore shard %d: %w", shard, err)
		}
		if quotas = quotas[n:]; len(quotas) == 0 {
			return nil
		}
		part = 0
	}
}

// The parts of a restore; one can be both.
const (
	firstPart = 1 << iota
	lastPart
)

// encodeRestore spells quotas as restore.lua reads them.
func encodeRestore(k keys, incarnation int64, quotas []restoredQuota, now int64, part int) *call {
	l := newKeyList(k.clock())
	var specs, windows []byte
	for _, r := range quotas {
		specs = appendSpec(specs, l.add(k.quota(r.quota.ID)), r.quota, now)
		for _, w := range r.windows {
			windows = put(put(windows, 7, w.resetAt), 2, int64(len(w.units)))
			for _, d := range w.units {
				windows = put(windows, 7, d.at, d.units)
			}
		}
	}
	return &call{head: header{incarnation: incarnation}, keys: l.keys, args: []any{specs, windows, part}}
}

// charge counts units that were sent without asking a shard's store.
func (e *Engine) charge(ctx context.Context, shard int, list []charged) error {
	s := e.shards[shard]
	for len(list) > 0 {
		n := min(len(list), maxItems)
		slots, err := s.acquire(ctx, 1)
		if err != nil {
			return err
		}
		c := encodeCharge(s.keys, e.node, slots[0], list[:n], s.now())
		s.run(ctx, chargeScript, []*call{c})
		s.release(slots)
		if c.err != nil {
			return fmt.Errorf("charge %d quotas: %w", n, c.err)
		}
		list = list[n:]
	}
	return nil
}
