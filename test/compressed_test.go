package test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/requeue"
)

// publishCompressed writes each job to ingress in a batch of its own, compressed.
func (s *stack) publishCompressed(jobs []job) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, j := range jobs {
		answer, err := s.client.Produce(ctx, &kafka.ProduceRequest{
			Topic: s.ingress, RequiredAcks: kafka.RequireAll, Compression: kafka.Zstd,
			Records: kafka.NewRecordReader(kafka.Record{Value: kafka.NewBytes(j.payload), Headers: []kafka.Header{
				{Key: "pacer-campaign", Value: []byte(j.campaign)}, {Key: "pacer-job-id", Value: []byte(j.id)},
			}}),
		})
		if err == nil {
			err = answer.Error
		}
		if err != nil {
			s.t.Fatalf("publish %s: %v", j.id, err)
		}
	}
}

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
	s.publishCompressed(jobs)
	d := s.start("one")
	d.awaitReady(15 * time.Second)
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
