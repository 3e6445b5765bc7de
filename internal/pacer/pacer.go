package pacer

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

var (
	errEnded    = errors.New("the scheduler has ended")
	errDisowned = errors.New("the jobs are other daemons' by now")
)

// Pacer owns the queues of one daemon. Make one with New, run it with Run; Offer, Relieve and Revoke may be called from any goroutine
// while it runs. Its parts lie in layers, and none calls those around it: slots, gates, placing, judge.
type Pacer struct {
	judge
	*counts
	maintenance maintenance // belongs to the scheduler goroutine
	answered    *destinationCounts
	turned      atomic.Int64 // local time of the last turn; written by the scheduler
}

// New makes a Pacer; it starts nothing.
func New(o Options) *Pacer {
	hasRow := func(destination string) bool { return o.Catalog.Snapshot().Destination(destination) != nil }
	p := &Pacer{counts: newCounts(o.Registerer, o.Shows, hasRow), answered: newDestinationCounts(o.Registerer)}
	p.opt, p.metrics, p.localClock, p.inbox = o, newMetrics(o.Registerer), localClock{start: time.Now()}, newInbox()
	p.sends.senders = newSenders(p.deliver, &p.running)
	p.queues = queues{byID: map[string]*queue{}, early: delivery.WireMargin(o.LateTolerance.Microseconds())}
	p.destinations = newDestinations(maxDestinations)
	p.pending = map[destinationKey]gateMove{}
	p.due = timeHeap[*queue]{index: func(q *queue) *int { return &q.slotIndex }}
	p.takes, p.clocks = newTakes(o.MinQuantum/2), storeClocks{}
	p.quantum = newQuantum(o.MinQuantum, o.MaxQuantum, o.ItemsPerSecond)
	p.campaigns = newCampaigns(p.sinkOf, p.counts)
	for id := range o.MaxRetryAfter { // what is there from the start can be watched from the start
		if o.Destinations(id) != nil {
			p.closedDestinations.WithLabelValues(id)
			p.answered.begin(id)
		}
	}
	return p
}

// Run schedules until ctx ends; then it cancels what is in flight, waits for it and returns nil. Jobs still queued stay
// open at their source. Revoke first for a graceful end.
func (p *Pacer) Run(ctx context.Context) error {
	p.sends.begin(ctx)
	changed := p.opt.Catalog.Subscribe()
	p.apply(p.opt.Catalog.Snapshot(), p.now())
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			close(p.inbox.closed)
			p.sends.cancel()
			p.sends.close()
			p.running.Wait()
			return nil
		case <-changed:
			p.apply(p.opt.Catalog.Snapshot(), p.now())
		case <-p.inbox.wake:
		case <-timer.C:
		}
		p.turn()
		runtime.Gosched() // let the calls run first: on a busy machine there may be no other processor for them
		now := p.now()
		timer.Reset(now.until(p.wakeAt(now)))
	}
}

// Stalled is the time since the scheduler's last turn; it has several turns a second, even when idle.
func (p *Pacer) Stalled() time.Duration {
	return time.Duration(p.now().local-p.turned.Load()) * time.Microsecond
}

// perTurn bounds the work of each kind in one turn: slots come due, and results come, in between.
const perTurn = 512

// turn does all work that is due. It reads the clocks once for the results, once for due work, and after each command,
// which may take long.
func (p *Pacer) turn() {
	commands, results, answers := p.inbox.receive()
	now := p.now()
	p.disown(now)
	p.turnAway(answers, now)
	for _, a := range answers {
		if a.leave == nil {
			p.keysAnswered(a, now)
		}
	}
	for _, r := range results {
		p.settle(r, now)
	}
	p.inbox.done(results)
	for _, f := range commands {
		f(now)
		now = p.now()
		p.dispatchDue(now)
	}
	now = p.now()
	p.applyDueChanges(now)
	p.turned.Store(now.local)
	p.dispatchDue(now)
	for range perTurn {
		j := p.aside.due(now.local)
		if j == nil {
			break
		}
		p.replace(j, now)
	}
	for _, s := range p.sinks {
		for range perTurn {
			if !p.sendFollowUp(s, now) {
				break
			}
		}
	}
	p.maintainDestinations(now)
	if now.local >= p.maintenance.at {
		p.maintain(now)
	}
	p.ask(now)
}

// wakeAt is the local time when something is next due.
func (p *Pacer) wakeAt(now instant) int64 {
	at := p.maintenance.at
	if change, ok := p.campaigns.nextChange(now); ok {
		at = min(at, change)
	}
	if p.due.len() > 0 {
		at = min(at, p.dueAt())
	}
	if p.aside.waits.len() > 0 {
		at = min(at, p.aside.waits.first().at)
	}
	for _, s := range p.sinks {
		if f := &s.followUps; f.ready > 0 && s.calls.inFlight < s.max {
			at = min(at, max(f.next, s.breaker.openUntil))
		}
	}
	if p.destinations.checks.len() > 0 {
		at = min(at, p.destinations.checks.first().at)
	}
	if ask, ok := p.takes.next(); ok {
		at = min(at, ask)
	}
	return at
}

// background calls f in a goroutine that Run waits for, with a context for calls of the limiter.
func (sl *slots) background(f func(ctx context.Context)) {
	base := context.WithoutCancel(sl.sends.ctx)
	sl.running.Go(func() {
		ctx, cancel := context.WithTimeout(base, takeTimeout)
		defer cancel()
		f(ctx)
	})
}

// Offer passes jobs to the pacer. refused are the jobs that do not fit their campaign's queue and wait in lanes, or in ingress under
// overflow block. GrantCapacity of their source is called when there is room again. All others are accepted.
func (p *Pacer) Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	p.opt.findDestinations(ctx, jobs)
	if p.opt.Keys != nil {
		p.opt.Keys.Refuse(jobs)
	}
	disowned, asks := false, []delivery.KeyAsk(nil)
	refused, err = inTurn(ctx, p, func(now instant) (refused []*delivery.Job) {
		if disowned = p.disown(now); !disowned {
			refused, asks = p.place(jobs, now)
		}
		return refused
	})
	switch {
	case err != nil:
	case disowned:
		err = errDisowned
	case len(asks) > 0:
		p.opt.Keys.Reserve(asks, func(a delivery.KeyAsk, told delivery.KeyAnswer, leave func()) {
			if told != (delivery.KeyAnswer{}) {
				p.inbox.answer(keyAsk{dispatch: dispatch{campaign: a.Campaign, job: a.Job}, answer: told, leave: leave})
			}
		})
	}
	return refused, err
}

// Relieve moves the queued jobs of src with offsets below before, and no slot yet, on to their lanes now: they keep its window of open offsets
// from advancing. It does nothing while sending is behind for want of CPU: relaying a job costs more CPU than sending it, and the source asks
// again.
func (p *Pacer) Relieve(src delivery.Source, before int64) {
	p.inbox.do(func(now instant) {
		if p.sends.behind(now) {
			return
		}
		for _, q := range p.queues.list {
			if q.direct == 0 || q.campaign == nil {
				continue
			}
			p.moveOut(q, func(ahead int64, j *delivery.Job) bool {
				return j.Source == src && j.Offset < before && ahead >= q.granted && !remains(j, q.campaign) && !q.fast(ahead, now)
			}, func(j *delivery.Job) placement { return relayed(j, q.campaign, now) }, now)
		}
		for d := range p.destinations.lines() {
			p.moveOut(&d.line, func(_ int64, j *delivery.Job) bool {
				return j.Source == src && j.Offset < before && j.From != delivery.FromLane
			}, func(j *delivery.Job) placement { return d.timer(j, &p.opt, now) }, now)
		}
	})
}

// maxSpare is how many results' memory is kept for the next ones.
const maxSpare = 4096

// inbox passes results and commands of other goroutines to the scheduler: they never wait for it here. A command is
// called with the time of its turn.
type inbox struct {
	mu       sync.Mutex
	commands []func(instant)
	results  []sent
	answers  []keyAsk
	spare    []sent // the memory of the results before
	wake     retry.Signal
	closed   chan struct{} // closed when the scheduler has ended
}

func newInbox() inbox { return inbox{wake: retry.NewSignal(), closed: make(chan struct{})} }

func (b *inbox) do(f func(now instant)) { post(b, &b.commands, f) }

func (b *inbox) result(r sent) { post(b, &b.results, r) }

func (b *inbox) answer(a keyAsk) { post(b, &b.answers, a) }

func post[T any](b *inbox, list *[]T, item T) {
	b.mu.Lock()
	*list = append(*list, item)
	b.mu.Unlock()
	b.wake.Send()
}

func (b *inbox) receive() (commands []func(instant), results []sent, answers []keyAsk) {
	b.mu.Lock()
	defer b.mu.Unlock()
	commands, results, answers = b.commands, b.results, b.answers
	b.commands, b.results, b.spare, b.answers = nil, b.spare, nil, nil
	return commands, results, answers
}

func (b *inbox) done(results []sent) {
	if cap(results) > maxSpare {
		return
	}
	clear(results)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spare = results[:0]
}
