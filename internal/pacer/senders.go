package pacer

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

// senders are the goroutines that call sinks, with one job at a time each. They are reused: a new goroutine would have
// to grow its stack for every job. There are as many as calls were in flight recently; passing a job to one never
// blocks.
//
// A goroutine that has taken a job wakes the next one, if there are more jobs, before it calls its sink. So all jobs are on
// their way at once while calls take time, and one goroutine sends many where the sink answers at once.
type senders struct {
	send    func(dispatch)
	running *sync.WaitGroup

	mu     sync.Mutex      // guards the rest
	jobs   []dispatch      // that no goroutine has taken
	taken  int             // of jobs, from the first on
	coming bool            // a goroutine was woken that has not taken a job yet; it is so while there are jobs
	idle   []chan struct{} // of the goroutines without a job; the one that was busy last gets the next
	fewest int             // idle ones since the last trim
	closed bool
}

// dispatch is one job to be passed to its sink.
type dispatch struct {
	ctx         context.Context
	queue       *queue
	sink        *sinkState
	destination *destination // nil: the job has none of its own
	job         *delivery.Job
	used        []delivery.Grant // its slots, as counted by quotas
	at          int64            // local time of its slot
	latest      int64            // local time until which the slot may be used; never without a slot
	epoch       int
	begun       int64 // local time when it was passed on
	since       int64 // local time when the job was last sent before, or else when it is now
}

// start gives a job to a goroutine that is idle, or to a new one.
func (s *senders) start(x dispatch) {
	s.mu.Lock()
	if s.taken > len(s.jobs)/2 { // the place of those that were taken is used again
		n := copy(s.jobs, s.jobs[s.taken:])
		clear(s.jobs[n:])
		s.jobs, s.taken = s.jobs[:n], 0
	}
	s.jobs = append(s.jobs, x)
	wake := s.call()
	s.mu.Unlock()
	if wake != nil {
		wake <- struct{}{} // it holds one, and nobody else sends one
	}
}

// call returns the channel of a goroutine to be woken, if there are jobs and none is coming. Needs the lock.
func (s *senders) call() chan struct{} {
	if s.coming || s.taken == len(s.jobs) {
		return nil
	}
	s.coming = true
	if last := len(s.idle) - 1; last >= 0 {
		wake := s.idle[last]
		s.idle = s.idle[:last]
		s.fewest = min(s.fewest, last)
		return wake
	}
	wake := make(chan struct{}, 1)
	s.running.Go(func() { s.work(wake) })
	return wake
}

// work sends jobs until it is idle for long, or closed.
func (s *senders) work(woken chan struct{}) {
	for range woken {
		for x, ok := s.nextJob(woken, true); ok; x, ok = s.nextJob(woken, false) {
			s.send(x)
		}
	}
}

// nextJob takes a job for a goroutine, and wakes another one for the next job. If there is none, the goroutine is idle, or ends.
// came says that it has just been woken.
func (s *senders) nextJob(woken chan struct{}, came bool) (x dispatch, ok bool) {
	s.mu.Lock()
	if came {
		s.coming = false
	}
	if ok = s.taken < len(s.jobs); ok {
		x, s.jobs[s.taken] = s.jobs[s.taken], dispatch{}
		if s.taken++; s.taken == len(s.jobs) {
			s.taken, s.jobs = 0, s.jobs[:0]
			if cap(s.jobs) > maxSpare {
				s.jobs = nil
			}
		}
	} else if s.closed {
		close(woken)
	} else {
		s.idle = append(s.idle, woken)
	}
	wake := s.call()
	s.mu.Unlock()
	if wake != nil {
		wake <- struct{}{}
	}
	return x, ok
}

// trim ends the goroutines that were not needed since the last trim.
func (s *senders) trim() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, woken := range s.idle[:s.fewest] {
		close(woken)
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
	for _, woken := range s.idle {
		close(woken)
	}
	s.idle = nil
}

// deliver passes a job to its sink. On a busy machine time may have passed since its slot: a job that is too late is
// not sent, and its slot is forfeited. How late it was is counted when the sink has answered: by then the trace of the attempt is known.
func (p *Pacer) deliver(x dispatch) {
	begun := time.Now()
	now := p.at(begun).local
	late, slotted := time.Duration(now-x.at)*time.Microsecond, x.latest != never
	if x.job.SendBy = 0; slotted {
		p.metrics.late.Observe(late)
		if now > x.latest {
			metric.Observe(p.metrics.lateness, late, "")
			p.inbox.result(sent{dispatch: x, forfeited: true})
			return
		}
		x.job.SendBy = delivery.StampOf(begun.Add(time.Duration(x.latest-now) * time.Microsecond))
	}
	r := p.opt.Sinks.Deliver(x.ctx, x.sink.id, x.job)
	took := time.Since(begun)
	if slotted {
		metric.Observe(p.metrics.lateness, late, r.TraceID)
	}
	if r.Class <= delivery.Interrupted {
		x.job.Call = delivery.Call{At: begun, Took: uint32(min(took.Microseconds(), math.MaxUint32)), Status: int32(r.Status), Provider: r.Provider}
	}
	p.inbox.result(sent{dispatch: x, result: r, lasted: took})
}

// sends are the calls of sinks. Only the scheduler uses it, except for senders.
type sends struct {
	senders
	ctx      context.Context // of the calls
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

// behind reports whether sending is behind for want of CPU.
func (s *sends) behind(now instant) bool {
	return s.lateAt != 0 && now.local <= s.lateAt+behindFor.Microseconds()
}
