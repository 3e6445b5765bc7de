package limits

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// winnerTime is how long whoever recorded an incarnation may take to put the windows in place before another tries;
	// it doubles with every recorded incarnation that comes to nothing.
	winnerTime = 5 * time.Second
	// newcomerTime is the same for who has only just started, and does not know whether anybody is at work.
	newcomerTime = 2 * time.Second
	// Pauses begin with firstPause and double: up to pollPause while somebody else is at work, up to failPause after
	// failures.
	firstPause = 25 * time.Millisecond
	pollPause  = 200 * time.Millisecond
	failPause  = time.Second
	// retireTime is how long daemons have, once an incarnation is recorded, to notice the loss and to let go of what
	// they reserved and did not use. What a daemon does not let go of counts as used.
	retireTime = time.Second
	// stepTimeout bounds one question to the ledger or the store.
	stepTimeout = 5 * time.Second
)

// The causes of a new incarnation, for people.
const (
	causeFresh   = "the first"
	causeMissing = "the data is missing, or held by another process"
	causeOther   = "the data is of another incarnation"
)

// shardStore is the part of the engine that recovery works on.
type shardStore interface {
	// inspect tells which incarnation of its data a shard's store holds, 0 where it holds none or is another process
	// than the one that was adopted, and its time.
	inspect(ctx context.Context, shard int) (incarnation, now int64, err error)
	// retire makes the store hold none, if it is this incarnation that it holds.
	retire(ctx context.Context, shard int, incarnation int64) error
	// restore puts windows in the place of whatever the store has under their names, and then adopts the store. Other
	// windows stay as they are. A store that holds an incarnation refuses with errIncarnation, and so does one that did
	// not get all of this restore, in one life of one process and with no other restore begun meanwhile.
	restore(ctx context.Context, shard int, incarnation int64, quotas []restoredQuota) error
}

// restoredQuota is a quota and what each of its windows held.
type restoredQuota struct {
	quota   *delivery.Quota
	windows []restoredWindow
}

// restoredWindow is the units a window counts, oldest first, and when it ends, if it is a fixed one that holds any.
type restoredWindow struct {
	units   []dated
	resetAt int64
}

// dated is units at a store time, microseconds.
type dated struct{ at, units int64 }

// guard keeps grants from a store that has lost its data.
//
// The ledger records which incarnation of a shard's data is in force; the store holds a copy, and every script names
// the one it counts on. A store that answers with another one, or none, has lost its data. Then one daemon, which a
// compare-and-set in the ledger finds, records a new incarnation, puts the windows in place as the ledger knows them,
// and lets the store adopt it; the others wait for that.
//
// An incarnation comes into force when the ledger records it and the store holds it. It is tried once: whoever fails on
// the way, or was overtaken, records another. So a restore that arrives late, or a server that comes back from
// the dead, can bring back only an incarnation that is no longer recorded, and that nobody counts on. What holds such
// a one is retired before the ledger is read: no grant comes between the reading and the restore.
//
// A nil *guard watches nothing: all shards are open, as incarnation 0. The methods are safe for concurrent use.
type guard struct {
	store   shardStore
	ledger  Ledger
	quotas  func() []*delivery.Quota
	reserve *reserve
	log     *slog.Logger
	losses  prometheus.Counter
	closed  prometheus.Gauge

	mu     sync.Mutex
	shards []shardState // under mu
}

// shardState is what is known of one shard.
type shardState struct {
	incarnation int64 // the one counted on last, 0 before the first
	open        bool
	wake        chan struct{} // holds one; told when open becomes false
}

// newGuard makes the guard of a store, nil without a ledger. Nothing is open until it runs.
func newGuard(o ledgerOptions, store shardStore, r *reserve) (*guard, error) {
	if o.Ledger == nil {
		return nil, nil //nolint:nilnil // a nil guard is one that watches nothing
	}
	if err := o.validate(); err != nil {
		return nil, err
	}
	g := &guard{
		store: store, ledger: o.Ledger, quotas: o.Quotas, reserve: r, log: o.Logger, shards: make([]shardState, o.Shards),
		losses: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "pacer_store_losses_total", Help: "Losses of a shard's data that this daemon set about to recover from.",
		}),
		closed: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_store_recovering", Help: "Shards from which nothing is granted until their data is found or rebuilt.",
		}),
	}
	for i := range g.shards {
		g.shards[i].wake = make(chan struct{}, 1)
		g.shards[i].wake <- struct{}{}
	}
	g.closed.Set(float64(o.Shards))
	return g, register(o.Registerer, g.losses, g.closed)
}

// incarnation is the one to name in scripts on a shard; false while none is known to be in force, when no script may
// be sent.
func (g *guard) incarnation(shard int) (int64, bool) {
	if g == nil {
		return 0, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.shards[shard]
	return s.incarnation, s.open
}

// lost says that a store refused a script that named believed. Nothing is granted from the shard until run has found
// out what is in force.
func (g *guard) lost(shard int, believed int64) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.shards[shard]
	if !s.open || s.incarnation != believed {
		return
	}
	s.open = false
	g.closed.Inc()
	s.wake <- struct{}{}
}

// run opens all shards, and again those that are lost, until ctx ends.
func (g *guard) run(ctx context.Context) error {
	if g == nil {
		return nil
	}
	var all errgroup.Group
	for shard := range g.shards {
		all.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case <-g.shards[shard].wake:
				}
				g.recover(ctx, shard)
			}
		})
	}
	return all.Wait()
}

// recover opens a shard; only the end of ctx keeps it from that.
func (g *guard) recover(ctx context.Context, shard int) {
	believed, _ := g.incarnation(shard)
	g.reserve.retire(shard)
	if err := g.reserve.flush(ctx); err != nil {
		g.log.Debug("what is reserved counts as used if the shard is rebuilt", "shard", shard, "error", err)
	}
	r := recovery{guard: g, shard: shard, believed: believed, known: believed, patience: winnerTime, began: time.Now()}
	if believed == 0 {
		r.patience = newcomerTime
	}
	pause := firstPause
	for ctx.Err() == nil {
		incarnation, err := r.step(ctx)
		switch {
		case incarnation != 0:
			g.reserve.resume(shard, r.now)
			g.admit(shard, incarnation)
			r.done(incarnation)
			if incarnation == believed {
				sleep(ctx, firstPause) // a store that keeps changing its mind is not asked in a loop
			}
			return
		case err != nil:
			r.failed(ctx, err)
			sleep(ctx, pause)
			pause = min(2*pause, failPause)
		}
	}
}

// admit opens a shard.
func (g *guard) admit(shard int, incarnation int64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.shards[shard]
	s.incarnation, s.open = incarnation, true
	g.closed.Dec()
}

// recovery is the way of one shard to an incarnation that is in force.
type recovery struct {
	*guard
	shard    int
	believed int64         // what was counted on before, 0 at the start
	known    int64         // the record that is to be replaced; another one is somebody else's, who is at work
	own      int64         // the latest that was recorded here, or may have been
	waiting  int64         // what somebody else recorded meanwhile
	until    time.Time     // how long its windows are waited for
	patience time.Duration // with the next one
	poll     time.Duration // the next pause while waiting
	now      int64         // the store's time when it was last looked at
	began    time.Time
	lossTold bool
	failTold bool
	counted  bool
}

// step brings the recovery on by one attempt or a wait. It returns the incarnation in force, once there is one.
func (r *recovery) step(ctx context.Context) (int64, error) {
	record, found, err := r.look(ctx)
	switch {
	case err != nil:
		return 0, err
	case record != 0 && found == record:
		return record, nil
	}
	cause := causeFresh
	if record != 0 {
		cause = r.tell(record, found)
	}
	switch {
	case r.wait(ctx, record):
		return 0, nil
	case found != 0:
		return 0, r.retire(ctx, found)
	}
	next, won, err := r.replace(ctx, record, cause)
	if err != nil || !won {
		return 0, err
	}
	return 0, r.restore(ctx, record, next)
}

// look reads what is recorded and what the store holds. The record is read on both sides of the question to the
// store: what the store held in between and the record does not name was never going to be in force again.
func (r *recovery) look(ctx context.Context) (record, found int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for before := int64(-1); before != record; {
		before = record
		if found, r.now, err = r.store.inspect(ctx, r.shard); err != nil {
			return 0, 0, fmt.Errorf("inspect shard %d of the store: %w", r.shard, err)
		}
		if record, err = r.ledger.Incarnation(ctx, r.shard); err != nil {
			return 0, 0, fmt.Errorf("look for lost data: %w", err)
		}
	}
	return record, found, nil
}

// tell says, once, that the data is lost, and returns the cause.
func (r *recovery) tell(record, found int64) string {
	cause := causeMissing
	if found != 0 {
		cause = causeOther
	}
	if !r.lossTold {
		r.lossTold = true
		r.log.Warn("the store has lost its data; nothing is granted until the windows are rebuilt",
			"shard", r.shard, "incarnation", record, "cause", cause)
	}
	return cause
}

// wait pauses while somebody else is at work on the shard, and says whether to look again.
func (r *recovery) wait(ctx context.Context, record int64) bool {
	if record == 0 || record == r.known || record == r.own {
		return false
	}
	if record != r.waiting {
		r.waiting, r.until = record, time.Now().Add(r.patience)
		r.patience, r.poll = 2*r.patience, firstPause
	}
	if !time.Now().Before(r.until) {
		r.known = record
		return false
	}
	sleep(ctx, r.poll)
	r.poll = min(2*r.poll, pollPause)
	return true
}

// retire makes the store give up data that is not in force.
func (r *recovery) retire(ctx context.Context, found int64) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := r.store.retire(ctx, r.shard, found); err != nil {
		return fmt.Errorf("retire the data of shard %d: %w", r.shard, err)
	}
	return nil
}

// replace records a new incarnation in the place of record; false when somebody else was faster.
func (r *recovery) replace(ctx context.Context, record int64, cause string) (next int64, won bool, err error) {
	if next, err = newIncarnation(); err != nil {
		return 0, false, err
	}
	r.own = next
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	inForce, err := r.ledger.ReplaceIncarnation(ctx, r.shard, record, next, cause)
	if err != nil {
		return 0, false, fmt.Errorf("record an incarnation of shard %d: %w", r.shard, err)
	}
	if inForce != next {
		return 0, false, nil
	}
	if record != 0 && !r.counted {
		r.counted = true
		r.losses.Inc()
	}
	return next, true, nil
}

// restore puts the windows in place, unless nothing was recorded before: then whatever the store has is right.
func (r *recovery) restore(ctx context.Context, record, next int64) error {
	var quotas []restoredQuota
	if record != 0 {
		sleep(ctx, retireTime)
		if err := r.reserve.flush(ctx); err != nil {
			return fmt.Errorf("write the usage ledger before shard %d is rebuilt: %w", r.shard, err)
		}
		var err error
		if quotas, err = r.rebuild(ctx, r.shard, r.now); err != nil {
			return fmt.Errorf("rebuild shard %d: %w", r.shard, err)
		}
	}
	if err := r.store.restore(ctx, r.shard, next, quotas); err != nil {
		return fmt.Errorf("restore shard %d: %w", r.shard, err)
	}
	return nil
}

// failed says, once, that the shard cannot be opened. To be overtaken by somebody else is no failure.
func (r *recovery) failed(ctx context.Context, err error) {
	if r.failTold || ctx.Err() != nil || errors.Is(err, errIncarnation) {
		return
	}
	r.failTold = true
	r.log.Warn("it cannot be found out what data the store has; nothing is granted until it is",
		"shard", r.shard, "error", err)
}

// done says that grants go on, where it was said or felt that they did not.
func (r *recovery) done(incarnation int64) {
	if r.lossTold || r.failTold || r.believed != 0 && r.believed != incarnation {
		r.log.Info("the store's data is in force; grants go on", "shard", r.shard, "incarnation", incarnation,
			"took", time.Since(r.began).Round(time.Millisecond))
	}
}

// newIncarnation draws a name for a life of a store's data, which Lua's doubles hold.
func newIncarnation() (int64, error) {
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		return 0, fmt.Errorf("draw an incarnation: %w", err)
	}
	return int64(binary.LittleEndian.Uint64(b[:])>>11) | 1, nil
}
