package limits

import (
	"context"
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/ledger"
	"github.com/pacer/pacer/internal/limits/local"
	"github.com/pacer/pacer/internal/shards"
)

// maxRestored is how many quotas one run of the restore script puts in place. Its quotas may bring hundreds of counts
// each.
const maxRestored = 32

// runUnchecked runs one script that names an epoch without expecting it.
func (s *shard) runUnchecked(ctx context.Context, script *shards.Script, clock *shardClock, c *call) error {
	r := s.master
	r.clock, r.epoch = clock, nil
	r.run(ctx, script, []*call{c})
	return c.err
}

// dataStore is the engine as seen by recovery.
type dataStore struct{ *Engine }

// Inspect implements ledger.Store.
func (e dataStore) Inspect(ctx context.Context, shard int) (found ledger.Found, err error) {
	s := e.shards[shard]
	c, sent := &call{keys: []string{s.keys.clock()}, args: []any{0}}, s.master.now()
	if err := s.runUnchecked(ctx, inspectScript, nil, c); err != nil {
		return ledger.Found{}, err
	}
	in := reader{rest: c.reply}
	found = ledger.Found{Epoch: in.next(7), Now: c.now}
	if s.master.uptime != nil {
		if found.Jumped = s.clock.renew(c.now, sent, s.master.now()); found.Jumped != 0 {
			s.jumped.Add(found.Jumped)
			e.fallback.Forget(shard)
		}
	}
	return found, in.err
}

// Retire implements ledger.Store.
func (e dataStore) Retire(ctx context.Context, shard int, epoch int64) error {
	s := e.shards[shard]
	c := &call{head: header{epoch: epoch}, keys: []string{s.keys.clock()}, args: []any{1}}
	return s.runUnchecked(ctx, inspectScript, nil, c)
}

// Restore implements ledger.Store.
func (e dataStore) Restore(ctx context.Context, shard int, epoch int64, quotas []ledger.Restored) error {
	s := e.shards[shard]
	part := firstPart
	for {
		n := min(len(quotas), maxRestored)
		if n == len(quotas) {
			part |= lastPart
		}
		c := encodeRestore(s.keys, epoch, quotas[:n], s.now(), part)
		err := s.runUnchecked(ctx, restoreScript, &s.clock, c)
		if quotas = quotas[n:]; err != nil || len(quotas) == 0 {
			return err
		}
		part = 0
	}
}

// Count implements ledger.Store.
func (e dataStore) Count(ctx context.Context, shard int, epoch int64, list []*delivery.Quota) (now int64, counted []ledger.Counted, err error) {
	s := e.shards[shard]
	c := encodePeek(s.keys, list, s.now())
	if s.run(ctx, countScript, []*call{c}); c.err != nil {
		return 0, nil, c.err
	}
	if c.head.epoch != epoch {
		return 0, nil, ledger.ErrEpoch
	}
	in := reader{rest: c.reply}
	for _, q := range list {
		one := ledger.Counted{Taken: delivery.Taken{Quota: q.ID, Born: in.next(7), Units: in.next(7)}}
		for range q.Windows {
			one.Windows = append(one.Windows, ledger.CountedWindow{ResetAt: in.next(7), Units: in.next(7), Since: in.next(7)})
		}
		counted = append(counted, one)
	}
	return c.now, counted, in.err
}

// The parts of a restore; one can be both.
const (
	firstPart = 1 << iota
	lastPart
)

// encodeRestore spells quotas as restore.lua reads them.
func encodeRestore(k keys, epoch int64, quotas []ledger.Restored, now int64, part int) *call {
	l := newSpecs(k, now)
	var windows []byte
	for _, r := range quotas {
		l.add(claim{quota: r.Quota})
		for _, w := range r.Windows {
			windows = put(put(windows, 7, w.ResetAt), 2, int64(len(w.Units)))
			for _, d := range w.Units {
				windows = put(windows, 7, d.At, d.Units)
			}
		}
	}
	return &call{head: header{epoch: epoch}, keys: l.keys, args: []any{l.list, windows, part}}
}

// charge counts units that were sent without asking a shard's store.
func (e *Engine) charge(ctx context.Context, s *shard, list []local.Charge) error {
	for _, part := range byCost(list, func(c local.Charge) int { return quotaCost(c.Quota) }) {
		var c *call
		err := s.once(ctx, chargeScript, func(slot *scriptSlot) *call {
			c = encodeCharge(s.keys, e.node, slot, part, s.now())
			return c
		})
		for i := 0; err == nil && i < len(part); i++ {
			if !e.fence.Add(s.index, c.head.epoch, []*delivery.Quota{part[i].Quota}, part[i].Units, c.now) {
				err = ledger.ErrEpoch
			}
		}
		if err != nil {
			return fmt.Errorf("charge %d quotas: %w", len(part), err)
		}
	}
	return nil
}
