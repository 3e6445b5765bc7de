package pacer

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// senders are the goroutines that call sinks, with one job at a time each. They are reused: a new goroutine would have
// to grow its stack for every job. There are as many as calls were in flight recently; passing a job to one never
// blocks.
type senders struct {
	send    func(dispatch)
	running *sync.WaitGroup

	mu     sync.Mutex      // guards the rest
	idle   []chan dispatch // of the goroutines without a job; the one that was busy last gets the next
	fewest int             // idle ones since the last trim
	closed bool
}

// dispatch is one job to be passed to its sink.
type dispatch struct {
	ctx    context.Context
	queue  *queue
	sink   *sinkState
	job    *delivery.Job
	used   []delivery.Grant // its slots, as counted by quotas
	at     int64            // local time of its slot
	latest int64            // local time until which the slot may be used
	epoch  int
	begun  int64 // local time when it was passed on
	since  int64 // local time when the job was last sent before, or else when it is now
}

// hand gives a job to a goroutine that is idle, or to a new one.
func (s *senders) hand(x dispatch) {
	s.mu.Lock()
	var jobs chan dispatch
	if last := len(s.idle) - 1; last >= 0 {
		jobs, s.idle = s.idle[last], s.idle[:last]
		s.fewest = min(s.fewest, last)
	}
	s.mu.Unlock()
	if jobs == nil {
		jobs = make(chan dispatch, 1)
		s.running.Go(func() { s.work(jobs) })
	}
	jobs <- x // it holds one, and no other goroutine has it
}

// work sends jobs until it is idle for long, or closed.
func (s *senders) work(jobs chan dispatch) {
	for x := range jobs {
		s.send(x)
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			return
		}
		s.idle = append(s.idle, jobs)
		s.mu.Unlock()
	}
}

// trim ends the goroutines that were not needed since the last trim.
func (s *senders) trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, jobs := range s.idle[:s.fewest] {
		close(jobs)
	}
	n := copy(s.idle, s.idle[s.fewest:])
	clear(s.idle[n:])
	s.idle = s.idle[:n]
	s.fewest = n
}

// close ends all that are idle, and the others when their calls have returned.
func (s *senders) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, jobs := range s.idle {
		close(jobs)
	}
	s.idle = nil
}

// deliver passes a job to its sink. On a busy machine time may have passed since its slot: a job that is too late is
// not sent, and its slot is forfeited.
func (p *Pacer) deliver(x dispatch) {
	begun := time.Now()
	now := p.at(begun).local
	p.metrics.lateness.Observe(float64(now-x.at) / 1e6)
	if now > x.latest {
		p.inbox.result(sent{dispatch: x, forfeited: true})
		return
	}
	x.job.SendBy = p.start.Add(time.Duration(x.latest) * time.Microsecond)
	r := p.opt.Sinks.Deliver(x.ctx, x.sink.id, x.job)
	took := time.Since(begun)
	if r.Class <= delivery.Interrupted {
		x.job.Call = delivery.Call{At: begun, Took: took, Status: r.Status}
	}
	p.inbox.result(sent{dispatch: x, result: r, took: took})
}

// sends are the calls of sinks. Only the scheduler uses it, except for senders and paces.
type sends struct {
	senders
	paces    atomic.Pointer[map[string]pace] // by sink; read by any goroutine
	ctx      context.Context                 // of the calls
	cancel   context.CancelFunc
	inFlight int
	lateAt   int64 // local time when a slot was last used so late that relaying has to wait; 0: never
}

// renew makes a context for further calls when that of the last ones has been cancelled.
func (s *sends) renew() {
	if s.ctx.Err() != nil {
		s.begin(s.ctx)
	}
}

// begin makes the context of calls, which do not end with ctx.
func (s *sends) begin(ctx context.Context) {
	s.ctx, s.cancel = context.WithCancel(context.WithoutCancel(ctx))
}

// behindFor is how long after a late slot sending counts as behind.
const behindFor = 500 * time.Millisecond

// behind tells whether sending is behind for want of CPU.
func (s *sends) behind(now instant) bool {
	return s.lateAt != 0 && now.local <= s.lateAt+behindFor.Microseconds()
}
