package pacer

import "sync"

// maxIdle is how many goroutines may wait for a job.
const maxIdle = 512

// senders are the goroutines that call sinks, with one job at a time each. They are reused: a new goroutine would have
// to grow its stack for every job. Passing a job to one never blocks.
//
// A goroutine that has taken a job wakes the next one, if there are more jobs, before it calls its sink. So all jobs are on
// their way at once while calls take time, and one goroutine sends many where the sink answers at once.
type senders struct {
	send    func(dispatch)
	running *sync.WaitGroup

	mu     sync.Mutex     // guards the rest
	jobs   fifo[dispatch] // that no goroutine has taken
	coming bool           // a goroutine was woken that has not taken a job yet; it is so while there are jobs
	idle   int            // goroutines without a job
	woken  *sync.Cond     // on which they wait
	closed bool
}

func newSenders(send func(dispatch), running *sync.WaitGroup) *senders {
	s := &senders{send: send, running: running}
	s.woken = sync.NewCond(&s.mu)
	return s
}

// start gives a job to a goroutine that is idle, or to a new one.
func (s *senders) start(x dispatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs.pushBack(x)
	s.call()
}

// call wakes a goroutine if there are jobs and none is coming. Needs the lock.
func (s *senders) call() {
	if s.coming || s.jobs.len() == 0 {
		return
	}
	if s.coming = true; s.idle > 0 {
		s.idle--
		s.woken.Signal()
	} else {
		s.running.Go(s.work)
	}
}

// work sends jobs until there are many goroutines without one, or none comes any more.
func (s *senders) work() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.coming = false; ; s.coming = false {
		for s.jobs.len() > 0 {
			x := s.jobs.popFront()
			s.call()
			s.mu.Unlock()
			s.send(x)
			s.mu.Lock()
		}
		if s.closed || s.idle >= maxIdle {
			return
		}
		s.idle++
		s.woken.Wait()
	}
}

// close ends the goroutines that are idle, and the others when their calls have returned.
func (s *senders) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.woken.Broadcast()
}
