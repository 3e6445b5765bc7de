package limits

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/semaphore"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/eventual"
	"github.com/pacer/pacer/internal/limits/ledger"
	"github.com/pacer/pacer/internal/limits/local"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/shards"
)

const defaultTimeout = 250 * time.Millisecond

// Options configure an Engine.
type Options struct {
	// Shards talk to Redis. Their clients' own retries must be off (MaxRetries: -1) and they must honour deadlines
	// (ContextTimeoutEnabled); the package gives both.
	Shards *shards.Set
	// KeyPrefix begins every key, inside the hash tag.
	KeyPrefix string
	Logger    *slog.Logger
	// Registerer receives the engine's metrics.
	Registerer prometheus.Registerer
	// Ledger survives a loss of the store, and Quotas are those of the catalog (nil: not loaded yet), which are
	// rebuilt from it. Without a Ledger a loss of the store's data is not detected.
	Ledger ledger.Database
	Quotas func() []*delivery.Quota
	// Rates is the most units that the rates of campaigns allow in a time, by quota; nil: any number.
	Rates func(in time.Duration) map[string]int64
	// Leads reports whether this daemon does what one daemon of the fleet is to do; several do no harm. nil: it does.
	Leads func() bool
	// Fleet is how many daemons there are, as far as known; nil: not at all.
	Fleet func() int
	// Eventual configures the quotas of mode eventual. Its roots are the shards' masters unless it names others;
	// fields that the engine knows itself may be left out.
	Eventual eventual.Options
	// Timeout is how long one attempt may take; 250 ms by default. A call makes at most two.
	Timeout time.Duration

	now func() int64 // overrides Redis' clock in tests, nil otherwise
}

// Engine grants slots and units out of Redis. It is safe for concurrent use; the store sees concurrent takes of
// one campaign as two askers, so a daemon asks for a campaign from one goroutine at a time.
//
// Its keys are divided into shards. A quota names the shard of its counts; a campaign and its timeline live in the
// shard of its quotas, which is one shard for all of them. The asks of a tick go to all shards at once.
//
// Every script that changes something runs in one of the node's script slots, under the slot's next sequence
// number. Redis keeps the last reply of each slot, so a call repeated after a timeout gets the reply it missed and
// debits nothing. A call that arrives late, after its slot has been used again, is refused by its number.
type Engine struct {
	set    *shards.Set
	shards []*shard
	node   string // the name under which this process competes: random, so that sequence numbers never meet earlier ones
	log    *slog.Logger
	m      *metrics
	fleet  func() int64 // how many daemons there are, as far as known

	horizon atomic.Int64 // the longest of the last asks

	fence    *ledger.Fence // nil without a ledger
	eventual *eventual.Quotas
	fallback *local.Fallback

	ended    chan struct{}       // closed when Run ends
	settling *semaphore.Weighted // held while grants made without the shards are charged

	stale *stale

	mu    sync.Mutex
	homes homes // under mu
}

// New makes an Engine. It does no I/O.
func New(o Options) *Engine {
	o.Timeout = cmp.Or(o.Timeout, defaultTimeout)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	var id [6]byte
	_, _ = rand.Read(id[:]) // never fails, as documented
	m := newMetrics(o.Registerer)
	e := &Engine{
		set: o.Shards, shards: newShards(&o), node: hex.EncodeToString(id[:]), log: o.Logger, m: m,
		fleet: func() int64 { return 1 },
		stale: &stale{log: o.Logger, rows: map[string]*staleRow{}},
		ended: make(chan struct{}), settling: semaphore.NewWeighted(1), homes: homes{known: map[string]*home{}},
	}
	if o.Fleet != nil {
		e.fleet = func() int64 { return int64(o.Fleet()) }
	}
	e.addParts(&o)
	return e
}

// addParts makes the components of the engine other than its shards.
func (e *Engine) addParts(o *Options) {
	e.fence = ledger.NewFence(ledger.Options{
		Records: o.Ledger, Node: e.node, Quotas: o.Quotas, Rates: o.Rates, Leads: o.Leads, Shards: len(e.shards), Logger: o.Logger, Registerer: o.Registerer,
		Now:     func(shard int) (int64, bool) { return e.shards[shard].time() },
		Horizon: func() time.Duration { return time.Duration(e.horizon.Load()) * time.Microsecond },
	}, dataStore{e})
	for _, s := range e.shards {
		s.fence, s.ended = e.fence, e.ended
	}
	e.fallback = local.New(local.Options{
		Shards: len(e.shards), Patience: attempts * o.Timeout, Fleet: o.Fleet, Logger: o.Logger, Registerer: o.Registerer,
	})
	soft := o.Eventual
	soft.KeyPrefix, soft.Node, soft.Logger, soft.Registerer = o.KeyPrefix, e.node, o.Logger, o.Registerer
	if len(soft.Roots) == 0 {
		soft.Roots = e.set.Masters()
	}
	e.eventual = eventual.New(soft)
}

// Run keeps the engine's books until ctx ends. It determines which data is in force, rebuilds lost data, writes the ledger, synchronises
// eventual quotas, and charges units sent while a store did not answer. With a ledger, nothing is granted unless it runs. It runs once,
// and is to end after the last take and refund.
func (e *Engine) Run(ctx context.Context) error {
	var all sync.WaitGroup
	all.Go(func() { e.fence.Run(ctx) })
	all.Go(func() { e.eventual.Run(ctx) })
	all.Go(func() { e.watchMemory(ctx) })
	all.Go(func() { e.watchClocks(ctx) })
	all.Go(func() {
		retry.Every(ctx, chargeEvery, func(time.Time) { _ = e.settleDebts(ctx) }) // a take that is affected returns the error
	})
	all.Wait()
	close(e.ended)
	for _, s := range e.shards {
		s.lookouts.Wait()
	}
	return nil
}

// chargeEvery is how often an attempt is made to charge grants made without the store.
const chargeEvery = time.Duration(local.Recheck) * time.Microsecond * 4 / 5

// settleDebts charges to the shards what was granted without them. Until that is done nothing may be taken from a shard:
// the result is what went wrong, by shard. Callers that come while it is being done wait for it.
func (e *Engine) settleDebts(ctx context.Context) (unpaid []error) {
	if err := e.settling.Acquire(ctx, 1); err != nil {
		return slices.Repeat([]error{err}, len(e.shards))
	}
	defer e.settling.Release(1)
	unpaid = make([]error, len(e.shards))
	_ = forEachShard(e, e.fallback.Spent(), func(s *shard, list []local.Charge) error {
		if unpaid[s.index] = e.charge(ctx, s, list); unpaid[s.index] != nil {
			e.fallback.Unspent(list)
		}
		return nil
	})
	return unpaid
}

// Epoch returns the epoch of a shard's data that is in force, 0 where it is not watched; false while none is known to be.
func (e *Engine) Epoch(shard int) (epoch int64, known bool) { return e.fence.Epoch(shard) }
