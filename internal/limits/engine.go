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
	return &Engine{
		shards: newShards(&o), node: hex.EncodeToString(id[:]), log: o.Logger, m: m, start: time.Now(),
		warned: map[string]int64{}, homes: homes{known: map[string]*home{}},
	}, nil
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
