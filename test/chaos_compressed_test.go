package test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
)

// compressedCases are about records that are larger than they look.
var compressedCases = []chaosCase{
	{"compressed-records", false, compressedRecords},
}

// compressedRecords has producers use every codec that Kafka has, for small jobs and for some of 10 MB, which are a
// thousandth of that in the broker. Some are sent at once and some wait in a lane.
func compressedRecords(t *testing.T, c *chaos) {
	c.world(t, stackOptions{partitions: 2})
	c.campaign("fast", c.rate(100))
	c.campaign("waits", 5)
	codecs := []kafka.Compression{kafka.Gzip, kafka.Snappy, kafka.Lz4, kafka.Zstd}
	for _, codec := range codecs {
		for _, id := range []string{"fast", "waits"} {
			small := further(id, codec.String(), c.jobs(20))
			c.compressed(codec, small...)
		}
	}
	for i, codec := range []kafka.Compression{kafka.Gzip, kafka.Lz4, kafka.Zstd} {
		for _, id := range []string{"fast", "waits"} {
			large := further(id, fmt.Sprint("large-", i), 3)
			for j := range large {
				large[j].payload = append(payloadOf(large[j].id), bytes.Repeat([]byte(" "), 10<<20)...)
				c.compressed(codec, large[j])
			}
		}
	}
	one, two := c.join("one"), c.join("two")
	c.await(60*time.Second, "the fast jobs", func() bool { n, _ := c.receiver.accepted("fast"); return n == c.of("fast") })
	c.release()
	c.delivered(60 * time.Second)
	c.noneDead()
	c.t.Logf("%d and %d MiB resident at the peak", one.peakRSS(), two.peakRSS())
}

// compressed publishes jobs as one batch compressed with a codec, and remembers them for the verdict.
func (c *chaos) compressed(codec kafka.Compression, jobs ...job) {
	c.t.Helper()
	w := &kafka.Writer{
		Addr: kafka.TCP(c.brokers...), Topic: c.ingress, Balancer: &kafka.RoundRobin{}, RequiredAcks: kafka.RequireAll,
		BatchTimeout: 5 * time.Millisecond, BatchBytes: 1 << 30, Compression: codec, Transport: c.client.Transport,
	}
	defer func() { _ = w.Close() }()
	messages := make([]kafka.Message, len(jobs))
	for i, j := range jobs {
		c.published[j.id] = j.campaign
		if j.payload == nil {
			j.payload = payloadOf(j.id)
		}
		messages[i] = kafka.Message{Value: j.payload, Headers: []kafka.Header{
			{Key: "pacer-campaign", Value: []byte(j.campaign)}, {Key: "pacer-job-id", Value: []byte(j.id)},
		}}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := w.WriteMessages(ctx, messages...); err != nil {
		c.t.Fatalf("publish with %s: %v", codec, err)
	}
	c.silence.publishes(jobs)
}
