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
	"golang.org/x/sync/semaphore"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	defaultTimeout = 250 * time.Millisecond
	// maxItems is how many items one script serves at most. Those of a take are also weighed: a script should not
	// hold Redis for much more than 2 ms.
	maxItems = 256
	maxCost  = 256
	// scriptSlots is how many scripts that change something may be under way at once.
	scriptSlots = 64
)

// Options configure an Engine.
type Options struct {
	// Client talks to Redis. Its own retries must be off (MaxRetries: -1) and it must honour deadlines
	// (ContextTimeoutEnabled); ClientOptions gives both.
	Client redis.UniversalClient
	// KeyPrefix comes first in every key, inside the hash tag.
	KeyPrefix string
	Logger    *slog.Logger
	// Registerer receives the engine's metrics.
	Registerer prometheus.Registerer
	// Timeout is how long one attempt may take; 250 ms by default. A call makes at most two.
	Timeout time.Duration
}

func (o *Options) validate() error {
	switch {
	case o.Client == nil:
		return errors.New("limits: Client is missing")
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
		DialTimeout: defaultTimeout, ReadTimeout: 2 * time.Second, WriteTimeout: 2 * time.Second,
	}
}

// Engine grants slots and units out of Redis. It is safe for concurrent use; concurrent takes of one campaign are
// two askers as far as the store is concerned, so a daemon asks for a campaign from one goroutine at a time.
//
// Every script that changes something runs in one of the node's script slots, under the slot's next sequence
// number. Redis keeps the last reply of each slot, so a call repeated after a timeout gets the reply it missed and
// debits nothing. One that arrives late, after its slot has gone on, is refused by its number.
type Engine struct {
	run    runner
	keys   keys
	node   string
	log    *slog.Logger
	m      *metrics
	sem    *semaphore.Weighted
	mu     sync.Mutex
	free   []*scriptSlot    // used first come, first served, so that replies stay as long as possible; under mu
	warned map[string]int64 // refused campaigns and the revision complained about; under mu
	now    func() int64     // overrides Redis' clock in tests, nil otherwise
}

type scriptSlot struct {
	index int
	seq   int64 // of the latest script; written by whoever holds the slot
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
		run: runner{client: o.Client, timeout: o.Timeout}, keys: newKeys(o.KeyPrefix), node: hex.EncodeToString(id[:]),
		log: o.Logger, m: m, sem: semaphore.NewWeighted(scriptSlots), warned: map[string]int64{},
	}
	for i := range scriptSlots {
		e.free = append(e.free, &scriptSlot{index: i})
	}
	return e, nil
}

// Node is the name under which this process competes; random per start, so that sequence numbers never meet those
// of an earlier life.
func (e *Engine) Node() string { return e.node }

// Ping checks that Redis answers.
func (e *Engine) Ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, e.run.timeout)
	defer cancel()
	if err := e.run.client.Ping(ctx).Err(); err != nil {
		return fmt.Errorf("ping redis: %w", err)
	}
	return nil
}

// Peek reports the windows of the quotas, in their order, and the store's time. It changes nothing and opens no
// window.
func (e *Engine) Peek(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, int64, error) {
	var calls []*call
	var parts [][]*delivery.Quota
	for len(quotas) > 0 {
		n := min(len(quotas), maxItems)
		calls, parts, quotas = append(calls, e.encodePeek(quotas[:n])), append(parts, quotas[:n]), quotas[n:]
	}
	if len(calls) == 0 {
		return nil, 0, nil
	}
	e.run.run(ctx, peekScript, calls)
	var out []delivery.WindowState
	var now int64
	for i, c := range calls {
		if c.err != nil {
			return nil, 0, fmt.Errorf("peek quotas: %w", c.err)
		}
		states, at, err := decodePeek(c.reply, parts[i])
		if err != nil {
			return nil, 0, err
		}
		out, now = append(out, states...), at
	}
	return out, now, nil
}

// CloseGate closes a gate for d, on every daemon. With probe, one job a second is let through after that, until the
// gate is opened. No closure is ever shortened; what a destination asked for is not replaced by probing.
func (e *Engine) CloseGate(ctx context.Context, gate string, d time.Duration, probe bool) error {
	if err := validGate(gate); err != nil {
		return err
	}
	mode := "0"
	if probe {
		mode = "1"
	}
	d = min(max(0, d), maxSpan)
	c := &call{keys: []string{e.keys.clock(), e.keys.gate(gate)}, args: []any{e.override(), d.Microseconds(), mode}}
	e.run.run(ctx, closeScript, []*call{c})
	if c.err != nil {
		return fmt.Errorf("close gate %s: %w", gate, c.err)
	}
	return nil
}

// OpenGate opens a gate that was closed with probe. One that was closed without it stays closed until its time.
func (e *Engine) OpenGate(ctx context.Context, gate string) error {
	if err := validGate(gate); err != nil {
		return err
	}
	c := &call{keys: []string{e.keys.gate(gate)}}
	e.run.run(ctx, openScript, []*call{c})
	if c.err != nil {
		return fmt.Errorf("open gate %s: %w", gate, c.err)
	}
	return nil
}

func validGate(gate string) error {
	if gate == "" {
		return errors.New("limits: a gate needs a name")
	}
	return nil
}

// override is the time tests put in the place of Redis' clock; 0: none.
func (e *Engine) override() int64 {
	if e.now == nil {
		return 0
	}
	return e.now()
}

// acquire takes n script slots and moves each to its next sequence number.
func (e *Engine) acquire(ctx context.Context, n int) ([]*scriptSlot, error) {
	if err := e.sem.Acquire(ctx, int64(n)); err != nil {
		return nil, fmt.Errorf("wait for a script slot: %w", err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	slots := append([]*scriptSlot(nil), e.free[:n]...)
	e.free = e.free[n:]
	for _, s := range slots {
		s.seq++
	}
	return slots, nil
}

func (e *Engine) release(slots []*scriptSlot) {
	e.mu.Lock()
	e.free = append(e.free, slots...)
	e.mu.Unlock()
	e.sem.Release(int64(len(slots)))
}
