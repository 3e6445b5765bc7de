// Package results writes an event for each job with a final outcome, and settles the job only after that.
package results

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	linger     = 5 * time.Millisecond // how long an event waits for others to share its batch
	maxRound   = 1024                 // events per round of produce requests, of a few hundred bytes each
	drainPoll  = 2 * time.Millisecond
	maxBackoff = 2 * time.Second // after a refusal
)

// Options of Results. Client, Topic and Logger are required.
type Options struct {
	Client     *broker.Client
	Topic      string
	Logger     *slog.Logger
	Registerer prometheus.Registerer // nil: not registered
}

// Results writes one event for each job with a final outcome, and settles the job once the broker has acknowledged the
// event. The offsets of jobs whose events wait stay open, so events are delivered at least once, like jobs: after a
// crash the job is read again and makes its event again. The number of waiting events is therefore bounded by the
// consumer's byte budget, and a broker that refuses events eventually stops intake instead of losing events.
//
// The key of an event is the job's id: all events of a job are in one partition, in order, and a large campaign loads
// all partitions evenly.
//
// Make it with New and start Run once; its receipts, Drain and Admit may be called from any goroutine. One lock guards
// the queue; it is never held during I/O.
type Results struct {
	opts    Options
	metrics *metrics
	wake    retry.Signal // an event waits

	outage retry.Outage

	mu      sync.Mutex
	waiting []*finalJob
	writing int // jobs in the current round
	epoch   int // number of drains
	ready   bool
	up      chan struct{} // closed when the broker no longer refuses; nil while it does not refuse
}

// finalJob is a job with its final outcome.
type finalJob struct {
	job     *delivery.Job
	outcome delivery.Outcome
	next    delivery.Receipt // where the job is settled
	at      time.Time
}

// New makes a writer of results. It does no I/O.
func New(opts Options) *Results {
	r := &Results{opts: opts, wake: retry.NewSignal()}
	r.metrics = newMetrics(opts.Registerer, func() float64 { return float64(r.open()) })
	return r
}

// Receipt returns a receipt that settles final jobs at next once their events are acknowledged.
func (r *Results) Receipt(next delivery.Receipt) delivery.Receipt {
	return &receipt{results: r, next: next}
}

// receipt is the receipt of jobs whose results are written.
type receipt struct {
	results *Results
	next    delivery.Receipt
}

// Settle implements delivery.Receipt.
func (r *receipt) Settle(job *delivery.Job, outcome delivery.Outcome) {
	if outcome.Final() {
		r.results.put(&finalJob{job: job, outcome: outcome, next: r.next, at: time.Now()})
	} else {
		r.next.Settle(job, outcome)
	}
}

// put queues a job with a final outcome. It never blocks.
func (r *Results) put(f *finalJob) {
	r.mu.Lock()
	r.waiting = append(r.waiting, f)
	r.mu.Unlock()
	r.wake.Send()
}

// Ready reports whether the topic has been found.
func (r *Results) Ready() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ready
}

// open returns the number of jobs that wait for their event to be acknowledged.
func (r *Results) open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiting) + r.writing
}

// Admit waits while the broker refuses events, until ctx ends but not longer than atMost: jobs that are sent meanwhile
// cannot be settled, and a crash would send all of them again. The error is the context's.
func (r *Results) Admit(ctx context.Context, atMost time.Duration) error {
	r.mu.Lock()
	up := r.up
	r.mu.Unlock()
	if up == nil {
		return nil
	}
	select {
	case <-up:
		return nil
	case <-time.After(atMost):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Drain waits until every event is acknowledged and its job settled, or ctx ends. It returns the number of jobs left,
// which stay open; their events are dropped, since the next reader of these jobs makes them again.
func (r *Results) Drain(ctx context.Context) (left int) {
	for r.open() > 0 {
		if retry.Sleep(ctx, drainPoll) != nil {
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

// Run writes until ctx ends, and then returns nil.
func (r *Results) Run(ctx context.Context) error {
	backoff := retry.Backoff{Initial: 37500 * time.Microsecond, Max: maxBackoff * 3 / 4, Jitter: 1. / 3}
	for ctx.Err() == nil {
		n, err := r.opts.Client.Partitions(ctx, r.opts.Topic)
		if err == nil {
			if r.found() {
				r.recovered() // a drain has dropped the refused events
			}
			if !r.await(ctx) {
				break
			}
			err = r.write(ctx, n)
		}
		r.account(ctx, err)
		if err != nil {
			_ = retry.Sleep(ctx, backoff.Delay(r.outage.Failures())) // the loop checks ctx
		}
	}
	return nil
}

// found records that the topic exists, and reports whether no event waits.
func (r *Results) found() (idle bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ready = true
	return len(r.waiting) == 0
}

// await waits for an event, and then for further ones to share its batch; false if ctx ends.
func (r *Results) await(ctx context.Context) bool {
	for {
		r.mu.Lock()
		n := len(r.waiting)
		r.mu.Unlock()
		if n >= maxRound {
			return true
		}
		if n > 0 {
			return retry.Sleep(ctx, linger) == nil
		}
		select {
		case <-r.wake:
		case <-ctx.Done():
			return false
		}
	}
}

// take removes the jobs of one round from the queue, and returns them by partition, and the number of drains so far.
func (r *Results) take(partitions int) (chunks []broker.Chunk[*finalJob], epoch int) {
	r.mu.Lock()
	r.writing = min(len(r.waiting), maxRound)
	jobs := r.waiting[:r.writing:r.writing]
	r.waiting, epoch = r.waiting[r.writing:], r.epoch
	r.mu.Unlock()
	byPartition := make(map[int][]*finalJob)
	for _, f := range jobs {
		id := broker.HashPartition(f.job.ID, partitions)
		byPartition[id] = append(byPartition[id], f)
	}
	for id, list := range byPartition {
		chunks = append(chunks, broker.Chunk[*finalJob]{To: broker.Partition{Topic: r.opts.Topic, ID: id}, Items: list})
	}
	return chunks, epoch
}

// write writes the events and settles the acknowledged jobs; the others go back to the front of the queue. The error
// is that of the first batch that was refused.
func (r *Results) write(ctx context.Context, partitions int) (err error) {
	var again []*finalJob
	w := broker.Writer[*finalJob]{
		Client: r.opts.Client,
		Encode: func(f *finalJob, _ time.Time) delivery.Record {
			return delivery.Record{Time: f.at, Key: []byte(f.job.ID), Value: encode(f)}
		},
		Acked: func(jobs []*finalJob) {
			for _, f := range jobs {
				f.next.Settle(f.job, f.outcome)
			}
			r.metrics.written.Add(float64(len(jobs)))
		},
		Failed: func(c broker.Chunk[*finalJob], refusal error) {
			again = append(again, c.Items...)
			err = cmp.Or(err, refusal)
		},
	}
	chunks, epoch := r.take(partitions)
	for _, c := range w.Write(ctx, chunks) {
		again = append(again, c.Items...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.writing = 0; epoch == r.epoch { // else they were dropped by a drain meanwhile
		r.waiting = append(again, r.waiting...)
	}
	return err
}

// account records whether the broker refuses events, with one log line when that begins and one when it ends.
func (r *Results) account(ctx context.Context, err error) {
	if err == nil {
		r.recovered()
		return
	}
	missing := errors.Is(err, broker.ErrNoTopic)
	if ctx.Err() != nil || !missing && !r.Ready() { // that Kafka does not answer at the start, the daemon says
		return
	}
	if !r.outage.Failed() {
		return
	}
	r.mu.Lock()
	r.up = make(chan struct{})
	r.mu.Unlock()
	r.metrics.outage.Set(1)
	if missing {
		r.opts.Logger.Warn("the topic of the results is missing; jobs wait for it: run pacer migrate up, or set kafka.results to false",
			"topic", r.opts.Topic)
	} else {
		r.opts.Logger.Warn("kafka refuses results; their jobs stay open and they are tried again", "error", err)
	}
}

// recovered records that no event is refused, and logs it if one was.
func (r *Results) recovered() {
	lasted, over := r.outage.Worked()
	if !over {
		return
	}
	r.mu.Lock()
	close(r.up)
	r.up = nil
	r.mu.Unlock()
	r.metrics.outage.Set(0)
	r.opts.Logger.Info("kafka refuses no results any more", "after", lasted.Round(time.Millisecond))
}
