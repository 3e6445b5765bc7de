package test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// compressedCases are about records that are larger than they look.
var compressedCases = []chaosCase{
	{"compressed-records", false, compressedRecords, telling{}},
	{"decompression-bomb", false, decompressionBomb, telling{line: "a record cannot be read as a whole", metric: "pacer_defects_total"}},
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

// decompressionBomb puts batches of some kilobytes that decompress to gigabytes between the jobs of a campaign, in ingress and
// in lanes. Each is a dead letter, and the daemons stay small.
func decompressionBomb(t *testing.T, c *chaos) {
	const bombs = 3
	c.world(t, stackOptions{partitions: 2})
	c.campaign("good", c.rate(100))
	c.campaign("waits", c.rate(20))
	c.publish(further("waits", "before", c.jobs(200)))
	one, two := c.join("one"), c.join("two")
	lanes := requeue.LaneTopic(c.prefix)
	c.await(20*time.Second, "a lane", func() bool { return c.written(lanes) > 0 })
	load := map[string]float64{"good": c.rate(60)}
	bomb := bombOf(2, 1<<30)
	t.Logf("a batch of %d bytes", len(bomb))
	for i := range bombs {
		c.writeBatch(c.ingress, i%2, bomb)
		c.writeBatch(lanes, delivery.OrderOfLanes("waits", c.bystander.lane+1).Lane(0), bomb)
		c.feed(fmt.Sprint("after", i), 2*time.Second, load)
	}
	c.publish(further("waits", "after", c.jobs(50)))
	c.healed()
	c.await(90*time.Second, "the dead letters", func() bool { return c.written(requeue.DeadTopic(c.prefix)) >= 2*bombs })
	c.delivered(90 * time.Second)
	if n := c.written(requeue.DeadTopic(c.prefix)); n != 2*bombs {
		t.Errorf("%d dead letters of %d bombs", n, 2*bombs)
	}
	for _, d := range []*daemon{one, two} {
		const bound = 192 * 6 / 5 // MiB, as docs/operations/deploy.md states
		mib := d.peakRSS()
		if t.Logf("%s: %d MiB resident at the peak", d.name, mib); mib > bound {
			t.Errorf("%s: %d MiB resident at the peak, more than %d", d.name, mib, bound)
		}
	}
}

// bombOf returns a batch with records of that many zeros, in zstd's shortest form.
func bombOf(records, size int) []byte {
	const (
		block       = 128 << 10
		raw, repeat = 0, 1
		end         = 1
	)
	body := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x38} // a frame with a window of 128 KiB
	header := func(size, kind, last int) {
		n := size<<3 | kind<<1 | last
		body = append(body, byte(n), byte(n>>8), byte(n>>16))
	}
	for i := range records {
		fields := binary.AppendVarint([]byte{0, 0}, int64(i)) // attributes, and the deltas of time and offset
		fields = binary.AppendVarint(fields, -1)              // no key
		fields = binary.AppendVarint(fields, int64(size))
		head := append(binary.AppendVarint(nil, int64(len(fields)+size+1)), fields...)
		header(len(head), raw, 0)
		body = append(body, head...)
		for n := size; n > 0; n -= block {
			header(min(n, block), repeat, 0)
			body = append(body, 0)
		}
		header(1, repeat, 0)
		body = append(body, 0) // no headers
	}
	header(0, raw, end)
	const zstd, none = 4, math.MaxUint64
	now := uint64(time.Now().UnixMilli())
	summed := binary.BigEndian.AppendUint16(nil, zstd)
	summed = binary.BigEndian.AppendUint32(summed, uint32(records-1))
	summed = binary.BigEndian.AppendUint64(summed, now)
	summed = binary.BigEndian.AppendUint64(summed, now)
	summed = binary.BigEndian.AppendUint64(summed, none)           // producer
	summed = binary.BigEndian.AppendUint16(summed, math.MaxUint16) // and its epoch
	summed = binary.BigEndian.AppendUint32(summed, math.MaxUint32) // and its sequence
	summed = binary.BigEndian.AppendUint32(summed, uint32(records))
	summed = append(summed, body...)
	batch := binary.BigEndian.AppendUint64(nil, 0)
	batch = binary.BigEndian.AppendUint32(batch, uint32(9+len(summed)))
	batch = binary.BigEndian.AppendUint32(batch, math.MaxUint32) // epoch of the leader
	batch = append(batch, 2)
	batch = binary.BigEndian.AppendUint32(batch, crc32.Checksum(summed, crc32.MakeTable(crc32.Castagnoli)))
	return append(batch, summed...)
}

// writeBatch writes a batch as it is.
func (c *chaos) writeBatch(topic string, partition int, batch []byte) {
	c.t.Helper()
	ctx := c.soon()
	client := *c.client
	client.Timeout = time.Minute // the broker decompresses it as well
	answer, err := client.RawProduce(ctx, &kafka.RawProduceRequest{
		Topic: topic, Partition: partition, RequiredAcks: kafka.RequireAll,
		RawRecords: protocol.RawRecordSet{Reader: bytes.NewReader(append(binary.BigEndian.AppendUint32(nil, uint32(len(batch))), batch...))},
	})
	if err == nil {
		err = answer.Error
	}
	if err != nil {
		c.t.Fatalf("write to %s/%d: %v", topic, partition, err)
	}
}

// compressed publishes jobs as one batch compressed with a codec, and remembers them for the verdict.
func (c *chaos) compressed(codec kafka.Compression, jobs ...job) {
	c.t.Helper()
	messages := make([]kafka.Message, len(jobs))
	for i, j := range jobs {
		c.published[j.id] = j.campaign
		messages[i] = j.message()
	}
	if err := c.write(messages, func(w *kafka.Writer) { w.BatchBytes, w.Compression = 1<<30, codec }); err != nil {
		c.t.Fatalf("publish with %s: %v", codec, err)
	}
	c.silence.publishes(jobs)
}
