package dedupe

import (
	"context"
	"crypto/rand"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/shards"
)

const (
	// leaseMargin is by how much a lease outlasts the timeout of the sink's call, which begins at most keptFor and
	// maxAnswer after the lease, so that no lease ends while its job may be in flight.
	leaseMargin = 5 * time.Second
	maxAnswer   = time.Second            // wait for the answer to a lease
	maxPause    = 2 * time.Second        // until a job that another daemon has is tried again
	failPause   = time.Second            // the same while its shard does not answer; each try costs a slot
	ownPause    = 250 * time.Millisecond // the same for a job that this daemon is sending
)

// Sinks deliver jobs.
type Sinks interface {
	// Resolve returns the id of the configured sink for a campaign's sink name ("" for the default).
	Resolve(name string) (id string, ok bool)
	// Capacity returns how many calls of the sink may be in flight in this daemon.
	Capacity(id string) (inFlight int, ok bool)
	Deliver(ctx context.Context, id string, job *delivery.Job) delivery.Result
}

// Options of a Ledger. All but Open are required.
type Options struct {
	Sinks     Sinks       // the sinks that deliver the jobs
	Shards    *shards.Set // the jobs are divided among them by their ids
	KeyPrefix string
	TTL       time.Duration // how long a delivered job is remembered, at least 1 ms
	// Open sends jobs without a lease while Redis does not answer; otherwise they wait.
	Open bool
	// Known reports whether the catalog has the campaign.
	Known func(campaign string) bool
	// Timeouts holds the timeout of a call of each sink; 0 for one that answers at once.
	Timeouts   map[string]time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Ledger delivers jobs through other sinks and records in Redis, by campaign and id, which jobs were delivered.
//
//	free -> leased -> delivered: not sent again until its mark expires
//	           |
//	           +-----> free: the sink returned another class, or the lease has expired
//
// A job is sent only under a lease, which one daemon has at a time, and its result is Delivered only once Redis has
// stored the mark. So if the record is read again after the offset was settled, the mark exists. Two cases remain in
// which a job is sent twice: a daemon dies between the sink's answer and the mark, or Redis loses its data.
//
// A job that another daemon may be sending is Withheld, and so is one whose lease is not granted before its slot has
// passed (SendBy). A lease expires some time after the sink's timeout, so that a dead daemon does not keep it.
//
// Deliver may be called by any number of goroutines while Run runs.
type Ledger struct {
	Sinks // provides Resolve and Capacity

	options Options
	shards  []*shard
	node    string // random; begins the tokens of this daemon's leases
	tokens  atomic.Uint64
	m       *metrics

	mu     sync.Mutex
	leases map[id]*lease // guarded by mu; of the jobs in Deliver, and those that left it in the last moments
}

// New makes a Ledger. It connects to nothing.
func New(o Options) *Ledger {
	var node [8]byte          // unique among daemons, also across restarts
	_, _ = rand.Read(node[:]) // never fails
	m := newMetrics(o.Registerer)
	l := &Ledger{Sinks: o.Sinks, options: o, node: string(node[:]), m: m, leases: map[id]*lease{}}
	for i := range o.Shards.Count() {
		log := o.Logger
		if o.Shards.Count() > 1 {
			log = log.With("shard", i)
		}
		l.shards = append(l.shards, newShard(shard{client: o.Shards.Master(i), tag: tag(o.KeyPrefix, i), node: l.node, m: m, log: log, open: o.Open}))
	}
	return l
}

func (l *Ledger) shard(i id) *shard { return l.shards[i.shard(len(l.shards))] }

// Run exchanges data with Redis until ctx ends, then sends what still waits and returns nil. It must outlive the last
// Deliver.
func (l *Ledger) Run(ctx context.Context) error {
	var running sync.WaitGroup
	sending, end := context.WithCancel(context.WithoutCancel(ctx))
	for _, s := range l.shards {
		running.Go(func() { s.Run(sending) })
	}
	retry.Every(ctx, keptFor/2, l.sweep)
	l.sweep(time.Now().Add(keptFor)) // other daemons send these jobs
	end()
	running.Wait()
	return nil
}

// Deliver sends the job unless it was delivered before or another daemon may be sending it. The class of the result is
// the sink's, Withheld, Duplicate or Cancelled.
func (l *Ledger) Deliver(ctx context.Context, sink string, j *delivery.Job) delivery.Result {
	i := idOf(j.Campaign, j.ID, j.Scope())
	c := l.enter(i)
	if c == nil {
		return l.withheld(answerHeld, ownPause)
	}
	if l.options.Open && l.shard(i).Failing() {
		l.m.leases.WithLabelValues(answerFailed).Inc()
		return l.send(ctx, sink, j, i, "")
	}
	l.ask(c, i, sink)
	if !c.await(ctx, j.SendBy) {
		return l.late(i, c)
	}
	switch e := c.entry; {
	case e.err != nil && !l.options.Open:
		l.drop(i)
		return l.withheld(answerFailed, failPause)
	case e.answer == delivered:
		l.drop(i)
		l.m.leases.WithLabelValues(answerDelivered).Inc()
		return delivery.Result{Class: delivery.Duplicate, Detail: "a job with this id was delivered before"}
	case e.answer == cancelled:
		l.drop(i)
		l.m.leases.WithLabelValues(answerCancelled).Inc()
		return delivery.Result{Class: delivery.Cancelled, Detail: "the job was cancelled"}
	case e.answer != leased:
		l.drop(i)
		return l.withheld(answerHeld, min(time.Duration(e.answer)*time.Millisecond, maxPause))
	case j.SendBy != 0 && time.Now().After(j.SendBy.Time()):
		return l.late(i, c)
	case e.err != nil:
		l.m.leases.WithLabelValues(answerFailed).Inc()
		return l.send(ctx, sink, j, i, e.token)
	}
	l.m.leases.WithLabelValues(answerLeased).Inc()
	return l.send(ctx, sink, j, i, c.entry.token)
}

// await waits for the lease while the job may still be sent.
func (c *lease) await(ctx context.Context, sendBy delivery.Stamp) bool {
	wait := maxAnswer
	if sendBy != 0 {
		wait = min(wait, time.Until(sendBy.Time()))
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-c.entry.done:
		return true
	case <-timer.C:
	case <-ctx.Done():
	}
	return false
}

func (l *Ledger) withheld(answer string, pause time.Duration) delivery.Result {
	l.m.leases.WithLabelValues(answer).Inc()
	return delivery.Result{Class: delivery.Withheld, RetryAfter: pause}
}

// late withholds a job whose slot has passed, until the next slot or until the ledger may answer again. The lease is
// kept for that call.
func (l *Ledger) late(i id, c *lease) delivery.Result {
	l.mu.Lock()
	c.busy = false
	l.mu.Unlock()
	if l.shard(i).Failing() {
		return l.withheld(answerLate, failPause)
	}
	return l.withheld(answerLate, 0)
}

// send passes the job to its sink and records the outcome in the ledger. The token is "" without a lease.
func (l *Ledger) send(ctx context.Context, sink string, j *delivery.Job, i id, token string) delivery.Result {
	defer l.drop(i)
	r := l.Sinks.Deliver(ctx, sink, j)
	switch {
	case r.Class == delivery.Delivered:
		l.mark(ctx, i)
	case token != "":
		l.release(i, token)
	}
	return r
}

// mark records that the job was delivered, and returns once Redis has stored that. With policy open it does not wait
// while Redis does not answer, and it stops waiting when ctx ends; the mark is then stored as soon as Redis answers
// again.
func (l *Ledger) mark(ctx context.Context, i id) {
	e := newEntry(markEntry, i, "", l.options.TTL)
	s := l.shard(i)
	s.Add(e)
	var enough <-chan time.Time
	if l.options.Open {
		if s.Failing() {
			return
		}
		timer := time.NewTimer(batchTimeout)
		defer timer.Stop()
		enough = timer.C
	}
	select {
	case <-e.done:
	case <-enough:
	case <-ctx.Done():
	}
}

// release lets other daemons lease the job. It does not wait: if the release is lost, the lease expires.
func (l *Ledger) release(i id, token string) {
	l.shard(i).Add(newEntry(releaseEntry, i, token, 0))
}
