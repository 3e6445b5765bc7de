package limits

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sync/semaphore"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	defaultTimeout = 250 * time.Millisecond
	// maxItems is how many items one script serves at most. Those of a take are also weighed: a script should not
	// hold Redis for much more than 2 ms.
	maxItems = 256
	maxCost  = 256
)

// Options configure an Engine.
type Options struct {
	// Shards talk to Redis. Their clients' own retries must be off (MaxRetries: -1) and they must honour deadlines
	// (ContextTimeoutEnabled); Connect and ClientOptions give both.
	Shards Shards
	// KeyPrefix comes first in every key, inside the hash tag.
	KeyPrefix string
	Logger    *slog.Logger
	// Registerer receives the engine's metrics.
	Registerer prometheus.Registerer
	// Ledger outlives the store, and Quotas are those of the catalog (nil: not loaded yet), which are rebuilt from it.
	// Without a Ledger a loss of the store's data goes unnoticed.
	Ledger Ledger
	Quotas func() []*delivery.Quota
	// Eventual configures the quotas of mode eventual. Its roots are the shards' masters unless it names others; what
	// the engine knows itself need not be said.
	Eventual EventualOptions
	// Timeout is how long one attempt may take; 250 ms by default. A call makes at most two.
	Timeout time.Duration

	now func() int64 // overrides Redis' clock in tests, nil otherwise
}

func (o *Options) validate() error {
	switch {
	case o.Shards == nil:
		return errors.New("limits: Shards are missing")
	case o.Registerer == nil:
		return errors.New("limits: Registerer is missing")
	case o.Timeout < 0:
		return errors.New("limits: Timeout must not be negative")
	}
	if o.Timeout == 0 {
		o.Timeout = defaultTimeout
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// ClientOptions are go-redis options fit for an Engine. The client must not retry by itself: only the engine knows
// that a repeated script has to carry the same sequence number.
func ClientOptions(addrs ...string) *redis.UniversalOptions {
	return &redis.UniversalOptions{
		Addrs: addrs, MaxRetries: -1, ContextTimeoutEnabled: true,
		DialTimeout: defaultTimeout, DialerRetries: 1, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second,
	}
}

// Engine grants slots and units out of Redis. It is safe for concurrent use; concurrent takes of one campaign are
// two askers as far as the store is concerned, so a daemon asks for a campaign from one goroutine at a time.
//
// Its keys are divided into shards. A quota says itself where its counts live; a campaign lives with the first of its
// quotas, and its timeline with it. What a tick asks for goes to all shards at once.
//
// Every script that changes something runs in one of the node's script slots, under the slot's next sequence
// number. Redis keeps the last reply of each slot, so a call repeated after a timeout gets the reply it missed and
// debits nothing. One that arrives late, after its slot has gone on, is refused by its number.
type Engine struct {
	shards []*shard
	node   string
	log    *slog.Logger
	m      *metrics
	start  time.Time // of the engine's local clock

	guard    *guard   // nil without a ledger
	reserve  *reserve // nil without a ledger
	eventual *eventual
	fallback *fallback

	ended    chan struct{}       // closed when Run ends
	end      sync.Once           // closes it
	settling *semaphore.Weighted // held by whoever charges what was granted without the shards

	mu     sync.Mutex
	warned map[string]int64 // refused campaigns and the revision complained about; under mu
	homes  homes            // under mu
	slow   int64            // local time of the latest complaint about slow rounds; under mu
}

// New makes an Engine. It does no I/O.
func New(o Options) (*Engine, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	var id [6]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("limits: draw a node id: %w", err)
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		shards: newShards(&o), node: hex.EncodeToString(id[:]), log: o.Logger, m: m, start: time.Now(),
		ended: make(chan struct{}), settling: semaphore.NewWeighted(1), warned: map[string]int64{}, homes: homes{known: map[string]*home{}},
	}
	return e, e.watch(&o)
}

// watch makes what the engine has beside its shards.
func (e *Engine) watch(o *Options) (err error) {
	ledger := ledgerOptions{
		Ledger: o.Ledger, Node: e.node, Quotas: o.Quotas, Now: e.storeNow, Shards: len(e.shards), Logger: o.Logger,
		Registerer: o.Registerer,
	}
	if e.reserve, err = newReserve(ledger); err != nil {
		return err
	}
	if e.guard, err = newGuard(ledger, e, e.reserve); err != nil {
		return err
	}
	for _, s := range e.shards {
		s.guard, s.ended = e.guard, e.ended
	}
	soft := o.Eventual
	soft.KeyPrefix, soft.Node, soft.Logger, soft.Registerer = o.KeyPrefix, e.node, o.Logger, o.Registerer
	if len(soft.Roots) == 0 {
		soft.Roots = e.masters()
	}
	if e.eventual, err = newEventual(soft); err != nil {
		return err
	}
	e.fallback, err = newFallback(o.Logger, o.Registerer, len(e.shards), attempts*o.Timeout)
	return err
}

// storeNow is the time of the shard that a quota lives in, false while that is not known.
func (e *Engine) storeNow(shard int) (int64, bool) {
	s := e.shards[uint(shard)%uint(len(e.shards))]
	if s.master.override != nil {
		return s.master.override(), true
	}
	return s.clock.at(time.Now())
}

// Run keeps the engine's books until ctx ends: it finds out which data is in force and rebuilds what was lost, writes
// the ledger, synchronises eventual quotas, and charges what was sent while a store did not answer. With a ledger,
// nothing is granted unless it runs. It is to end after the last take and refund.
func (e *Engine) Run(ctx context.Context) error {
	var all errgroup.Group
	all.Go(func() error { return e.guard.run(ctx) })
	all.Go(func() error { return e.reserve.run(ctx) })
	all.Go(func() error { return e.eventual.run(ctx) })
	all.Go(func() error {
		tick := time.NewTicker(chargeEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
				_ = e.settleDebts(ctx) // a take that suffers from it says so
			}
		}
	})
	err := all.Wait()
	e.end.Do(func() { close(e.ended) })
	for _, s := range e.shards {
		s.lookouts.Wait()
	}
	return err
}

// chargeEvery is how often an attempt is made to charge what was granted without the store.
const chargeEvery = time.Duration(recheck) * time.Microsecond * 4 / 5

// settleDebts charges to the shards what was granted without them. Until that is done nothing may be taken from a shard:
// the result is what went wrong, by shard. Whoever comes while it is being done waits for it.
func (e *Engine) settleDebts(ctx context.Context) (unpaid []error) {
	unpaid = make([]error, len(e.shards))
	err := e.settling.Acquire(ctx, 1)
	if err == nil {
		defer e.settling.Release(1)
	}
	var owed []*shard
	for _, shard := range e.fallback.owed() {
		owed = append(owed, e.shards[shard])
		unpaid[shard] = err
	}
	if err != nil {
		return unpaid
	}
	_ = e.each(owed, func(s *shard) error {
		if list := e.fallback.spent(s.index); len(list) > 0 {
			if unpaid[s.index] = e.charge(ctx, s.index, list); unpaid[s.index] != nil {
				e.fallback.unspent(list)
			}
		}
		return nil
	})
	return unpaid
}

// Node is the name under which this process competes; random per start, so that sequence numbers never meet those
// of an earlier life.
func (e *Engine) Node() string { return e.node }

// local is the engine's own monotonic clock, in microseconds.
func (e *Engine) local() int64 { return time.Since(e.start).Microseconds() }

// Ping checks that Redis answers: one of its servers at least, where there are several.
func (e *Engine) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.shards[0].master.timeout)
	defer cancel()
	clients := e.masters()
	errs := make([]error, len(clients))
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() { errs[i] = ping(ctx, c) })
	}
	wg.Wait()
	for _, err := range errs {
		if err == nil {
			return nil
		}
	}
	return errors.Join(errs...)
}

// CloseGate closes a gate for d, on every daemon. With probe, one job a second is let through after that, until the
// gate is opened; one per shard, where campaigns of several shards send through it. No closure is ever shortened; what
// a destination asked for is not replaced by probing.
func (e *Engine) CloseGate(ctx context.Context, gate string, d time.Duration, probe bool) error {
	if err := validGate(gate); err != nil {
		return err
	}
	mode := "0"
	if probe {
		mode = "1"
	}
	d = min(max(0, d), maxSpan)
	return e.each(e.shards, func(s *shard) error {
		c := &call{keys: []string{s.keys.clock(), s.keys.gate(gate)}, args: []any{d.Microseconds(), mode}}
		s.run(ctx, closeScript, []*call{c})
		if c.err != nil {
			return fmt.Errorf("close gate %s: %w", gate, c.err)
		}
		return nil
	})
}

// OpenGate opens a gate that was closed with probe. One that was closed without it stays closed until its time.
func (e *Engine) OpenGate(ctx context.Context, gate string) error {
	if err := validGate(gate); err != nil {
		return err
	}
	return e.each(e.shards, func(s *shard) error {
		c := &call{keys: []string{s.keys.clock(), s.keys.gate(gate)}}
		s.run(ctx, openScript, []*call{c})
		if c.err != nil {
			return fmt.Errorf("open gate %s: %w", gate, c.err)
		}
		return nil
	})
}

func validGate(gate string) error {
	if gate == "" {
		return errors.New("limits: a gate needs a name")
	}
	return nil
}
