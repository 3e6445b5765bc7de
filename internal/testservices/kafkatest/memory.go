package kafkatest

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	metadataapi "github.com/segmentio/kafka-go/protocol/metadata"
	produceapi "github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
)

// Memory is a transport with a broker that accepts every record, or does what OnProduce says. It does no I/O, so that
// time can be faked around it.
type Memory struct {
	Topics map[string]int // partitions
	// OnProduce answers the n-th produce request.
	OnProduce func(ctx context.Context, n int) (errorCode int16, err error)
	// Refuse, if set, answers for one partition, named topic/number, given the number of records for it and the bytes of
	// their values. Records can be kept although the answer is an error.
	Refuse func(to string, records, bytes int) (errorCode int16, keep bool)

	mu      sync.Mutex
	calls   int
	written map[string]int // records, by topic/partition
}

// NewMemory makes a Memory with these topics.
func NewMemory(topics map[string]int) *Memory {
	return &Memory{Topics: topics, written: map[string]int{}}
}

// Wrap replaces the connections of a client.
func (m *Memory) Wrap(kafka.RoundTripper) kafka.RoundTripper { return m }

// RoundTrip implements kafka.RoundTripper.
func (m *Memory) RoundTrip(ctx context.Context, _ net.Addr, req kafka.Request) (kafka.Response, error) {
	switch req := req.(type) {
	case *metadataapi.Request:
		return m.metadata(req), nil
	case *rawproduce.Request:
		return m.produce(ctx, req)
	}
	return nil, fmt.Errorf("memory: unexpected %T", req)
}

func (m *Memory) metadata(req *metadataapi.Request) *metadataapi.Response {
	res := &metadataapi.Response{Brokers: []metadataapi.ResponseBroker{{NodeID: 1, Host: "memory", Port: 1}}}
	for _, name := range req.TopicNames {
		t := metadataapi.ResponseTopic{Name: name}
		for p := range m.Topics[name] {
			t.Partitions = append(t.Partitions, metadataapi.ResponsePartition{PartitionIndex: int32(p), LeaderID: 1})
		}
		res.Topics = append(res.Topics, t)
	}
	return res
}

func (m *Memory) produce(ctx context.Context, req *rawproduce.Request) (*produceapi.Response, error) {
	m.mu.Lock()
	m.calls++
	n := m.calls
	m.mu.Unlock()
	code := int16(0)
	if m.OnProduce != nil {
		var err error
		if code, err = m.OnProduce(ctx, n); err != nil {
			return nil, err
		}
	}
	res := &produceapi.Response{}
	for _, t := range req.Topics {
		rt := produceapi.ResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			to, code, keep := fmt.Sprintf("%s/%d", t.Topic, p.Partition), code, code == 0
			records, bytes, err := count(p.RecordSet)
			if err != nil {
				return nil, err
			}
			if keep && m.Refuse != nil {
				code, keep = m.Refuse(to, records, bytes)
			}
			base := int64(-1) // of records that were not appended
			if keep {
				base = m.keep(to, records)
			}
			rt.Partitions = append(rt.Partitions, produceapi.ResponsePartition{Partition: p.Partition, ErrorCode: code, BaseOffset: base})
		}
		res.Topics = append(res.Topics, rt)
	}
	return res, nil
}

// keep appends records, and returns the offset of the first.
func (m *Memory) keep(to string, records int) (base int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	base = int64(m.written[to])
	m.written[to] += records
	return base
}

// count returns the number of records of a batch, which zstd may have compressed, and the bytes of their values.
func count(set protocol.RawRecordSet) (records, bytes int, err error) {
	const attributes, compression, number, header = 21, 7, 57, 61 // https://kafka.apache.org/documentation/#recordbatch
	raw, err := io.ReadAll(set.Reader)
	if err != nil || len(raw) < 4+header {
		return 0, 0, fmt.Errorf("memory: a batch of %d bytes: %w", len(raw), err)
	}
	batch := raw[4:] // behind its length
	body := batch[header:]
	if batch[attributes+1]&compression != 0 {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1)) // of its own: a channel may not leave a test's bubble
		if err != nil {
			return 0, 0, err
		}
		defer d.Close()
		if body, err = d.DecodeAll(body, nil); err != nil {
			return 0, 0, err
		}
	}
	next := func() (n int) {
		v, size := binary.Varint(body)
		body = body[max(0, size):]
		return int(v)
	}
	records = int(binary.BigEndian.Uint32(batch[number:]))
	for range records {
		size := next()
		rest := body[size:]
		body = body[1:] // attributes
		next()          // its time
		next()          // its offset
		body = body[max(0, next()):]
		bytes += max(0, next())
		body = rest
	}
	return records, bytes, nil
}

// Total returns how many records are in partitions, named topic/number, whose names contain part.
func (m *Memory) Total(part string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for to, records := range m.written {
		if strings.Contains(to, part) {
			n += records
		}
	}
	return n
}
