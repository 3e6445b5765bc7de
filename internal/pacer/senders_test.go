package pacer

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSendersAreKeptAndTrimmed: as many goroutines as calls at once, the same again for the next calls, fewer when fewer
// are needed, none in the end.
func TestSendersAreKeptAndTrimmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		var begun, ended atomic.Int64
		s := &senders{running: &running, send: func(dispatch) {
			begun.Add(1)
			time.Sleep(time.Second)
			ended.Add(1)
		}}
		for range 3 {
			for range 20 {
				s.start(dispatch{})
			}
			synctest.Wait()
			if begun.Load() != ended.Load()+20 {
				t.Fatalf("%d begun, %d ended: a call waits for another", begun.Load(), ended.Load())
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if n := len(s.idle); n != 20 {
				t.Fatalf("%d goroutines for 20 calls at once", n)
			}
			s.trim()
		}
		for range 5 {
			s.start(dispatch{})
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.trim()
		if n := len(s.idle); n != 5 {
			t.Errorf("%d goroutines kept for 5 calls at once", n)
		}
		s.start(dispatch{})
		s.close()
		running.Wait()
		if begun.Load() != 66 || ended.Load() != 66 {
			t.Errorf("%d begun, %d ended of 66", begun.Load(), ended.Load())
		}
	})
}

// Jobs of a sink that answers at once are sent by few goroutines, and each once.
func TestSendersSendManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 2 * maxSpare
		var running sync.WaitGroup
		var sent [jobs]atomic.Int64
		s := &senders{running: &running, send: func(x dispatch) { sent[x.at].Add(1) }}
		for i := range jobs {
			s.start(dispatch{at: int64(i)})
		}
		synctest.Wait()
		for i := range sent {
			if n := sent[i].Load(); n != 1 {
				t.Fatalf("job %d was sent %d times", i, n)
			}
		}
		if s.coming || s.taken != 0 || len(s.jobs) != 0 || cap(s.jobs) > 2*maxSpare {
			t.Errorf("in the end: coming %t, %d of %d taken, room for %d", s.coming, s.taken, len(s.jobs), cap(s.jobs))
		}
		s.close()
		running.Wait()
	})
}

// Jobs that wait for a goroutine all the time take no more memory than they are.
func TestSendersUsePlacesAgain(t *testing.T) {
	var running sync.WaitGroup
	s := &senders{running: &running, coming: true, closed: true} // a goroutine is on its way, and never comes
	for i := range int64(10_000) {
		s.start(dispatch{at: i})
		if i < 10 {
			continue
		}
		if x, ok := s.nextJob(nil, false); !ok || x.at != i-10 {
			t.Fatalf("job %d came as number %d", x.at, i-10)
		}
	}
	if cap(s.jobs) > 100 {
		t.Errorf("room for %d jobs, of which at most 11 wait", cap(s.jobs))
	}
}
