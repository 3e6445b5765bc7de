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
				s.hand(dispatch{})
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
			s.hand(dispatch{})
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		s.trim()
		if n := len(s.idle); n != 5 {
			t.Errorf("%d goroutines kept for 5 calls at once", n)
		}
		s.hand(dispatch{})
		s.close()
		running.Wait()
		if begun.Load() != 66 || ended.Load() != 66 {
			t.Errorf("%d begun, %d ended of 66", begun.Load(), ended.Load())
		}
	})
}
