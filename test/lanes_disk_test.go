//go:build e2e

package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// measureDisk: when many jobs have gone through lanes and timers, how long what was delivered stays in them.
func measureDisk(t *testing.T, table *laneTable) {
	ids := numbered(40)
	each := laneJobs(t, 1_000_000) / len(ids)
	const perSecond, bound = 1000, 2 * time.Minute
	s, sent := newLaneStack(t, 16)
	d := s.waiting(ids, each, func(int) float64 { return perSecond })
	s.resume(0)
	s.throughTimers(ids, each, len(ids)*each/10)
	jobs := len(ids) * (each + each/10)
	peak := int64(0)
	s.await(time.Hour, "every job", func() bool {
		now, _ := s.held("")
		peak = max(peak, now)
		time.Sleep(time.Second)
		return sent.read().total >= jobs
	})
	delivered := time.Now()
	left, ever := s.held("")
	for left > 0 && time.Since(delivered) < bound+30*time.Second {
		time.Sleep(time.Second)
		left, ever = s.held("")
	}
	took := time.Since(delivered)
	table.add(t, fmt.Sprintf("%d records through lanes and timers: all gone", ever),
		fmt.Sprintf("%d left %.0f s after the last delivery (at most %d at once)", left, took.Seconds(), peak),
		"0 within 120 s", left == 0 && took <= bound)
	lost, again := sent.fates(ids, each+each/10)
	table.add(t, "lost, sent twice", fmt.Sprintf("%d, %d", lost, again), "0, 0", lost+again == 0)
	if lost+again > 0 {
		t.Errorf("%d jobs lost, %d sent twice", lost, again)
	}
	s.inMemory(table, d, 256)
}

// throughTimers publishes jobs, numbered from first on, that may not be sent for six more seconds: too long for memory.
func (s *stack) throughTimers(ids []string, first, n int) {
	s.t.Helper()
	jobs := make([]job, 0, n)
	notBefore := time.Now().Add(6*time.Second + time.Duration(n/50_000)*time.Second)
	header := kafka.Header{Key: "pacer-not-before", Value: []byte(notBefore.UTC().Format(time.RFC3339Nano))}
	for i := range n {
		id := ids[i%len(ids)]
		jobs = append(jobs, job{
			campaign: id, id: fmt.Sprintf("%s-%d", id, first+i/len(ids)), headers: []kafka.Header{header},
		})
	}
	s.publish(jobs)
}
