package pacer

import (
	"context"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// senders are the goroutines that hand jobs to sinks, one job at a time each. They are kept: a new goroutine would grow
// its stack anew for every job. There are as many as calls were in flight lately; handing over never blocks.
type senders struct {
	send    func(dispatch)
	running *sync.WaitGroup

	mu     sync.Mutex      // guards the rest
	idle   []chan dispatch // of the goroutines without a job; who was busy last gets the next
	fewest int             // idle ones since the last trim
	closed bool
}

// dispatch is one job on its way to its sink.
type dispatch struct {
	ctx    context.Context
	queue  *queue
	sink   *sinkState
	job    *delivery.Job
	used   []delivery.Grant // what its slots count for quotas
	at     int64            // local time of its slot
	latest int64            // local time until which the slot may be used
	epoch  int
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
	jobs <- x // it holds one, and nobody else has it
}

// work sends jobs until there are none for long, or no more at all.
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

// trim ends the goroutines that nobody needed since the last trim.
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

// deliver hands a job to its sink. Since its slot a busy machine may have let time pass: a job that has become too late is
// not sent, its slot is forfeited after all.
func (p *Pacer) deliver(x dispatch) {
	begun := time.Now()
	now := begun.Sub(p.start).Microseconds()
	p.metrics.lateness.Observe(float64(now-x.at) / 1e6)
	if now > x.latest {
		p.inbox.result(sent{queue: x.queue, sink: x.sink, job: x.job, used: x.used, forfeited: true, epoch: x.epoch})
		return
	}
	x.job.SendBy = p.start.Add(time.Duration(x.latest) * time.Microsecond)
	r := p.opt.Sinks.Deliver(x.ctx, x.sink.id, x.job)
	p.inbox.result(sent{
		queue: x.queue, sink: x.sink, job: x.job, used: x.used, result: r, took: time.Since(begun), epoch: x.epoch,
	})
}
