package ledger

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// renewEvery is how often the daemon that puts the windows in place renews its record, and winnerTime how long others wait for a
	// record before one of them tries.
	renewEvery = time.Second
	winnerTime = 5 * time.Second
	// newcomerTime is the same for a daemon that has just started, and does not know whether another is
	// recovering.
	newcomerTime = 2 * time.Second
	firstPause   = 25 * time.Millisecond
	// stepTimeout bounds one call to the ledger or the store.
	stepTimeout = 5 * time.Second
)

var (
	afterFailure    = retry.Backoff{Initial: firstPause, Max: time.Second}
	whileOthersWork = retry.Backoff{Initial: firstPause, Max: 200 * time.Millisecond}
)

var (
	// ErrEpoch says that a store's data is not of the expected epoch: it was lost, or another process answers.
	ErrEpoch = errors.New("the store's data is not what it was")
	// ErrClock says that a store's clock has jumped, so its data is of no use.
	ErrClock = fmt.Errorf("%w: its clock has jumped", ErrEpoch)

	errNotLoaded = errors.New("the catalog is not loaded yet")
)

// The causes of a new epoch, for people. By delivery.CauseFirst and CauseRestored the ledger knows that no loss came before.
const (
	causeMissing = "the data is missing, or held by another process"
	causeOther   = "the data is of another incarnation"
	causeClock   = "its clock has jumped by %s"
)

// Store is the part of the engine that is watched, rebuilt, and counted.
type Store interface {
	// Inspect looks at a shard's store.
	Inspect(ctx context.Context, shard int) (Found, error)
	// Retire makes the store hold no epoch, if it holds this one.
	Retire(ctx context.Context, shard int, epoch int64) error
	// Restore replaces windows in the store, and then adopts the store. Other windows are not changed. A store that
	// holds an epoch refuses with ErrEpoch, and so does one that did not get all parts of this restore within the
	// life of one process, without another restore in between.
	Restore(ctx context.Context, shard int, epoch int64, quotas []Restored) error
	// Count tells what a shard's data of an epoch count of quotas, and the store's time, before which nothing is granted any more. Other data
	// are refused with ErrEpoch.
	Count(ctx context.Context, shard int, epoch int64, list []*delivery.Quota) (now int64, counted []Counted, err error)
}

// Found is what a store holds.
type Found struct {
	Epoch  int64 // of its data, 0 where it has none or is another process than the one that was adopted
	Now    int64 // its time
	Jumped int64 // by how much its clock has jumped since this daemon last heard of it, as far as known
}

// Restored is a quota and what each of its windows held.
type Restored struct {
	Quota   *delivery.Quota
	Windows []Window
}

// Window is the units a window counts, oldest first, and when it ends, if it is a fixed one that holds any.
type Window struct {
	Units   []Dated
	ResetAt int64
}

// Dated is units at a store time, microseconds.
type Dated struct{ At, Units int64 }

// Fence prevents grants from a store that has lost its data.
//
// The ledger records which epoch of a shard's data is in force; the store holds a copy, and every script names the
// one it expects. A store that answers with another one, or none, has lost its data. Then one daemon, chosen by a
// compare-and-set in the ledger, records a new epoch, restores the windows from the ledger, and lets the store
// adopt it; the others wait for that.
//
// An epoch is in force when the ledger records it and the store holds it. It is tried once: a daemon that fails
// on the way, or was overtaken, records another. So a restore that arrives late, or a server that comes back, can
// only bring back an epoch that is no longer recorded, and that no script expects. A store with such an epoch is
// retired before the ledger is read, so that no grant falls between the reading and the restore.
//
// It also remembers what this daemon took of quotas with long windows since the ledger was written. After a loss, that is what the ledger
// lacks.
//
// A nil *Fence checks nothing: all shards are open, with epoch 0. The methods are safe for concurrent
// use.
type Fence struct {
	store  Store
	opt    Options
	losses prometheus.Counter
	closed prometheus.Gauge
	away   retry.Outage // of the ledger, as found by saying that this daemon goes on

	mu     sync.Mutex
	shards []shardState // under mu
}

// shardState is the state of one shard.
type shardState struct {
	epoch  int64 // the one expected last, 0 before the first
	open   bool
	jumped bool               // its data is to be retired, since the clock has jumped
	wake   retry.Signal       // open became false
	joined time.Time          // when it was last certain that the epoch is the recorded one
	taken  map[string][]Dated // by quota, oldest first
}

// holds reports whether units are taken from the data of this epoch.
func (s *shardState) holds(epoch int64) bool { return s.open && s.epoch == epoch }

// NewFence makes the guard of a store, nil without a ledger. Nothing is open until it runs.
func NewFence(o Options, store Store) *Fence {
	if o.Records == nil {
		return nil
	}
	factory := promauto.With(o.Registerer)
	g := &Fence{
		store: store, opt: o, shards: make([]shardState, o.Shards),
		losses: factory.NewCounter(prometheus.CounterOpts{
			Name: "pacer_store_losses_total", Help: "Losses of a shard's data whose recovery this daemon began.",
		}),
		closed: factory.NewGauge(prometheus.GaugeOpts{
			Name: "pacer_store_recovering", Help: "Shards from which nothing is granted until their data is found or rebuilt.",
		}),
	}
	for i := range g.shards {
		g.shards[i].taken, g.shards[i].wake = map[string][]Dated{}, retry.NewSignal()
		g.shards[i].wake.Send()
	}
	g.closed.Set(float64(o.Shards))
	factory.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "pacer_ledger_lag_seconds", Help: "How long the usage ledger has been out of reach, 0 while it is not.",
	}, func() float64 { return g.away.Lasts().Seconds() })
	return g
}

// leads reports whether this daemon is the one that does what one of the fleet is to do.
func (g *Fence) leads() bool { return g.opt.Leads == nil || g.opt.Leads() }

// Epoch is the one to name in scripts on a shard; false while none is known to be in force, when no script may
// be sent.
func (g *Fence) Epoch(shard int) (int64, bool) {
	if g == nil {
		return 0, true
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.shards[shard]
	return s.epoch, s.open
}

// takes names the data from which this daemon takes units.
func (g *Fence) takes() (as []delivery.Taker) {
	for shard := range g.shards {
		epoch, open := g.Epoch(shard)
		if now, known := g.opt.Now(shard); open && known {
			as = append(as, delivery.Taker{Node: g.opt.Node, Shard: shard, Epoch: epoch, At: now})
		}
	}
	return as
}

// Lost reports that a store refused a script that named believed, since its data is another or its clock has jumped. Nothing is granted
// from the shard until Run has determined which epoch is in force.
func (g *Fence) Lost(shard int, believed int64, jumped bool) {
	if g == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.shards[shard]
	if !s.holds(believed) {
		return
	}
	s.open, s.jumped = false, jumped
	g.closed.Inc()
	s.wake.Send()
}

// Run opens all shards, and again those that are lost, and writes the ledger, until ctx ends. It must end after the last call and refund.
func (g *Fence) Run(ctx context.Context) {
	if g == nil {
		return
	}
	var all sync.WaitGroup
	for shard := range g.shards {
		all.Go(func() {
			for ctx.Err() == nil {
				select {
				case <-ctx.Done():
				case <-g.shards[shard].wake:
					g.recover(ctx, shard)
				}
			}
		})
	}
	w := &writer{Fence: g, books: make([]book, len(g.shards))}
	all.Go(func() { w.run(ctx) })
	all.Wait()
}

// recover opens a shard; it tries until ctx ends.
func (g *Fence) recover(ctx context.Context, shard int) {
	g.mu.Lock()
	believed, jumped := g.shards[shard].epoch, g.shards[shard].jumped
	g.mu.Unlock()
	r := recovery{Fence: g, shard: shard, believed: believed, known: believed, began: time.Now()}
	for failures := 0; ctx.Err() == nil; {
		epoch, err := int64(0), error(nil)
		if jumped {
			err = r.retire(ctx, believed)
			jumped = err != nil
		} else if epoch, err = r.step(ctx); epoch != 0 {
			epoch, err = r.join(ctx, epoch)
		}
		switch {
		case epoch != 0:
			r.done(epoch)
			if epoch == believed {
				_ = retry.Sleep(ctx, firstPause) // a store whose answer keeps changing is not asked in a tight loop
			}
			return
		case err != nil:
			r.failed(ctx, err)
			failures++
			_ = retry.Sleep(ctx, afterFailure.Delay(failures))
		}
	}
}

// admit opens a shard, whose epoch was certainly the recorded one at a time.
func (g *Fence) admit(shard int, epoch int64, joined time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := &g.shards[shard]
	s.epoch, s.open, s.joined = epoch, true, joined
	g.closed.Dec()
}

// recovery brings one shard to an epoch that is in force.
type recovery struct {
	*Fence
	shard      int
	believed   int64     // the epoch expected before, 0 at the start
	known      int64     // the record to be replaced; another one was written by a daemon that is recovering
	own        int64     // the latest that this daemon recorded, or may have recorded
	waiting    int64     // the epoch that another daemon recorded meanwhile
	until      time.Time // how long its windows are waited for
	polls      int       // pauses while waiting for it
	now        int64     // the store's time in its last answer
	jumped     int64     // by how much its clock has jumped, and that is not recorded yet
	leapt      int64     // by how much it has jumped in all
	began      time.Time
	lossLogged bool
	outage     retry.Outage
	counted    bool
	reported   bool // what this daemon took from the data before is in the ledger
}

// step makes one attempt, or waits. It returns the epoch in force, once there is one.
func (r *recovery) step(ctx context.Context) (int64, error) {
	record, found, err := r.compare(ctx)
	switch {
	case err != nil:
		return 0, err
	case record.Epoch > r.believed && r.believed != 0 && !r.reported:
		return 0, r.report(ctx)
	case record.Epoch != 0 && found == record.Epoch:
		return record.Epoch, nil
	}
	cause := delivery.CauseFirst
	if record.Epoch > found {
		cause = r.describe(record.Epoch, found)
	}
	switch {
	case record.Epoch != 0 && found > record.Epoch:
		return 0, r.recordAgain(ctx, record, found)
	case r.wait(ctx, record.Epoch):
		return 0, nil
	case found != 0:
		return 0, r.retire(ctx, found)
	}
	next, err := r.replace(ctx, record, cause)
	if err != nil || next.Epoch == 0 {
		return 0, err
	}
	return 0, r.restore(ctx, record.Epoch != 0, next)
}

// recordAgain records what the store holds, if that was recorded after what is recorded now: the database is an older one, as after a
// restore from a backup. It is the ledger that has lost something, not the store.
func (r *recovery) recordAgain(ctx context.Context, record delivery.Incarnation, found int64) error {
	r.opt.Logger.Warn("the database has an older record of the store's data than the store, as after a restore from a backup; the store's counts stay in force and are written again",
		"shard", r.shard, "incarnation", found, "recorded", record.Epoch)
	record.Epoch, found = found, record.Epoch
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if _, err := r.opt.Records.ReplaceEpoch(ctx, r.shard, found, record, delivery.CauseRestored); err != nil {
		return fmt.Errorf("record the data of shard %d again: %w", r.shard, err)
	}
	return nil
}

// compare reads the recorded epoch and the one that the store holds. The record is read before and after the
// store: an epoch that the store held in between and that the record does not name will never be in force
// again.
func (r *recovery) compare(ctx context.Context) (record delivery.Incarnation, found int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	for before := int64(-1); before != record.Epoch; {
		before = record.Epoch
		store, err := r.store.Inspect(ctx, r.shard)
		if err != nil {
			return record, 0, fmt.Errorf("inspect shard %d of the store: %w", r.shard, err)
		}
		found, r.now, r.jumped, r.leapt = store.Epoch, store.Now, r.jumped+store.Jumped, r.leapt+store.Jumped
		if record, err = r.opt.Records.Epoch(ctx, r.shard); err != nil {
			return record, 0, fmt.Errorf("look for lost data: %w", err)
		}
	}
	return record, found, nil
}

// describe logs once that the data is lost, and returns the cause. A daemon that has just started does not know yet whether another one is
// just putting the first data in place.
func (r *recovery) describe(record, found int64) string {
	cause := causeMissing
	switch {
	case r.jumped != 0:
		cause = fmt.Sprintf(causeClock, time.Duration(r.jumped)*time.Microsecond)
	case found != 0:
		cause = causeOther
	}
	if !r.lossLogged && (r.believed != 0 || record == r.known) {
		r.lossLogged = true
		r.opt.Logger.Warn("the store has lost its data; nothing is granted until the windows are rebuilt",
			"shard", r.shard, "incarnation", record, "cause", cause)
	}
	return cause
}

// wait pauses while another daemon recovers the shard, and says whether to look again.
func (r *recovery) wait(ctx context.Context, record int64) bool {
	if record == 0 || record == r.known || record == r.own {
		return false
	}
	if record != r.waiting {
		patience := winnerTime
		if r.believed == 0 && r.waiting == 0 {
			patience = newcomerTime
		}
		r.waiting, r.until, r.polls = record, time.Now().Add(patience), 0
	}
	if !time.Now().Before(r.until) {
		r.known = record
		return false
	}
	r.polls++
	_ = retry.Sleep(ctx, whileOthersWork.Delay(r.polls))
	return true
}

// retire makes the store drop data that is not in force.
func (r *recovery) retire(ctx context.Context, found int64) error {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	if err := r.store.Retire(ctx, r.shard, found); err != nil {
		return fmt.Errorf("retire the data of shard %d: %w", r.shard, err)
	}
	return nil
}

// replace records a new epoch in place of record, and what a jump of the clock means for the ledger; none when another daemon was faster,
// which knew of the jump as well.
func (r *recovery) replace(ctx context.Context, record delivery.Incarnation, cause string) (next delivery.Incarnation, err error) {
	r.own = newEpoch(record.Epoch)
	next, jumped := record, r.jumped
	next.Epoch, r.jumped = r.own, 0
	if jumped != 0 && record.Epoch == r.believed {
		next.Ahead, next.JumpedAt = max(0, record.Ahead+jumped), r.now
	}
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	inForce, err := r.opt.Records.ReplaceEpoch(ctx, r.shard, record.Epoch, next, cause)
	if err != nil {
		return next, fmt.Errorf("record an epoch of shard %d: %w", r.shard, err)
	}
	if inForce != r.own {
		return delivery.Incarnation{}, nil
	}
	if record.Epoch != 0 && !r.counted {
		r.counted = true
		r.losses.Inc()
	}
	return next, nil
}

// join says that this daemon takes from the data of an epoch, and opens the shard. It returns 0 if that is not the recorded one any more.
func (r *recovery) join(ctx context.Context, epoch int64) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTimeout)
	defer cancel()
	joined := time.Now()
	written, err := r.opt.Records.Join(ctx, r.opt.Node, []delivery.Taker{{Node: r.opt.Node, Shard: r.shard, Epoch: epoch, At: r.now}})
	if err != nil {
		return 0, fmt.Errorf("say that this daemon takes from shard %d: %w", r.shard, err)
	}
	if _, inForce := written[r.shard]; !inForce {
		return 0, nil
	}
	r.admit(r.shard, epoch, joined)
	return epoch, nil
}

// failed logs once that the shard cannot be opened. Being overtaken by another daemon is not a
// failure.
func (r *recovery) failed(ctx context.Context, err error) {
	if ctx.Err() != nil || errors.Is(err, ErrEpoch) || !r.outage.Failed() {
		return
	}
	r.opt.Logger.Warn("the state of the store's data is not known; nothing is granted until it is",
		"shard", r.shard, "error", err)
}

// done logs that grants continue, if their interruption was logged or noticeable.
func (r *recovery) done(epoch int64) {
	if r.lossLogged || r.outage.Failures() > 0 || r.believed != 0 && r.believed != epoch {
		r.opt.Logger.Info("the store's data is in force; grants continue", "shard", r.shard, "incarnation", epoch,
			"took", time.Since(r.began).Round(time.Millisecond))
	}
}

// newEpoch draws an epoch: a later one is greater, and no two daemons draw the same. It fits into Lua's doubles.
func newEpoch(record int64) int64 {
	var b [4]byte
	_, _ = rand.Read(b[:]) // never fails, as documented
	few := int64(binary.LittleEndian.Uint32(b[:]) >> 10)
	return max((time.Now().Unix()-epochsBegin)<<22, record) + 1 + few
}

// epochsBegin is the year 2020.
const epochsBegin = 1577836800
