package ledger

import (
	"context"
	"maps"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/shards"
)

const (
	writeEvery   = time.Second           // when nothing is urgent, and after a failure
	hurryPause   = 20 * time.Millisecond // between urgent writes
	writeTimeout = 2 * time.Second       // of one write
	maxRows      = 5000                  // of one write
)

// Run writes the ledger until ctx ends, and then the actual use. It must end after the last call and refund.
// Changes are written once a second, all together; units that run short are reserved at once.
func (r *Reserve) Run(ctx context.Context) error {
	if r == nil {
		return nil
	}
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return r.finish(ctx)
		case <-tick.C:
		case <-r.urgent:
		}
		pause := hurryPause
		if err := r.flush(ctx); err != nil {
			pause = writeEvery
		}
		_ = retry.Sleep(ctx, pause)
	}
}

// flush updates the ledger, in as many writes as necessary, and finds out whether the shards' epochs are still the
// recorded ones. One caller writes at a time.
func (r *Reserve) flush(ctx context.Context) error {
	if r == nil {
		return nil
	}
	select {
	case r.writing <- struct{}{}:
		defer func() { <-r.writing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		p := r.collect()
		if len(p.Usage)+len(p.Anchors) > 0 || p.confirm {
			began := time.Now()
			stale, err := r.send(ctx, p)
			r.note(ctx, p, began, stale, err)
			if err != nil {
				return err
			}
			if len(stale) > 0 {
				return nil // what was not written is collected again when these shards are retired
			}
		}
		if !p.full() {
			return nil
		}
	}
}

// finish writes the actual use; nothing is allowed from then on.
func (r *Reserve) finish(ctx context.Context) error {
	r.mu.Lock()
	r.finished = true
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := r.flush(ctx); err != nil {
		r.opt.Logger.Warn("the usage ledger keeps units that were reserved and not used", "error", err)
	}
	return nil
}

// retire releases units reserved on a shard and not used, until resume: its store has lost its data, and a rebuild
// should count only units that were used. The next flush writes it.
func (r *Reserve) retire(shard int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.epochs, shard)
}

// writeAgain lets what was used of a shard's quotas lately be written again: the ledger is an older one.
func (r *Reserve) writeAgain(shard int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, a := range r.accounts {
		if shards.Of(uint64(a.quota.Shard), r.opt.Shards) != shard {
			continue
		}
		for _, t := range a.minutes {
			t.durable, t.unsure = 0, true
		}
		for _, n := range a.anchors {
			n.written = 0
		}
	}
}

// resume lets quotas of a shard be reserved again, whose store holds an epoch and whose time is now.
func (r *Reserve) resume(shard int, epoch, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.epochs[shard], r.confirmed[shard] = epoch, time.Now()
	r.seen[shard] = sighting{now, time.Now()}
}

// lastTarget is the use of a minute, and the units that calls in flight may still bring.
func (a *account) lastTarget(minute, now int64) int64 {
	n := a.minutes[minute].used
	if current := a.minute(now); minute >= current-1 && minute <= current+1 {
		n += a.held
	}
	return n
}

// page is the rows of one write, and the entries they come from.
type page struct {
	delivery.UsagePage
	tallies []*tally
	anchors []*anchor
	confirm bool // it is time to confirm the epochs
}

func (p *page) full() bool { return len(p.Usage)+len(p.Anchors) >= maxRows }

func (r *Reserve) send(ctx context.Context, p *page) (stale []int, err error) {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return r.opt.Records.WriteUsage(ctx, p.UsagePage)
}

// collect gathers entries that differ from their target, up to a page, and drops outdated ones.
func (r *Reserve) collect() *page {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, reserved := &page{UsagePage: delivery.UsagePage{Node: r.opt.Node}}, int64(0)
	if !r.finished { // the last word is taken from anybody
		p.Epochs = maps.Clone(r.epochs)
		for shard := range r.epochs {
			p.confirm = p.confirm || time.Since(r.confirmed[shard]) >= confirmEvery
		}
	}
	for id, a := range r.accounts {
		now, ok := r.now(a.quota)
		if !ok {
			continue
		}
		target := (*account).lastTarget
		epoch := r.epochs[shards.Of(uint64(a.quota.Shard), r.opt.Shards)]
		if !r.finished && epoch != 0 {
			target = (*account).target
			a.open(now)
		}
		a.collect(p, now, epoch, target)
		for _, t := range a.minutes {
			reserved += max(0, t.durable-t.used)
		}
		if len(a.minutes) == 0 && a.held == 0 {
			delete(r.accounts, id)
		}
	}
	r.units.Set(float64(reserved))
	return p
}

// open adds the minutes ahead, while the quota is asked for, and drops outdated minutes that are written.
func (a *account) open(now int64) {
	a.oldest = max(a.oldest, now/ledgerMinute-keptMinutes)
	current := a.minute(now)
	if now-a.asked <= idleAfter {
		for m := current; m <= current+aheadMinutes; m++ {
			a.tally(m)
		}
	}
	for m, t := range a.minutes {
		if m < a.oldest && !t.unsure && t.durable == t.used {
			delete(a.minutes, m)
		}
	}
}

func (a *account) collect(p *page, now, epoch int64, target func(a *account, minute, now int64) int64) {
	for m, t := range a.minutes {
		if p.full() {
			return
		}
		n := target(a, m, now)
		if n == t.durable && !t.unsure {
			continue
		}
		t.durable, t.sent, t.unsure = min(t.durable, n), n, true
		p.Usage = append(p.Usage, delivery.Usage{Quota: a.quota.ID, Minute: m, Units: n, Epoch: epoch})
		p.tallies = append(p.tallies, t)
	}
	for span, n := range a.anchors {
		if p.full() {
			return
		}
		if n.at == n.written {
			continue
		}
		n.sent = n.at
		p.Anchors = append(p.Anchors, delivery.Anchor{Quota: a.quota.ID, Span: span, ResetAt: n.at})
		p.anchors = append(p.anchors, n)
	}
}

// note applies the outcome of a write, and logs when the ledger becomes unavailable and available.
func (r *Reserve) note(ctx context.Context, p *page, began time.Time, stale []int, err error) {
	if err != nil {
		if ctx.Err() == nil && r.outage.Failed() {
			r.opt.Logger.Warn("the usage ledger cannot be written; quotas with policy closed continue for as long as units are reserved",
				"error", err)
		}
		return
	}
	if away, over := r.outage.Worked(); over {
		r.opt.Logger.Info("the usage ledger is written again", "away", away.Round(time.Second))
	}
	for _, shard := range stale {
		r.opt.Logger.Warn("another daemon takes from other data of this shard; nothing is granted until that is settled",
			"shard", shard, "incarnation", p.Epochs[shard])
		r.lost(shard, p.Epochs[shard])
	}
	if len(stale) > 0 {
		return
	}
	r.mu.Lock()
	for shard, epoch := range p.Epochs {
		if r.epochs[shard] == epoch {
			r.confirmed[shard] = began
		}
	}
	for _, t := range p.tallies {
		t.durable, t.unsure = t.sent, false
	}
	for _, n := range p.anchors {
		n.written = n.sent
	}
	r.mu.Unlock()
}
