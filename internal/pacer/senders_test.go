package pacer

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestSendersAreReused: as many goroutines as calls at once, the same again for the next calls, some of many afterwards, none in the end.
func TestSendersAreReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running sync.WaitGroup
		var begun, ended atomic.Int64
		s := newSenders(func(dispatch) {
			begun.Add(1)
			time.Sleep(time.Second)
			ended.Add(1)
		}, &running)
		for _, calls := range []int{20, 20, 2 * maxIdle} {
			for range calls {
				s.start(dispatch{})
			}
			synctest.Wait()
			if begun.Load() != ended.Load()+int64(calls) {
				t.Fatalf("%d begun, %d ended: a call waits for another", begun.Load(), ended.Load())
			}
			time.Sleep(2 * time.Second)
			synctest.Wait()
			if s.idle != min(calls, maxIdle) {
				t.Fatalf("%d goroutines after %d calls at once", s.idle, calls)
			}
		}
		s.start(dispatch{})
		s.close()
		running.Wait()
		if n := int64(41 + 2*maxIdle); begun.Load() != n || ended.Load() != n {
			t.Errorf("%d begun, %d ended of %d", begun.Load(), ended.Load(), n)
		}
	})
}

// Jobs of a sink that answers at once are each sent once.
func TestSendersSendManyAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const jobs = 2 * maxSpare
		var running sync.WaitGroup
		var sent [jobs]atomic.Int64
		s := newSenders(func(x dispatch) { sent[x.at].Add(1) }, &running)
		for i := range jobs {
			s.start(dispatch{at: int64(i)})
		}
		synctest.Wait()
		for i := range sent {
			if n := sent[i].Load(); n != 1 {
				t.Fatalf("job %d was sent %d times", i, n)
			}
		}
		s.close()
		running.Wait()
	})
}
