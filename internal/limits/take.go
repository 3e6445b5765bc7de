package limits

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/contention"
)

// Take asks for slots for any number of campaigns, in one round trip to each shard concerned, concurrently (up to
// scriptSlots scripts a shard, so for thousands of campaigns). Items are in the order of the asks.
//
// On an error the reply is still valid in part:
// items that could not be asked for have Units 0 and GrantedAt 0, the others are granted and count. A shard that fails does
// not affect the items of the others.
//
// Granted.NextAt 0 on a short item means that no time will bring more, only a change of configuration: the rate or a
// limit is 0, or the job at the head weighs more than a limit.
// Granted.First may lie before GrantedAt where the campaign has a burst; such slots are due at once.
func (e *Engine) Take(ctx context.Context, asks []delivery.Ask) (delivery.TakeReply, error) {
	reply := delivery.TakeReply{Items: make([]delivery.Granted, len(asks))}
	started := time.Now()
	unpaid := e.settleDebts(ctx)
	t := e.plan(asks, reply.Items)
	t.unpaid = unpaid
	err := errors.Join(errors.Join(unpaid...), t.run(ctx))
	reply.Clocks = t.clocks()
	e.fallback.Observe(asks, &reply)
	t.finish()
	e.m.takeSeconds.Observe(time.Since(started).Seconds())
	e.m.takeItems.Observe(float64(len(asks)))
	return reply, err
}

// taking is the state of one take.
type taking struct {
	*Engine
	all       []request
	nows      []int64   // of the shards that answered, 0 of others
	farewells []request // to shards that campaigns have left
	fleet     int64     // how many daemons there are, as far as known
	unpaid    []error   // why shards cannot be charged for grants made without them, and so not be asked
}

// request is one ask to the shard of its campaign.
type request struct {
	contention.Contender
	ask    *delivery.Ask // as it came, but for the slot to continue after
	home   *home
	shard  int
	soft   []softUse
	wait   int64 // microseconds for which the campaign is not granted anything, since it moved
	leaves bool  // own tells the shard that the campaign has left it
}

// plan decides what each shard is asked for.
func (e *Engine) plan(asks []delivery.Ask, items []delivery.Granted) *taking {
	t := &taking{Engine: e, all: make([]request, 0, len(asks)), nows: make([]int64, len(e.shards)), fleet: e.fleet()}
	now, horizon := uptime(), int64(0)
	for i := range asks {
		horizon = max(horizon, asks[i].Horizon)
		t.all = append(t.all, request{ask: &asks[i], Contender: contention.Contender{Out: &items[i]}})
		t.prepare(&t.all[i], now)
	}
	e.horizon.Store(horizon)
	t.all = append(t.all, t.farewells...)
	return t
}

// prepare decides what a request asks of its shard: the original ask if possible.
func (t *taking) prepare(x *request, now int64) {
	t.mu.Lock()
	home := t.homes.at(x.ask, len(t.shards), now)
	x.home, x.shard, x.Daemons = home, home.shard, cmp.Or(home.daemons, t.fleet)
	closed, left, tell := home.closed, home.left, home.tell
	s := t.shards[x.shard]
	last := home.lastGranted(x.ask, s.jumped.Load())
	t.mu.Unlock()
	x.ask = continueAfter(x.ask, last)
	if len(left) > 0 && now < tell {
		closed = max(closed, now+x.ask.Quantum)
		for _, shard := range left {
			own := home.stopOldShard(x.ask)
			t.farewells = append(t.farewells, request{
				ask: own, Contender: contention.Contender{Own: own, Out: &delivery.Granted{}}, home: home, shard: shard, leaves: true,
			})
		}
	}
	x.Own = continueAfter(x.ask, t.fallback.LastGranted(s.now(), x.ask))
	switch {
	case now < closed:
		x.introduce()
		x.wait = closed - now
	case x.admit(t):
	case s.clockKnown.Load():
		x.Own = nil
	default:
		x.introduce()
		x.Own.More = true
	}
}

// continueAfter is the ask with another latest slot.
func continueAfter(a *delivery.Ask, last int64) *delivery.Ask {
	if last == a.LastGranted {
		return a
	}
	own := *a
	own.LastGranted = last
	return &own
}

// run sends the requests to their shards, concurrently.
func (t *taking) run(ctx context.Context) error {
	lists := make([][]*contention.Contender, len(t.shards))
	for i := range t.all {
		if x := &t.all[i]; x.Own != nil && t.unpaid[x.shard] == nil {
			lists[x.shard] = append(lists[x.shard], &x.Contender)
		}
	}
	return forEachShard(t.Engine, lists, func(s *shard, list []*contention.Contender) error {
		var errs []error
		from := delivery.Provenance{Shard: s.index, Epoch: s.master.epoch()}
		s.contended.Run(list, s.now(), from, func(wave []*contention.Contender) {
			for part := range slices.Chunk(t.batchesOf(s, wave), scriptSlots) {
				errs = append(errs, t.takeBatches(ctx, s, part))
			}
		})
		return errors.Join(errs...)
	})
}

// batchesOf divides asks, at least one, into scripts.
func (t *taking) batchesOf(s *shard, list []*contention.Contender) (batches []*takeBatch) {
	b := newTakeBatch(s.keys, s.now())
	batches = append(batches, b)
	for _, x := range list {
		cost := b.costOf(x.Own, x.Daemons, t.fleet)
		if !b.fits(cost) {
			b = newTakeBatch(s.keys, s.now())
			batches = append(batches, b)
			cost = b.costOf(x.Own, x.Daemons, t.fleet)
		}
		b.ask(x.Own, cost, x.Out)
	}
	return batches
}

func (t *taking) takeBatches(ctx context.Context, s *shard, batches []*takeBatch) error {
	slots, err := s.acquire(ctx, len(batches))
	if err != nil {
		return err
	}
	defer s.releaseSlots(slots)
	calls := make([]*call, len(batches))
	for i, b := range batches {
		calls[i] = b.call(t.node, slots[i])
	}
	s.run(ctx, takeScript, calls)
	failed := 0
	for i, c := range calls {
		if c.err == nil {
			c.err = batches[i].decode(c)
		}
		if c.err != nil {
			failed += len(batches[i].asks)
			err = c.err // of the last: the scripts of a pipeline mostly fail together
			continue
		}
		t.stale.note(batches[i].stale, uptime())
		t.nows[s.index] = c.now
		for _, g := range batches[i].out {
			g.From.Shard = s.index
		}
	}
	if failed > 0 {
		return fmt.Errorf("take %d campaigns: %w", failed, err)
	}
	return nil
}

func (t *taking) clocks() []delivery.ShardClock {
	var list []delivery.ShardClock
	for shard, now := range t.nows {
		if now > 0 {
			list = append(list, delivery.ShardClock{Shard: shard, Now: now, Jumped: t.shards[shard].jumped.Load()})
			t.shards[shard].clockKnown.Store(true)
		}
	}
	return list
}

// introduce makes the request ask for nothing, to get the shard's clock and the state of the quotas.
func (x *request) introduce() {
	own := *x.Own
	own.Want, own.Weights = 0, nil
	x.Own = &own
	*x.Out = delivery.Granted{}
}

// finish completes the answered requests, and answers the others without the store, where the policies allow
// it.
func (t *taking) finish() {
	e := t.Engine
	for i := range t.all {
		x := &t.all[i]
		if x.Out.GrantedAt == 0 {
			e.fallback.Grant(e.shards[x.shard].now(), x.wanted(), x.Out)
		}
		x.settleAdmission(t)
	}
	t.settleHomes()
	for i := range t.all {
		x := &t.all[i]
		if x.Out.GrantedAt == 0 {
			continue // not answered
		}
		if x.Own != nil && x.Own.More && x.Out.Bound == delivery.BindNone { // the shard was asked for less than was wanted
			x.Out.Bound, x.Out.NextAt = delivery.BindRate, x.Out.GrantedAt+x.ask.Quantum
		}
		if x.wait > 0 && x.ask.Want > 0 && x.Out.Bound == delivery.BindNone {
			x.Out.Bound, x.Out.NextAt = delivery.BindRate, x.Out.GrantedAt+x.wait
		}
		e.m.count(x.ask.Campaign, x.Out)
	}
}

// settleHomes records the answers in the homes of their campaigns.
func (t *taking) settleHomes() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i := range t.all {
		x := &t.all[i]
		switch {
		case !x.leaves:
			x.home.granted(x.Out)
		case x.Out.GrantedAt > 0:
			x.home.left = x.home.without(x.shard)
			here := t.shards[x.home.shard]
			if now, known := here.time(); known && x.Out.First.At > 0 {
				x.home.last = max(x.home.last, now+x.Out.First.At-x.Out.GrantedAt-here.jumped.Load())
			}
		}
	}
}

// wanted is the original ask, for no more than was admitted.
func (x *request) wanted() *delivery.Ask {
	a := *x.ask
	if x.Own != nil {
		a.Want = min(a.Want, x.Own.Want)
	}
	return &a
}
