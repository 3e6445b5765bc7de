package ledger

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/retry"
)

// reportTime is how long daemons have, once an epoch is recorded, to notice the loss and to say what they took that the ledger lacks. The
// others count as having taken all that they could.
const reportTime = joinEvery + time.Second/2

// report puts what this daemon took of the lost data into the ledger, as far as it was not written from the store. It does nothing if
// another daemon has given it up already, and counted it as having taken all that it could.
func (r *recovery) report(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	all, err := r.opt.Records.Takers(ctx, r.shard)
	if err != nil {
		return fmt.Errorf("read who took from shard %d: %w", r.shard, err)
	}
	for _, a := range all {
		if a.Node == r.opt.Node {
			err = r.opt.Records.Leave(ctx, r.shard, []string{a.Node}, r.since(r.shard, a.Since))
		}
	}
	if err != nil {
		return fmt.Errorf("write what was taken from shard %d: %w", r.shard, err)
	}
	r.forget(r.shard)
	r.reported = true
	return nil
}

// awaitReports waits until all daemons that took from the lost data have said how much, and writes for the others all that they could have
// taken.
func (r *recovery) awaitReports(ctx context.Context) error {
	if r.believed != 0 && !r.reported {
		if err := r.report(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, reportTime+stepTimeout)
	defer cancel()
	for began := time.Now(); ; {
		missing, err := r.opt.Records.Takers(ctx, r.shard)
		missing = slices.DeleteFunc(missing, func(a delivery.Taker) bool { return a.Epoch >= r.own }) // they take from data that are put in place
		if err != nil || len(missing) == 0 {
			return err
		}
		if time.Since(began) < reportTime {
			if err := retry.Sleep(ctx, firstPause); err != nil {
				return err
			}
			continue
		}
		quotas := r.quotasOf(r.shard, inLedger)
		if quotas == nil {
			return errNotLoaded
		}
		if _, _, err := r.compare(ctx); err != nil { // the data may have been there again, and taken from, until now
			return err
		}
		nodes, usage := r.giveUp(missing, quotas)
		r.opt.Logger.Warn("daemons have not said what they took since the usage ledger was written; all that they could have taken counts as used",
			"shard", r.shard, "daemons", len(nodes))
		return r.opt.Records.Leave(ctx, r.shard, nodes, usage)
	}
}

// giveUp returns the most that daemons can have taken.
func (r *recovery) giveUp(missing []delivery.Taker, quotas []*delivery.Quota) (nodes []string, usage []delivery.Usage) {
	now, since, until := r.now-r.leapt+second, int64(math.MaxInt64), int64(0) // the clock may be a second behind that of the lost data
	for _, a := range missing {
		nodes = append(nodes, a.Node)
		since, until = min(since, a.Since), max(until, a.At+goesOnFor.Microseconds())
	}
	if since < now && now < until {
		until = now // the data were lost by then
	}
	if until <= since {
		return nodes, nil
	}
	in, rates := time.Duration(until-since)*time.Microsecond, map[string]int64{}
	if r.opt.Rates != nil {
		rates = r.opt.Rates(in + time.Second) // slots are granted ahead
	}
	for _, q := range quotas {
		units := mostIn(q, in)
		if r.opt.Rates != nil {
			units = min(units, rates[q.ID])
		}
		usage = append(usage, delivery.Usage{Quota: q.ID, Minute: r.now / ledgerMinute, Units: units})
	}
	return nodes, usage
}

// mostIn is the most units that the windows of a quota allow in a time. A fixed window may restart within it.
func mostIn(q *delivery.Quota, in time.Duration) int64 {
	most := model.MaxLimit
	for _, w := range q.Windows {
		times := int64(in/w.Span) + 1
		if w.Algorithm == delivery.AlgorithmFixed {
			times++
		}
		if w.Limit <= model.MaxLimit/times {
			most = min(most, w.Limit*times)
		}
	}
	return most
}
