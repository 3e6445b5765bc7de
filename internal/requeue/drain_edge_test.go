package requeue

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestADrainWritesDeadLetters: the job was sent and refused for good; its dead letter is put when the drain of the pacer ends, and the drain of
// the relay comes right after. (A worker may or may not be quick enough to take it.)
func TestADrainWritesDeadLetters(t *testing.T) {
	kept := 0
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			m, s := newMemory("t."), newSource("a")
			r := start(t, Options{Client: memoryClient(t, m), Topics: TopicSpec{Prefix: "t.", Lanes: 8}, Workers: 4})
			time.Sleep(time.Second)
			r.Put(s.job(1, "c"), dead)
			r.Drain(t.Context())
			if _, ok := s.outcome(1); ok {
				kept++
			}
		})
	}
	if kept < 50 {
		t.Errorf("%d of 50 dead letters of jobs that were sent are written by a graceful stop; the others' jobs are sent again", kept)
	}
}
