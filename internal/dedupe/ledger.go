package dedupe

import (
	"context"
	"crypto/rand"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// claimMargin is by how much a claim outlasts the timeout of the sink's call, which begins at most keptFor and
	// maxAnswer after the claim, so that none ends while its job may be on its way.
	claimMargin = 5 * time.Second
	maxAnswer   = time.Second            // wait for the answer to a claim
	maxPause    = 2 * time.Second        // before a job that another has is looked at again
	failPause   = time.Second            // likewise while its shard does not answer; each look takes a slot from the others
	ownPause    = 250 * time.Millisecond // likewise of a job that this daemon is sending
)

// Sinks deliver jobs.
type Sinks interface {
	// Resolve turns a campaign's sink ("" for the default) into the id of a configured one.
	Resolve(name string) (id string, ok bool)
	// Capacity is how many calls of the sink may be in flight in this daemon.
	Capacity(id string) (inFlight int, ok bool)
	Deliver(ctx context.Context, id string, job *delivery.Job) delivery.Result
}

// Shards are the places among which jobs are divided by their ids.
type Shards interface {
	// Count is how many there are, at least 1.
	Count() int
	// Master is where the shard is written and read.
	Master(shard int) redis.UniversalClient
}

// Options of a Ledger. All but Open are required.
type Options struct {
	Sinks     Sinks // that jobs go to
	Shards    Shards
	KeyPrefix string
	TTL       time.Duration // how long a delivered job is remembered
	// Open sends jobs unguarded while Redis does not answer; otherwise they wait.
	Open bool
	// Known tells whether the catalog has the campaign.
	Known func(campaign string) bool
	// Timeouts bound a call of each sink; 0 for one that answers at once.
	Timeouts   map[string]time.Duration
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *Options) validate() error {
	switch {
	case o.Sinks == nil, o.Shards == nil, o.Known == nil, o.Logger == nil, o.Registerer == nil:
		return errors.New("dedupe options: Sinks, Shards, Known, Logger and Registerer are required")
	case o.TTL < time.Millisecond:
		return errors.New("dedupe options: TTL must be at least 1ms")
	}
	return nil
}

// Ledger delivers jobs through other sinks and remembers in Redis, by campaign and id, which were delivered.
//
//	free -> claimed -> delivered: not sent again until its mark expires
//	           |
//	           +-----> free: the sink's answer was another, or the claim's time is over
//
// A job is sent only under a claim, which one daemon has at a time, and its result is Delivered only once Redis has
// taken the mark. So whoever settles the offset after that result finds the mark in place when the record is read again.
// What remains is a daemon that dies between the sink's answer and the mark, and a Redis that loses its data.
//
// A job that another daemon may be sending is Withheld, and so is one whose claim is not answered until its slot has
// passed (SendBy). A claim ends by itself a while after the sink's timeout, so that a daemon that died does not keep it.
//
// Deliver may be called by any number of goroutines while Run runs.
type Ledger struct {
	Sinks // Resolve and Capacity are theirs

	shards   []*shard
	node     string // random; begins the tokens of this daemon's claims
	tokens   atomic.Uint64
	ttl      time.Duration
	open     bool
	timeouts map[string]time.Duration
	known    func(campaign string) bool
	m        *metrics

	mu     sync.Mutex
	claims map[id]*claim // under mu; of the jobs in Deliver, and those that left it in the last moments
}

// New makes a Ledger. It connects to nothing.
func New(o Options) (*Ledger, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	l := &Ledger{
		Sinks: o.Sinks, node: newNode(), ttl: o.TTL, open: o.Open, timeouts: o.Timeouts, known: o.Known, m: m,
		claims: map[id]*claim{},
	}
	for i := range o.Shards.Count() {
		log := o.Logger
		if o.Shards.Count() > 1 {
			log = log.With("shard", i)
		}
		l.shards = append(l.shards, &shard{
			client: o.Shards.Master(i), tag: tag(o.KeyPrefix, i), node: l.node, m: m, log: log, open: o.Open,
			wake: make(chan struct{}, 1),
		})
	}
	return l, nil
}

// newNode is a name that no other daemon has, and none before a restart had.
func newNode() string {
	var random [8]byte
	_, _ = rand.Read(random[:]) // never fails
	return string(random[:])
}

func (l *Ledger) shard(i id) *shard { return l.shards[i.shard(len(l.shards))] }

// Run exchanges with Redis until ctx ends, then sends what still waits and returns nil. It must outlive the last Deliver.
func (l *Ledger) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, s := range l.shards {
		running.Go(func() { s.run(ctx) })
	}
	tick := time.NewTicker(keptFor / 2)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			l.sweep(now)
		case <-ctx.Done():
			running.Wait()
			return nil
		}
	}
}

// Deliver sends the job unless it was delivered before, or another may be sending it. Its class is the sink's, Withheld or
// Duplicate.
func (l *Ledger) Deliver(ctx context.Context, sink string, j *delivery.Job) delivery.Result {
	i := idOf(j.Campaign, j.ID)
	c := l.enter(i)
	if c == nil {
		return l.withheld(answerHeld, ownPause)
	}
	if l.open && l.shard(i).failing.Load() {
		l.m.claims.WithLabelValues(answerFailed).Inc()
		return l.send(ctx, sink, j, i, "")
	}
	l.ask(c, i, sink)
	if !c.await(ctx, j.SendBy) {
		l.keep(c)
		return l.late(i)
	}
	switch e := c.entry; {
	case e.err != nil && !l.open:
		l.drop(i)
		return l.withheld(answerFailed, failPause)
	case e.answer == delivered:
		l.drop(i)
		l.m.claims.WithLabelValues(answerDelivered).Inc()
		l.m.suppressed.WithLabelValues(j.Campaign).Inc()
		return delivery.Result{Class: delivery.Duplicate, Detail: "a job with this id was delivered before"}
	case e.answer != claimed:
		l.drop(i)
		return l.withheld(answerHeld, min(time.Duration(e.answer)*time.Millisecond, maxPause))
	case !j.SendBy.IsZero() && time.Now().After(j.SendBy):
		l.keep(c)
		return l.late(i)
	case e.err != nil:
		l.m.claims.WithLabelValues(answerFailed).Inc()
		return l.send(ctx, sink, j, i, e.token)
	}
	l.m.claims.WithLabelValues(answerClaimed).Inc()
	return l.send(ctx, sink, j, i, c.entry.token)
}

// await waits for the answer to the claim while the job may be sent.
func (c *claim) await(ctx context.Context, sendBy time.Time) bool {
	wait := maxAnswer
	if !sendBy.IsZero() {
		wait = min(wait, time.Until(sendBy))
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
	l.m.claims.WithLabelValues(answer).Inc()
	return delivery.Result{Class: delivery.Withheld, RetryAfter: pause}
}

// late withholds a job whose slot has passed: for the next slot, or until the ledger may answer again.
func (l *Ledger) late(i id) delivery.Result {
	if l.shard(i).failing.Load() {
		return l.withheld(answerLate, failPause)
	}
	return l.withheld(answerLate, 0)
}

// send hands the job to its sink and notes in the ledger what became of it. The token is "" without a claim.
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

// mark notes that the job was delivered, and returns once that is certain. With policy open it does not wait for a Redis
// that does not answer; nor does it when ctx ends. The mark is then made as soon as Redis answers again.
func (l *Ledger) mark(ctx context.Context, i id) {
	e := newEntry(markEntry, i, "", l.ttl)
	s := l.shard(i)
	s.add(e)
	var enough <-chan time.Time
	if l.open {
		if s.failing.Load() {
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

// release lets others have the job. Nobody waits for it: if it is lost, the claim ends by itself.
func (l *Ledger) release(i id, token string) {
	l.shard(i).add(newEntry(releaseEntry, i, token, 0))
}
