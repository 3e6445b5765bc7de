package limits

import (
	"context"
	"math"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	writeEvery   = time.Second           // without a hurry, and after a failure
	hurryPause   = 20 * time.Millisecond // between writes that cannot wait
	writeTimeout = 2 * time.Second       // of one write
	maxRows      = 5000                  // of one write
	pruneEvery   = time.Hour
	pruneTimeout = time.Minute
	maxKept      = 400 * 24 * time.Hour // how long use is kept at the most
)

// run writes the ledger until ctx ends, and then what was really used. It is to end after the last call and refund.
// Changes are written once a second, all together; what runs short is reserved at once.
func (r *reserve) run(ctx context.Context) error {
	if r == nil {
		return nil
	}
	tick := time.NewTicker(writeEvery)
	defer tick.Stop()
	var pruned time.Time
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
		} else if time.Since(pruned) >= pruneEvery && r.prune(ctx) {
			pruned = time.Now()
		}
		sleep(ctx, pause)
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// flush brings the ledger up to date, in as many writes as it takes. One caller writes at a time.
func (r *reserve) flush(ctx context.Context) error {
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
		if len(p.usage)+len(p.resets) > 0 {
			err := r.send(ctx, p)
			r.note(ctx, p, err)
			if err != nil {
				return err
			}
		}
		if !p.full() {
			return nil
		}
	}
}

// finish writes what was used; nothing is allowed from then on.
func (r *reserve) finish(ctx context.Context) error {
	r.mu.Lock()
	r.finished = true
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	if err := r.flush(ctx); err != nil {
		r.log.Warn("the usage ledger keeps units that were reserved and not used", "error", err)
	}
	return nil
}

// retire lets go of what is reserved on a shard and not used, until resume: its store has lost its data, and a rebuild
// is to count no more than what was used. The next flush writes it.
func (r *reserve) retire(shard int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retired[shard] = true
}

// resume lets quotas of a shard be reserved again, whose store's time is now.
func (r *reserve) resume(shard int, now int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.retired[shard] = false
	r.seen[shard] = sighting{now, time.Now()}
}

// lastTarget is what a minute used, and what calls under way may still bring.
func (a *account) lastTarget(minute, now int64) int64 {
	n := a.minutes[minute].units()
	if current := a.minute(now); minute >= current-1 && minute <= current+1 {
		n += (a.held + 99) / 100
	}
	return n
}

// page is what one write carries, and where it comes from.
type page struct {
	usage   []delivery.Usage
	tallies []*tally
	resets  []delivery.Anchor
	anchors []*anchor
}

func (p *page) full() bool { return len(p.usage)+len(p.resets) >= maxRows }

func (r *reserve) send(ctx context.Context, p *page) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return r.ledger.WriteUsage(ctx, r.node, p.usage, p.resets)
}

// collect gathers what differs from its target, up to a page, and forgets what is long over.
func (r *reserve) collect() *page {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, reserved := &page{}, int64(0)
	for id, a := range r.accounts {
		now, ok := r.now(a.quota)
		if !ok {
			continue
		}
		target := (*account).lastTarget
		if !r.finished && !r.retired[shardOf(a.quota, r.shards)] {
			target = (*account).target
			a.open(now)
		}
		a.collect(p, now, target)
		for _, t := range a.minutes {
			reserved += max(0, t.durable-t.units())
		}
		if len(a.minutes) == 0 && a.held == 0 {
			delete(r.accounts, id)
		}
	}
	r.units.Set(float64(reserved))
	if len(p.usage)+len(p.resets) == 0 && !r.failing {
		r.current = time.Now()
	}
	return p
}

// open makes room for the minutes ahead, while the quota is asked for, and drops those that are long over and written.
func (a *account) open(now int64) {
	a.oldest = max(a.oldest, now/ledgerMinute-keptMinutes)
	current := a.minute(now)
	if now-a.asked <= idleAfter {
		for m := current; m <= current+aheadMinutes; m++ {
			a.tally(m)
		}
	}
	for m, t := range a.minutes {
		if m < a.oldest && !t.unsure && t.durable == t.units() {
			delete(a.minutes, m)
		}
	}
}

func (a *account) collect(p *page, now int64, target func(a *account, minute, now int64) int64) {
	for m, t := range a.minutes {
		if p.full() {
			return
		}
		n := target(a, m, now)
		if n == t.durable && !t.unsure {
			continue
		}
		t.durable, t.sent, t.unsure = min(t.durable, n), n, true
		p.usage = append(p.usage, delivery.Usage{Quota: a.quota.ID, Minute: m, Units: n})
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
		p.resets = append(p.resets, delivery.Anchor{Quota: a.quota.ID, Span: span, ResetAt: n.at})
		p.anchors = append(p.anchors, n)
	}
}

// note takes the outcome of a write into account, and tells when the ledger goes away and comes back.
func (r *reserve) note(ctx context.Context, p *page, err error) {
	r.mu.Lock()
	failed, since := r.failing, r.current
	if err == nil {
		for _, t := range p.tallies {
			t.durable, t.unsure = t.sent, false
		}
		for _, n := range p.anchors {
			n.written = n.sent
		}
		r.current = time.Now()
	}
	r.failing = err != nil && (r.failing || ctx.Err() == nil)
	failing := r.failing
	r.mu.Unlock()
	switch {
	case failing && !failed:
		r.log.Warn("the usage ledger cannot be written; quotas with policy closed go on for as long as units are reserved",
			"error", err)
	case failed && !failing:
		r.log.Info("the usage ledger is written again", "away", time.Since(since).Round(time.Second))
	}
}

// lag is how long the ledger has been behind, in seconds.
func (r *reserve) lag() float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failing {
		return 0
	}
	return time.Since(r.current).Seconds()
}

// prune forgets what no window can need again; false when that is not known yet.
func (r *reserve) prune(ctx context.Context) bool {
	kept, oldest := time.Duration(0), int64(math.MaxInt64)
	for _, q := range r.quotas() {
		r.mu.Lock()
		now, known := r.now(q)
		r.mu.Unlock()
		if !known {
			return false
		}
		oldest = min(oldest, now)
		for _, w := range q.Windows {
			kept = max(kept, w.Span)
		}
	}
	if kept == 0 {
		return false // no quotas, or the catalog is not loaded yet
	}
	kept = min(kept+24*time.Hour, maxKept)
	ctx, cancel := context.WithTimeout(ctx, pruneTimeout)
	defer cancel()
	if err := r.ledger.PruneUsage(ctx, (oldest-kept.Microseconds())/ledgerMinute); err != nil {
		r.log.Debug("the usage ledger was not pruned; the next attempt is in an hour", "error", err)
	}
	return true
}
