package dedupe

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// servers are the masters of the shards.
type servers []redis.UniversalClient

func connect(t testing.TB, addr string) redis.UniversalClient {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, ContextTimeoutEnabled: true})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// destination is a sink that answers as it is told.
type destination struct {
	mu     sync.Mutex
	calls  []string // ids, in order
	answer func(ctx context.Context, j *delivery.Job) delivery.ResultClass
}

func (d *destination) Resolve(name string) (string, bool) { return name, true }
func (d *destination) Capacity(string) (int, bool)        { return 256, true }

func (d *destination) Deliver(ctx context.Context, _ string, j *delivery.Job) delivery.Result {
	d.mu.Lock()
	d.calls = append(d.calls, j.ID)
	answer := d.answer
	d.mu.Unlock()
	if answer == nil {
		return delivery.Result{Class: delivery.Delivered}
	}
	return delivery.Result{Class: answer(ctx, j)}
}

func (d *destination) count() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.calls)
}

// rig is one daemon's ledger, running.
type rig struct {
	*Ledger
	registry *prometheus.Registry
	stop     func() // ends it gracefully
}

type rigOptions struct {
	prefix  string
	ttl     time.Duration // 1 h
	timeout time.Duration // of the sink
	open    bool
	log     slog.Handler
}

func newRig(t testing.TB, sinks Sinks, masters servers, o rigOptions) *rig {
	t.Helper()
	if o.ttl == 0 {
		o.ttl = time.Hour
	}
	if o.log == nil {
		o.log = slog.DiscardHandler
	}
	r := &rig{registry: prometheus.NewRegistry()}
	r.Ledger = New(Options{
		Sinks: sinks, Known: func(campaign string) bool { return campaign == "c" }, Shards: shards.New(masters...), KeyPrefix: o.prefix, TTL: o.ttl, Open: o.open,
		Timeouts: map[string]time.Duration{"sink": o.timeout}, Logger: slog.New(o.log), Registerer: r.registry,
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx)
	}()
	r.stop = func() { cancel(); <-ended }
	t.Cleanup(r.stop)
	return r
}

// deliver sends a job that may be sent within a second.
func (r *rig) deliver(id string) delivery.Result {
	return r.Deliver(context.Background(), "sink", &delivery.Job{ID: id, Campaign: "c", Timing: delivery.Timing{SendBy: delivery.StampOf(time.Now().Add(time.Second))}})
}

// insist delivers as the pacer does: what is withheld is tried again after its pause.
func (r *rig) insist(ctx context.Context, id string) delivery.Result {
	for {
		res := r.Deliver(ctx, "sink", &delivery.Job{ID: id, Campaign: "c", Timing: delivery.Timing{SendBy: delivery.StampOf(time.Now().Add(20 * time.Millisecond))}})
		if res.Class != delivery.Withheld || ctx.Err() != nil {
			return res
		}
		select {
		case <-time.After(res.RetryAfter):
		case <-ctx.Done():
			return res
		}
	}
}

func prefix() string { return testservices.Unique("dedupe") + "." }
