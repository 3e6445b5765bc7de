package requeue

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// Defaults of Options.
const (
	DefaultLanes  = 256
	laneWorkers   = 4 // sources whose jobs are written to lanes at the same time
	urgentWorkers = 2 // the same of timers and dead letters

	maxBatchJobs  = 500
	maxBatchBytes = 512 << 10
)

// Options of a Relay. Zero values stand for the defaults.
type Options struct {
	// Client reaches Kafka. Its Topics, if set, must contain TopicSpec.Names.
	Client *broker.Client
	Topics TopicSpec
	// ResultHeaders are the headers of a job that its event has.
	ResultHeaders []string
	// Backlog returns how much waits in lanes, as far as that is known. nil: it is not known.
	Backlog    func(campaign string) Backlog
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: not registered
}

// Relay writes jobs to lanes, timers and dead letters, and settles them once the broker has acknowledged the records
// (see the package comment). Make one with New, start Run once, and call Put from any goroutine: every method is safe
// for concurrent use. Jobs put before Run wait for it; the offsets of those put after Run has ended stay open.
//
// One lock guards the queues; it is held for bookkeeping only, never during I/O.
type Relay struct {
	opts     Options
	backlogs backlogs
	metrics  *metrics

	wake    [classes]retry.Signal // an item may be servable
	running sync.WaitGroup        // the goroutines of Run

	mu  sync.Mutex
	box *outbox
	// Of writing to lanes: when the last pause ends, and when another may begin.
	pausedUntil, nextPause time.Time

	trouble trouble
	avoided map[broker.Partition]time.Time     // until when
	worked  map[delivery.RerouteKind]time.Time // when a record was last acknowledged
}

// New makes a relay. It does no I/O.
func New(opts Options) *Relay {
	opts.Topics = opts.Topics.withDefaults()
	opts.Logger = cmp.Or(opts.Logger, slog.New(slog.DiscardHandler))
	r := &Relay{
		opts: opts, wake: [classes]retry.Signal{retry.NewSignal(), retry.NewSignal(), retry.NewSignal()}, box: newOutbox(),
		avoided: make(map[broker.Partition]time.Time), worked: make(map[delivery.RerouteKind]time.Time),
	}
	r.metrics = newMetrics(opts.Registerer, r)
	r.backlogs = backlogs{counted: opts.Backlog, lately: map[string]*recent{}}
	return r
}

// Run writes until ctx ends, and then returns nil. Jobs that are not written stay open.
func (r *Relay) Run(ctx context.Context) error {
	for class, workers := range [classes]int{urgent: urgentWorkers, lanes: laneWorkers, events: 1} {
		for range workers {
			r.running.Go(func() { r.work(ctx, queueClass(class)) })
		}
	}
	r.running.Wait()
	return nil
}

// Put accepts a job for writing. It never blocks. The relay owns the job from now on, and settles it once the broker
// has acknowledged its record.
func (r *Relay) Put(job *delivery.Job, to delivery.Reroute) {
	r.put(&item{job: job, to: to, size: int(job.Size)})
}

func (r *Relay) put(it *item) {
	r.mu.Lock()
	r.box.put(it)
	r.mu.Unlock()
	r.wake[classOf(it.to)].Send()
}

// wakeAll wakes a worker of each class.
func (r *Relay) wakeAll() {
	for _, signal := range r.wake {
		signal.Send()
	}
}

// Revoke drops the items of partitions that have moved to other daemons. Of partitions about to move, it drops the items for lanes that
// are certainly not written. An item in a produce call is dropped when the call has failed.
func (r *Relay) Revoke() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.box.revoke()
}

// maxPause bounds one pause of writing to lanes.
const maxPause = 200 * time.Millisecond

// Throttle pauses writing to lanes for d, because sending is behind. The next pause begins only after as much time again:
// otherwise a machine that is always behind would never empty its front windows, and the campaigns queued behind the busy ones
// would starve. Timers and dead letters are not held: a retry that is written late comes back late.
func (r *Relay) Throttle(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if now := time.Now(); d > 0 && !now.Before(r.nextPause) {
		d = min(d, maxPause)
		r.pausedUntil, r.nextPause = now.Add(d), now.Add(2*d)
	}
}

// acquire waits for a queue whose turn it is; nil means that ctx has ended.
func (r *Relay) acquire(ctx context.Context, class queueClass) *queue {
	for ctx.Err() == nil {
		r.mu.Lock()
		q, wait := r.box.next(class, time.Now(), r.pausedUntil)
		more := q != nil && len(r.box.rings[class]) > 0
		r.mu.Unlock()
		if more {
			r.wake[class].Send() // one token wakes one worker; pass it on
		}
		if q != nil {
			return q
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-r.wake[class]:
		case <-due:
		case <-ctx.Done():
		}
	}
	return nil
}
