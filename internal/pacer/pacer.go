package pacer

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// ErrDraining is returned by Offer while the pacer drains or has stopped.
var ErrDraining = errors.New("pacer is draining")

// Pacer owns the queues of one daemon. Make one with New, run it with Run; Offer, Relieve and Drain may be called from
// any goroutine while it runs.
type Pacer struct {
	opt     Options
	log     *slog.Logger
	metrics *metrics
	start   time.Time

	observeUnknown func(*delivery.Job, delivery.Outcome) // of a job of no known campaign

	inbox   inbox
	changed <-chan struct{}
	running sync.WaitGroup // takes, refunds and senders
	senders senders
	turned  atomic.Int64 // local time of the last turn; written by the scheduler

	// Everything below belongs to the scheduler goroutine.
	snapshot  *delivery.Snapshot
	inForce   map[string]*inForce // by campaign; see campaign
	changes   timeHeap[*inForce]  // by the wall clock
	gone      map[string]int64    // local time since when a campaign is not in the catalog any more
	queues    map[string]*queue
	order     []*queue // the same, in any order
	sinks     map[string]*sinkState
	slots     timeHeap[*queue]    // by the local time of their first slot
	asks      timeHeap[*queue]    // by the local time of their next ask
	waits     delays              // by local time
	clocks    map[int]*storeClock // by shard
	quantum   int64               // microseconds, grows under load
	takeTime  int64               // about how long takes last
	takes     int                 // takes under way
	lastTake  int64
	lastItems int              // of the last take
	unsent    []delivery.Grant // to be handed back to the windows of quotas
	failing   bool             // the limiter does not answer
	failedAt  int64            // when a take last failed
	failures  int
	sweepAt   int64
	swept     int       // of order, in this round of the sweep
	roundAt   int64     // when the round began
	rates     []float64 // per second, of the queues with jobs at the end of the last round
	lateAt    int64     // when a slot was last used so late that relaying has to wait
	inFlight  int
	sendCtx   context.Context
	cancel    context.CancelFunc
	doubt     int
	drained   chan<- int      // non-nil while draining
	stopped   bool            // from the beginning of a drain to its end
	epoch     int             // counts drains; results of sends from before the last one settle nothing
	heldSinks map[string]bool // sinks named by campaigns but not configured, logged once

	parked map[string][]*delivery.Job // by campaign, in order; see giveBack
}

// New makes a Pacer; it starts nothing.
func New(o Options) (*Pacer, error) {
	if err := o.defaults(); err != nil {
		return nil, err
	}
	m, err := newMetrics(o.Registerer)
	if err != nil {
		return nil, err
	}
	p := &Pacer{
		opt: o, log: o.Logger, metrics: m, start: time.Now(),
		observeUnknown: m.observer(unknownCampaign),
		changed:        o.Catalog.Subscribe(),
		inForce:        map[string]*inForce{},
		gone:           map[string]int64{},
		queues:         map[string]*queue{},
		sinks:          map[string]*sinkState{},
		clocks:         map[int]*storeClock{},
		slots:          newSlotHeap(),
		asks:           newAskHeap(),
		changes:        newChangeHeap(),
		quantum:        o.MinQuantum.Microseconds(),
		heldSinks:      map[string]bool{},
	}
	p.senders.send, p.senders.running = p.deliver, &p.running
	p.inbox.wake = make(chan struct{}, 1)
	p.inbox.closed = make(chan struct{})
	return p, nil
}

// clock is what is known of a shard's clock.
func (p *Pacer) clock(shard int) *storeClock {
	c := p.clocks[shard]
	if c == nil {
		c = &storeClock{}
		p.clocks[shard] = c
	}
	return c
}

// due is the local time of the queue's first slot, which must be held.
func (p *Pacer) due(q *queue) int64 { return p.clock(q.grants[0].From.Shard).local(q.due()) }

// now is the local monotonic clock in microseconds.
func (p *Pacer) now() int64 { return time.Since(p.start).Microseconds() }

// Run schedules until ctx ends; then it cancels what is in flight, waits for it and returns nil. Jobs still queued stay
// open at their source. Drain first for a graceful end.
func (p *Pacer) Run(ctx context.Context) error {
	p.sendCtx, p.cancel = context.WithCancel(context.WithoutCancel(ctx))
	p.apply(p.opt.Catalog.Snapshot())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			p.inbox.close()
			p.cancel()
			p.senders.close()
			p.running.Wait()
			return nil
		case <-p.changed:
			p.apply(p.opt.Catalog.Snapshot())
		case <-p.inbox.wake:
		case <-timer.C:
		}
		p.turn()
		runtime.Gosched() // before the next turn those run who have been handed something: on a busy machine nobody else helps
		timer.Reset(max(0, time.Duration(p.wakeAt()-p.now())*time.Microsecond))
	}
}

// Stalled is how long ago the scheduler last turned; it does so several times a second, whatever there is to do.
func (p *Pacer) Stalled() time.Duration {
	return time.Duration(p.now()-p.turned.Load()) * time.Microsecond
}

// turn does all that is due.
func (p *Pacer) turn() {
	commands, results := p.inbox.take()
	for _, r := range results {
		p.settle(r)
	}
	p.inbox.done(results)
	for _, f := range commands {
		f()
		p.spend(p.now()) // a command takes as long as many jobs do
	}
	p.follow()
	now := p.now()
	p.turned.Store(now)
	p.spend(now)
	p.release(now)
	if now >= p.sweepAt {
		p.sweep(now)
	}
	p.ask(now)
	if p.drained != nil && p.inFlight == 0 {
		p.drained <- p.doubt
		p.drained = nil
	}
}

// wakeAt is the local time at which something is next due.
func (p *Pacer) wakeAt() int64 {
	at := p.sweepAt
	if p.changes.len() > 0 {
		at = min(at, p.nextChange())
	}
	if p.slots.len() > 0 {
		at = min(at, p.due(p.slots.first().item))
	}
	if p.waits.len() > 0 {
		at = min(at, p.waits.first().at)
	}
	if p.asks.len() > 0 && p.takes < maxTakes {
		at = min(at, max(p.asks.first().at, p.lastTake+p.takeGap()))
	}
	return at
}

// Offer hands jobs over. Jobs that do not fit their campaign's queue and wait where they were read, in lanes and in ingress
// under overflow block, come back in refused, and their source hears from Room when there is room again. All others are
// taken.
func (p *Pacer) Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	answer := make(chan []*delivery.Job, 1)
	p.inbox.do(func() {
		if p.stopped {
			close(answer)
			return
		}
		answer <- p.place(jobs)
	})
	select {
	case refused, ok := <-answer:
		if !ok {
			return nil, ErrDraining
		}
		return refused, nil
	case <-p.inbox.closed:
		return nil, ErrDraining
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// Relieve moves the queued jobs of src with offsets below before, and no slot yet, on to their lanes now; but not while
// sending is behind for want of processors: relaying a job costs more of them than sending it, and who asks asks again.
func (p *Pacer) Relieve(src delivery.Source, before int64) {
	p.inbox.do(func() {
		if p.lateAt == 0 || p.now() > p.lateAt+behindFor {
			p.relieve(src, before)
		}
	})
}

// behindFor is how long after a late slot sending counts as behind, in microseconds.
const behindFor = 500_000

// Drain forgets every job that is not in flight, gives all slots back, and waits for sends and produce calls in flight.
// When ctx ends first, the sends are cancelled. It returns how many jobs are in doubt: sent, perhaps, and not settled.
// Afterwards the Pacer takes offers again.
func (p *Pacer) Drain(ctx context.Context) (open int, err error) {
	done := make(chan int, 1)
	p.inbox.do(func() { p.beginDrain(done) })
	select {
	case open = <-done:
	case <-p.inbox.closed:
	case <-ctx.Done():
		p.inbox.do(func() { p.cancel() })
		select {
		case open = <-done:
		case <-p.inbox.closed:
		case <-time.After(cancelledSendsEnd):
			err = errors.New("drain: cancelled sends did not return")
		}
	}
	open += p.opt.Requeuer.Drain(ctx)
	p.inbox.do(p.endDrain)
	return open, err
}

// cancelledSendsEnd is how long a sink has to return after its call was cancelled.
const cancelledSendsEnd = time.Second

func (p *Pacer) beginDrain(done chan<- int) {
	p.doubt, p.stopped, p.drained = 0, true, done
	p.returnUnsent()
	for _, q := range p.order {
		p.handBack(q)
		q.filter(func(int64, *delivery.Job) bool { return false })
		q.waiting = nil
		p.asks.remove(q)
	}
	p.waits, p.parked = delays{}, nil
}

func (p *Pacer) endDrain() {
	p.drained, p.stopped = nil, false
	p.epoch++
	if p.sendCtx.Err() != nil {
		p.sendCtx, p.cancel = context.WithCancel(context.WithoutCancel(p.sendCtx))
	}
}

// maxSpare is how many results' memory is kept for the next ones.
const maxSpare = 4096

// inbox is how other goroutines talk to the scheduler: they never wait for it here.
type inbox struct {
	mu       sync.Mutex
	commands []func()
	results  []sent
	spare    []sent // the memory of the results before
	wake     chan struct{}
	closed   chan struct{} // closed when the scheduler has ended
}

func (b *inbox) do(f func()) {
	b.mu.Lock()
	b.commands = append(b.commands, f)
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) result(r sent) {
	b.mu.Lock()
	b.results = append(b.results, r)
	b.mu.Unlock()
	b.signal()
}

func (b *inbox) signal() {
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *inbox) take() (commands []func(), results []sent) {
	b.mu.Lock()
	defer b.mu.Unlock()
	commands, results = b.commands, b.results
	b.commands, b.results, b.spare = nil, b.spare, nil
	return commands, results
}

// done gives the memory of results back.
func (b *inbox) done(results []sent) {
	if cap(results) > maxSpare {
		return
	}
	clear(results)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spare = results[:0]
}

func (b *inbox) close() { close(b.closed) }
