package limits

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Take asks for slots for any number of campaigns, in one round trip (up to scriptSlots scripts, so for thousands of
// them). Items are in the order of the asks.
//
// On an error the reply is still good as far as it goes: items that could not be asked for have Units 0 and
// GrantedAt 0, the others are granted and count.
//
// Granted.NextAt 0 on a short item means that no time will bring more, only a change of configuration: the rate or a
// limit is 0, or the job at the head weighs more than a limit.
// Granted.First may lie before GrantedAt where the campaign has a burst; such slots are due at once.
func (e *Engine) Take(ctx context.Context, asks []delivery.Ask) (delivery.TakeReply, error) {
	reply := delivery.TakeReply{Items: make([]delivery.Granted, len(asks))}
	started := time.Now()
	var batches []*takeBatch
	for i := range asks {
		if err := validAsk(&asks[i]); err != nil {
			e.refuse(&asks[i], err, &reply.Items[i])
			continue
		}
		if n := len(batches); n == 0 || batches[n-1].full() {
			batches = append(batches, newTakeBatch(e.keys))
		}
		batches[len(batches)-1].add(&asks[i], &reply.Items[i])
	}
	var errs []error
	for len(batches) > 0 {
		n := min(len(batches), scriptSlots)
		if err := e.takeBatches(ctx, batches[:n], &reply); err != nil {
			errs = append(errs, err)
		}
		batches = batches[n:]
	}
	e.m.takeSeconds.Observe(time.Since(started).Seconds())
	e.m.takeItems.Observe(float64(len(asks)))
	return reply, errors.Join(errs...)
}

func (e *Engine) takeBatches(ctx context.Context, batches []*takeBatch, reply *delivery.TakeReply) error {
	slots, err := e.acquire(ctx, len(batches))
	if err != nil {
		return err
	}
	defer e.release(slots)
	calls := make([]*call, len(batches))
	for i, b := range batches {
		calls[i] = b.call(e, slots[i])
	}
	e.run.run(ctx, takeScript, calls)
	var errs []error
	for i, c := range calls {
		if c.err != nil {
			errs = append(errs, fmt.Errorf("take %d campaigns: %w", len(batches[i].asks), c.err))
			continue
		}
		now, err := batches[i].decode(c.reply)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(reply.Clocks) == 0 {
			reply.Clocks = []delivery.ShardClock{{Now: now}}
		}
		e.m.countDenied(batches[i])
	}
	return errors.Join(errs...)
}

// refuse answers an ask that cannot be put to the scripts, and says so once per revision of the campaign.
func (e *Engine) refuse(a *delivery.Ask, err error, g *delivery.Granted) {
	*g = delivery.Granted{Rate: a.Campaign.Rate, Revision: a.Campaign.Revision, Bound: delivery.BindHeld, Competitors: 1,
		From: delivery.Provenance{Campaign: a.Campaign}}
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

// Refund hands undispatched units back. Like a take it is never done twice.
func (e *Engine) Refund(ctx context.Context, grants []delivery.Grant) error {
	var errs []error
	for len(grants) > 0 {
		n := min(len(grants), maxItems)
		if err := e.refundBatch(ctx, grants[:n]); err != nil {
			errs = append(errs, err)
		}
		grants = grants[n:]
	}
	return errors.Join(errs...)
}

func (e *Engine) refundBatch(ctx context.Context, grants []delivery.Grant) error {
	slots, err := e.acquire(ctx, 1)
	if err != nil {
		return err
	}
	defer e.release(slots)
	c := e.encodeRefund(slots[0], grants)
	e.run.run(ctx, refundScript, []*call{c})
	if c.err != nil {
		return fmt.Errorf("refund %d grants: %w", len(grants), c.err)
	}
	return nil
}
