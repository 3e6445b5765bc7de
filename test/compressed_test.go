package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/requeue"
)

// TestCompressedLargeJobs: jobs of 3 MB that fit their topic compressed wait in their lane, whose limit is the default,
// while their campaign is paused, and are delivered whole.
func TestCompressedLargeJobs(t *testing.T) {
	t.Parallel()
	s := newStack(t, stackOptions{partitions: 1, lanes: 2})
	s.sql(`INSERT INTO pacer.campaigns (id, send_rate, status) VALUES ('c', 20, 'paused')`)
	jobs := make([]job, 20)
	bytes := map[string]int64{}
	for i := range jobs {
		payload := []byte("[")
		for row := 0; len(payload) < 3<<20+1000*i; row++ {
			payload = fmt.Appendf(payload, `{"job":%d,"row":%d,"city":"Hamburg","consent":true},`, i, row)
		}
		payload[len(payload)-1] = ']'
		jobs[i] = job{campaign: "c", id: fmt.Sprintf("c-%d", i), payload: payload}
		bytes[jobs[i].id] = int64(len(payload))
	}
	for _, j := range jobs {
		s.produce(s.ingress, 0, kafka.Zstd, j)
	}
	d := s.started("one")
	s.await(30*time.Second, "all jobs in the lane", func() bool { return s.written(requeue.LaneTopic(s.prefix)) == int64(len(jobs)) })
	s.sql(`UPDATE pacer.campaigns SET status = 'active' WHERE id = 'c'`)
	s.await(30*time.Second, "every job", func() bool { return s.receiver.count("c") >= len(jobs) })
	for _, a := range s.receiver.arrivals("c") {
		if a.bytes != bytes[a.id] {
			t.Errorf("%s: %d bytes of %d", a.id, a.bytes, bytes[a.id])
		}
		delete(bytes, a.id)
	}
	if len(bytes) > 0 || d.metric("pacer_requeue_oversize") != 0 {
		t.Errorf("%d were not delivered, %v are too large", len(bytes), d.metric("pacer_requeue_oversize"))
	}
}
