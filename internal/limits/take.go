package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Take asks for slots for any number of campaigns, in one round trip to every shard that is concerned, all at once (up
// to scriptSlots scripts a shard, so for thousands of campaigns). Campaigns with quotas in several shards take a second
// one. Items are in the order of the asks.
//
// On an error the reply is still good as far as it goes: items that could not be asked for have Units 0 and
// GrantedAt 0, the others are granted and count. A shard that fails does not touch the items of the others.
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
	e.fallback.observe(asks, &reply)
	t.finish()
	e.m.takeSeconds.Observe(time.Since(started).Seconds())
	e.m.takeItems.Observe(float64(len(asks)))
	return reply, err
}

// taking is one take under way.
type taking struct {
	*Engine
	errands []errand
	first   []request // of the first round: all but what waits for other shards' answers
	divided []*errand // those of several shards
	nows    []int64   // of the shards that answered, 0 of others
	unpaid  []error   // why shards cannot be charged with what was granted without them, and so not be asked
}

// errand is one ask on its way.
type errand struct {
	ask  *delivery.Ask // as it came
	out  *delivery.Granted
	home *home
	// parts are the campaign's layout when it was asked for.
	parts []part
	own   *delivery.Ask // what the home is asked
	admission
	limited bool   // own wants less than the ask
	at      int    // the home's shard
	wait    int64  // microseconds for which the campaign is not granted anything, since it moved
	away    []stay // what other shards are asked
}

// request is what one shard is asked in one round.
type request struct {
	shard int
	ask   *delivery.Ask
	out   *delivery.Granted
}

func (x *errand) request() request { return request{shard: x.at, ask: x.own, out: x.out} }

// plan says which shard is asked for what. Asks that cannot be put to the scripts are answered at once.
func (e *Engine) plan(asks []delivery.Ask, items []delivery.Granted) *taking {
	t := &taking{
		Engine: e, errands: make([]errand, 0, len(asks)), first: make([]request, 0, len(asks)),
		nows: make([]int64, len(e.shards)),
	}
	now := e.local()
	for i := range asks {
		if err := validAsk(&asks[i]); err != nil {
			e.refuse(&asks[i], err, &items[i])
			continue
		}
		t.errands = append(t.errands, errand{ask: &asks[i], out: &items[i]})
		t.add(&t.errands[len(t.errands)-1], now)
	}
	return t
}

// add puts an errand on its way. Its home is asked for the ask as it came wherever that serves.
func (t *taking) add(x *errand, now int64) {
	t.mu.Lock()
	x.home = t.homes.at(x.ask, len(t.shards), now)
	parts, held, closed := x.home.parts, x.home.heldUntil(x.ask.HeldUntil), x.home.closed
	t.mu.Unlock()
	x.parts, x.at, x.own = parts, parts[0].shard, x.ask
	if later := t.fallback.heldUntil(t.shards[x.at].now(), x.ask); later > x.ask.HeldUntil {
		held = max(held, later)
	}
	if parts[0].campaign != x.ask.Campaign || held != x.ask.HeldUntil {
		own := *x.ask
		own.Campaign, own.HeldUntil = parts[0].campaign, held
		x.own = &own
	}
	switch {
	case now < closed:
		x.introduce()
		x.wait = closed - now
		t.first = append(t.first, x.request())
	case !x.admit(t):
		if !t.shards[x.at].told.Load() {
			x.introduce()
			x.limited = true
			t.first = append(t.first, x.request())
		}
	case len(parts) > 1:
		x.away = stays(x.ask, x.own.Want, parts[1:])
		for i := range x.away {
			t.first = append(t.first, x.away[i].request())
		}
		t.divided = append(t.divided, x)
	default:
		t.first = append(t.first, x.request())
	}
}

// run does the rounds.
func (t *taking) run(ctx context.Context) error {
	sent := time.Now()
	err := t.round(ctx, t.first)
	if len(t.divided) == 0 {
		return err
	}
	return errors.Join(err, t.gather(ctx, sent))
}

// round puts requests to their shards, all at once.
func (t *taking) round(ctx context.Context, requests []request) error {
	batches := make([][]*takeBatch, len(t.shards))
	var asked []*shard
	for _, r := range requests {
		if t.unpaid[r.shard] != nil {
			continue
		}
		s, list := t.shards[r.shard], batches[r.shard]
		if len(list) == 0 {
			asked = append(asked, s)
		}
		if n := len(list); n == 0 || list[n-1].full() {
			list = append(list, newTakeBatch(s.keys))
		}
		list[len(list)-1].add(r.ask, r.out)
		batches[r.shard] = list
	}
	return t.each(asked, func(s *shard) error {
		var errs []error
		for list := batches[s.index]; len(list) > 0; {
			n := min(len(list), scriptSlots)
			errs = append(errs, t.takeBatches(ctx, s, list[:n]))
			list = list[n:]
		}
		return errors.Join(errs...)
	})
}

func (t *taking) takeBatches(ctx context.Context, s *shard, batches []*takeBatch) error {
	slots, err := s.acquire(ctx, len(batches))
	if err != nil {
		return err
	}
	defer s.release(slots)
	calls := make([]*call, len(batches))
	for i, b := range batches {
		calls[i] = b.call(t.node, slots[i], s.now())
	}
	s.run(ctx, takeScript, calls)
	var errs []error
	for i, c := range calls {
		if c.err != nil {
			errs = append(errs, fmt.Errorf("take %d campaigns: %w", len(batches[i].asks), c.err))
			continue
		}
		if err := batches[i].decode(c); err != nil {
			errs = append(errs, err)
			continue
		}
		t.nows[s.index] = c.now
		s.keep(c.now)
		for _, g := range batches[i].out {
			g.From.Shard = s.index
		}
	}
	return errors.Join(errs...)
}

func (t *taking) clocks() []delivery.ShardClock {
	var list []delivery.ShardClock
	for shard, now := range t.nows {
		if now > 0 {
			list = append(list, delivery.ShardClock{Shard: shard, Now: now})
			t.shards[shard].told.Store(true)
		}
	}
	return list
}

// introduce makes the errand ask its home for nothing, which brings the home's clock and the state of the quotas.
func (x *errand) introduce() {
	own := *x.own
	own.Want, own.Weights = 0, nil
	x.own = &own
	*x.out = delivery.Granted{}
}

// finish completes what was answered, and answers without the store what was not, where the policies allow it.
func (t *taking) finish() {
	e := t.Engine
	for i := range t.errands {
		x := &t.errands[i]
		if x.out.GrantedAt == 0 {
			e.fallback.grant(e.shards[x.at].now(), x.wanted(), x.out)
		}
		x.settleAdmission(t)
	}
	e.mu.Lock()
	for i := range t.errands {
		t.errands[i].home.granted(t.errands[i].out)
	}
	e.mu.Unlock()
	for i := range t.errands {
		x := &t.errands[i]
		if x.out.GrantedAt == 0 {
			continue // not answered
		}
		x.out.From.Campaign = x.ask.Campaign
		if x.limited && x.out.Bound == delivery.BindNone { // all that was asked for is less than what was wanted
			x.out.Bound, x.out.NextAt = delivery.BindRate, x.out.GrantedAt+x.ask.Quantum
		}
		if x.wait > 0 && x.ask.Want > 0 && x.out.Bound == delivery.BindNone {
			x.out.Bound, x.out.NextAt = delivery.BindRate, x.out.GrantedAt+x.wait
		}
		e.m.count(x.ask.Campaign, x.out)
	}
}

// wanted is the ask as it came, for no more than was admitted.
func (x *errand) wanted() *delivery.Ask {
	a := *x.ask
	a.Want = min(a.Want, x.own.Want)
	return &a
}

// refuse answers an ask that cannot be put to the scripts, and says so once per revision of the campaign.
func (e *Engine) refuse(a *delivery.Ask, err error, g *delivery.Granted) {
	*g = delivery.Granted{
		Rate: a.Campaign.Rate, Revision: a.Campaign.Revision, Bound: delivery.BindHeld, Competitors: 1, Daemons: 1,
		From: delivery.Provenance{Campaign: a.Campaign},
	}
	e.mu.Lock()
	revision, known := e.warned[a.Campaign.ID]
	if len(e.warned) >= maxWarned {
		clear(e.warned)
	}
	e.warned[a.Campaign.ID] = a.Campaign.Revision
	e.mu.Unlock()
	if !known || revision != a.Campaign.Revision {
		e.log.Error("campaign is held: its limits cannot be kept", "campaign", a.Campaign.ID, "error", err)
	}
}

// maxWarned bounds the memory of what was complained about.
const maxWarned = 10_000
