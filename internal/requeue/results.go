package requeue

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
)

// DefaultResultLinger is how long an event waits for others to share its batch.
const DefaultResultLinger = 5 * time.Millisecond

// maxRound is how many events one round of produce requests takes.
const maxRound = 4096

// ResultsOptions of Results. Zero values stand for the defaults.
type ResultsOptions struct {
	Client     *kafka.Client
	Prefix     string // of the owned topics; "pacer."
	Linger     time.Duration
	MaxBackoff time.Duration // after a refusal; 2 s
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: not registered
}

// Results writes one event for each job whose fate is final, and settles the job once the broker has the event. The
// offsets of jobs whose events wait stay open, so events are delivered at least once, exactly like jobs: after a crash
// the job is read again, and with it comes its event. It also means that what waits is bounded by the consumer's byte
// budget, and that a broker which refuses events stops intake in the end, rather than losing one.
//
// The key of an event is the job's id: all that is said of one job lies in one partition, in order, and a large campaign
// loads all partitions alike.
//
// Make it with NewResults and start Run once; Report, Drain and Admit may be called from anywhere. One lock guards what
// waits; it is never held during I/O.
type Results struct {
	opts    ResultsOptions
	topic   string
	broker  *broker
	metrics *resultMetrics
	wake    chan struct{} // one token: something waits

	maxBytes int // of one batch, lowered when the topic takes less; Run's own

	mu      sync.Mutex
	waiting []*finalJob
	writing int // in the round under way
	epoch   int // counts drains
	ready   bool
	down    time.Time     // since when the broker refuses; zero: it does not
	up      chan struct{} // closed when it no longer refuses
}

// finalJob is a job with its fate.
type finalJob struct {
	job     *delivery.Job
	outcome delivery.Outcome
	at      time.Time
	event   []byte // nil until it is first written
	epoch   int
}

// NewResults makes a writer of results. It does no I/O.
func NewResults(opts ResultsOptions) (*Results, error) {
	if opts.Prefix == "" {
		opts.Prefix = DefaultPrefix
	}
	if opts.Linger == 0 {
		opts.Linger = DefaultResultLinger
	}
	if opts.MaxBackoff == 0 {
		opts.MaxBackoff = DefaultMaxBackoff
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Linger < 0 || opts.MaxBackoff < 0 {
		return nil, errors.New("results: linger and back-off must be positive")
	}
	b, err := newBroker(opts.Client)
	if err != nil {
		return nil, fmt.Errorf("results: %w", err)
	}
	r := &Results{
		opts: opts, topic: ResultsTopic(opts.Prefix), broker: b, wake: make(chan struct{}, 1), maxBytes: DefaultMaxBatchBytes,
	}
	if r.metrics, err = newResultMetrics(opts.Registerer, func() float64 { return float64(r.open()) }); err != nil {
		return nil, fmt.Errorf("results: register metrics: %w", err)
	}
	return r, nil
}

// Report takes a job whose fate is final; it is made for delivery.Job.Report. It never blocks.
func (r *Results) Report(job *delivery.Job, outcome delivery.Outcome) {
	f := &finalJob{job: job, outcome: outcome, at: time.Now()}
	r.mu.Lock()
	f.epoch = r.epoch
	r.waiting = append(r.waiting, f)
	r.mu.Unlock()
	r.signal()
}

func (r *Results) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// Ready tells whether the topic has been found.
func (r *Results) Ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// Healthy tells whether nothing is kept waiting by a broker that refuses.
func (r *Results) Healthy() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.down.IsZero()
}

// open is how many jobs wait for their event to be acknowledged.
func (r *Results) open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) + r.writing
}

// Admit waits while the broker refuses events, until ctx ends or for so long at most: jobs that are sent meanwhile cannot
// be settled, and a crash would send all of them again. The error is the context's.
func (r *Results) Admit(ctx context.Context, atMost time.Duration) error {
	r.mu.Lock()
	up := r.up
	r.mu.Unlock()
	if up == nil {
		return nil
	}
	patience := time.NewTimer(atMost)
	defer patience.Stop()
	select {
	case <-up:
		return nil
	case <-patience.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Drain waits until every event is acknowledged and its job settled, or ctx ends. It returns how many jobs are left, which
// stay open; their events are given up, since whoever reads these jobs next reports them anew.
func (r *Results) Drain(ctx context.Context) (left int) {
	for r.open() > 0 {
		if pause(ctx, finishPoll) != nil {
			break
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	left = len(r.waiting) + r.writing
	r.waiting = nil
	r.epoch++
	return left
}

// Run writes until ctx ends, and returns nil then.
func (r *Results) Run(ctx context.Context) error {
	failures := 0
	for ctx.Err() == nil {
		n, err := r.broker.partitions(ctx, r.topic)
		if err == nil {
			if r.found() {
				r.recovered() // a drain has given up what was refused
			}
			if !r.await(ctx) {
				break
			}
			err = r.write(ctx, r.take(n))
		}
		r.account(ctx, err)
		if err == nil {
			failures = 0
			continue
		}
		backoff := min(firstBackoff<<min(failures, 16), r.opts.MaxBackoff)
		failures++
		_ = pause(ctx, backoff/2+rand.N(backoff/2+1)) // the loop asks why
	}
	return nil
}

// found notes that the topic is there, and tells whether nothing waits to be written.
func (r *Results) found() (idle bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = true
	return len(r.waiting) == 0
}

// await waits until something is waiting, and then for what may come along; false when ctx ends.
func (r *Results) await(ctx context.Context) bool {
	for {
		r.mu.Lock()
		n := len(r.waiting)
		r.mu.Unlock()
		if n >= maxRound {
			return true
		}
		if n > 0 {
			return pause(ctx, r.opts.Linger) == nil
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// round is what one call of the broker writes: at most one batch for each partition.
type round struct {
	batches []*recordBatch
	jobs    [][]*finalJob // of each batch
	left    []*finalJob   // did not fit
}

// take removes the next round from what waits.
func (r *Results) take(partitions int) *round {
	r.mu.Lock()
	n := min(len(r.waiting), maxRound)
	taken := r.waiting[:n:n]
	r.waiting = r.waiting[n:]
	r.writing = n
	r.mu.Unlock()

	w := &round{}
	batches := make(map[int]*openBatch)
	for _, f := range taken {
		if f.event == nil {
			f.event = encodeResult(f)
		}
		id := hashPartition(f.job.ID, partitions)
		b := batches[id]
		if b == nil {
			b = &openBatch{at: len(w.batches), room: r.maxBytes}
			batches[id] = b
			w.batches = append(w.batches, &recordBatch{to: partition{topic: r.topic, id: id}})
			w.jobs = append(w.jobs, nil)
		}
		if !b.fits(64+len(f.job.ID)+len(f.event), len(w.jobs[b.at]) == 0) {
			w.left = append(w.left, f)
			continue
		}
		w.batches[b.at].records = append(w.batches[b.at].records, kafka.Record{
			Time: f.at, Key: kafka.NewBytes([]byte(f.job.ID)), Value: kafka.NewBytes(f.event),
		})
		w.jobs[b.at] = append(w.jobs[b.at], f)
	}
	return w
}

// openBatch is the batch of one partition while it is filled.
type openBatch struct {
	at   int // in the round
	room int // bytes; negative once something did not fit, so that nothing overtakes it
}

func (b *openBatch) fits(size int, first bool) bool {
	if b.room < size && !first {
		b.room = -1
		return false
	}
	b.room -= size
	return true
}

// write sends a round and settles what is acknowledged; what is not goes back to the front. The error is of the first
// batch that the broker would refuse again.
func (r *Results) write(ctx context.Context, w *round) (err error) {
	r.broker.send(ctx, w.batches)
	var again []*finalJob
	for i, rb := range w.batches {
		if rb.err == nil {
			for _, f := range w.jobs[i] {
				f.job.Finish(f.outcome)
			}
			r.metrics.written.Add(float64(len(w.jobs[i])))
			continue
		}
		again = append(again, w.jobs[i]...)
		if tooLarge(rb.err) && len(w.jobs[i]) > 1 && r.maxBytes > minBatchBytes {
			r.maxBytes = max(r.maxBytes/2, minBatchBytes)
		} else if err == nil {
			err = rb.err
		}
	}
	again = append(again, w.left...)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.writing = 0
	again = slices.DeleteFunc(again, func(f *finalJob) bool { return f.epoch != r.epoch })
	if len(again) > 0 {
		r.waiting = append(again, r.waiting...)
	}
	return err
}

// account notes whether the broker refuses events: one line when that begins, one when it is over.
func (r *Results) account(ctx context.Context, err error) {
	if err == nil {
		r.recovered()
		return
	}
	r.mu.Lock()
	begins := r.down.IsZero() && ctx.Err() == nil
	if begins {
		r.down, r.up = time.Now(), make(chan struct{})
		r.metrics.outage.Set(1)
	}
	r.mu.Unlock()
	switch {
	case begins && errors.Is(err, ErrNoTopic):
		r.opts.Logger.Warn("the topic of the results is missing; jobs wait for it: run pacer migrate up, or set kafka.results to false",
			"topic", r.topic)
	case begins:
		r.opts.Logger.Warn("kafka refuses results; their jobs stay open and they are tried again", "error", err)
	}
}

// recovered notes that no event is refused, and says so if one was.
func (r *Results) recovered() {
	r.mu.Lock()
	since := r.down
	if !since.IsZero() {
		close(r.up)
		r.down, r.up = time.Time{}, nil
		r.metrics.outage.Set(0)
	}
	r.mu.Unlock()
	if !since.IsZero() {
		r.opts.Logger.Info("kafka refuses no results any more", "after", time.Since(since).Round(time.Millisecond))
	}
}
