package requeue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// Defaults of Options.
const (
	DefaultLanes         = 256
	DefaultWorkers       = 4
	DefaultMaxBatchBytes = 512 << 10
	DefaultMaxBackoff    = 2 * time.Second

	maxBatchJobs  = 500 // the bound on duplicates after a crash, per source
	minBatchBytes = 16 << 10
	firstBackoff  = 50 * time.Millisecond
	flushTimeout  = 10 * time.Second
)

// Options of a Relay. Zero values stand for the defaults.
type Options struct {
	// Client reaches Kafka. Its Transport is required, and its MetadataTopics, if set, name every topic of
	// TopicSpec.Names.
	Client *kafka.Client
	Prefix string          // of the owned topics; "pacer."
	Lanes  int             // partitions of the lane topic; 256
	Timers []time.Duration // 5s, 30s, 5m, 30m, 6h
	Pins   Pins            // nil: every campaign's lane is its hash
	// Workers is how many sources are written for at once; 4.
	Workers int
	// MaxBatchBytes bounds one batch; 512 KiB. It is lowered by itself where a topic takes less.
	MaxBatchBytes int
	// MaxAttemptBackoff caps the back-off after a refusal; 2 s.
	MaxAttemptBackoff time.Duration
	Logger            *slog.Logger
	Registerer        prometheus.Registerer // nil: not registered
}

func (o *Options) validate() error {
	if o.Prefix == "" {
		o.Prefix = DefaultPrefix
	}
	if o.Lanes == 0 {
		o.Lanes = DefaultLanes
	}
	if o.Workers == 0 {
		o.Workers = DefaultWorkers
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = DefaultMaxBatchBytes
	}
	if o.MaxAttemptBackoff == 0 {
		o.MaxAttemptBackoff = DefaultMaxBackoff
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	var err error
	if o.Timers, err = sortedTimers(o.Timers); err != nil {
		return err
	}
	switch {
	case o.Lanes < 1:
		return errors.New("lanes must be at least 1")
	case o.Workers < 1:
		return errors.New("workers must be at least 1")
	case o.MaxBatchBytes < minBatchBytes:
		return fmt.Errorf("max batch bytes must be at least %d", minBatchBytes)
	case o.MaxAttemptBackoff < time.Millisecond:
		return errors.New("max attempt back-off must be at least 1ms")
	}
	return nil
}

// Relay moves jobs into lanes, timers and dead letters and settles them once the broker has them (the package
// comment tells the whole way). Make one with New, start Run once, and Put from anywhere: every method is safe
// for concurrent use. Jobs put before Run wait for it; jobs put after Run has ended, or during Drain, are dropped,
// which is to say that their offsets stay open.
//
// One lock guards the queues; it is held for bookkeeping only, never during I/O.
type Relay struct {
	opts    Options
	broker  *broker
	pins    *pinCache
	metrics *metrics
	logger  *slog.Logger

	batchBytes atomic.Int64  // lowered when a topic takes less
	wake       chan struct{} // one token: something may be servable

	mu      sync.Mutex
	box     *outbox   // of the present generation; replaced by Drain
	brake   brake     // for lanes
	stopped bool      // Run has ended
	down    time.Time // since when the broker refuses; zero: it does not
}

// New makes a relay. It does no I/O.
func New(opts Options) (*Relay, error) {
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("requeue: %w", err)
	}
	b, err := newBroker(opts.Client)
	if err != nil {
		return nil, fmt.Errorf("requeue: %w", err)
	}
	r := &Relay{opts: opts, broker: b, logger: opts.Logger, wake: make(chan struct{}, 1), box: newOutbox()}
	r.batchBytes.Store(int64(opts.MaxBatchBytes))
	r.metrics, err = newMetrics(opts.Registerer, func() float64 { return float64(r.Stats().Queued) })
	if err != nil {
		return nil, fmt.Errorf("requeue: register metrics: %w", err)
	}
	r.pins = newPinCache(opts.Pins, opts.Lanes, opts.Logger, r.metrics.fallbacks)
	return r, nil
}

// Run writes until ctx ends, and returns nil then. What is not written stays open.
func (r *Relay) Run(ctx context.Context) error {
	var wg sync.WaitGroup
	for range r.opts.Workers {
		wg.Go(func() { r.work(ctx) })
	}
	wg.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopped = true
	r.box.close()
	return nil
}

// Put hands a job over for writing. It never blocks. The job belongs to the relay from now on, which settles it
// once the broker has acknowledged its record.
func (r *Relay) Put(job *delivery.Job, to delivery.Destination) {
	it := &item{job: job, to: to, size: recordSize(job)}
	r.mu.Lock()
	r.box.put(it)
	r.mu.Unlock()
	r.signal()
}

// Drain drops what is on its way to a lane and has not been handed to a produce call, writes timers and dead letters
// (their jobs have been sent; dropped, they would be sent again), and waits for the calls in flight, and for their jobs
// to be settled, until ctx ends. It returns how many jobs it leaves in doubt: neither settled nor certainly
// unwritten, so that a record of theirs may turn up besides the one whose offset stays open. Jobs put meanwhile are dropped;
// when Drain has returned, Put works again.
func (r *Relay) Drain(ctx context.Context) (inDoubt int) {
	r.mu.Lock()
	box := r.box
	box.closeLanes()
	r.mu.Unlock()
	r.finish(ctx, box)
	r.mu.Lock()
	box.close()
	r.mu.Unlock()

	select {
	case <-box.idle:
	case <-ctx.Done():
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	inDoubt = box.inDoubt + box.open()
	if r.box == box && !r.stopped {
		r.box = newOutbox()
	}
	return inDoubt
}

// finish waits until nothing is left to write, while the broker takes it and until ctx ends.
func (r *Relay) finish(ctx context.Context, box *outbox) {
	for {
		r.mu.Lock()
		over := r.stopped || !r.down.IsZero() || box.queued == 0 && len(box.turns) == 0 && !box.serving()
		r.mu.Unlock()
		if over {
			return
		}
		select {
		case <-time.After(finishPoll):
		case <-ctx.Done():
			return
		}
	}
}

const finishPoll = 2 * time.Millisecond

// Hold pauses writing to lanes for d, at most 200 ms in one go, because sending is behind. Timers and dead letters
// are not held: a retry that comes back late is late for good.
func (r *Relay) Hold(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.brake.hold(time.Now(), d)
}

// Healthy tells whether nothing is kept waiting by a broker that refuses.
func (r *Relay) Healthy() bool {
	s := r.Stats()
	return s.DownSince.IsZero() || s.Queued+s.Sending == 0
}

// Stats is what the relay has in hand.
type Stats struct {
	Queued    int       // jobs waiting to be written
	Sending   int       // jobs in a produce call and not settled
	Sources   int       // sources with jobs waiting
	DownSince time.Time // since when the broker refuses; zero: it does not
}

// Stats reads the relay's state.
func (r *Relay) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{Queued: r.box.queued, Sending: r.box.open(), Sources: len(r.box.ring), DownSince: r.down}
}

// acquire waits for a queue whose turn it is; nil means that ctx has ended.
func (r *Relay) acquire(ctx context.Context) (*outbox, *queue) {
	for ctx.Err() == nil {
		r.mu.Lock()
		box := r.box
		q, wait := box.next(time.Now(), r.brake.until)
		more := q != nil && len(box.ring) > 0
		r.mu.Unlock()
		if more {
			r.signal() // one token wakes one worker; pass it on
		}
		if q != nil {
			return box, q
		}
		r.sleep(ctx, wait)
	}
	return nil, nil
}

// sleep waits for a token, or for d if it is positive.
func (r *Relay) sleep(ctx context.Context, d time.Duration) {
	var due <-chan time.Time
	if d > 0 {
		timer := time.NewTimer(d)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-r.wake:
	case <-due:
	case <-ctx.Done():
	}
}

func (r *Relay) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}
