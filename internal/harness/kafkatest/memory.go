package kafkatest

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"

	"github.com/segmentio/kafka-go"
	metadataapi "github.com/segmentio/kafka-go/protocol/metadata"
	produceapi "github.com/segmentio/kafka-go/protocol/produce"
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
	case *produceapi.Request:
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

func (m *Memory) produce(ctx context.Context, req *produceapi.Request) (*produceapi.Response, error) {
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
			records, bytes := count(p.RecordSet.Records)
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

// count returns the number of records, and the bytes of their values.
func count(list kafka.RecordReader) (records, bytes int) {
	for {
		r, err := list.ReadRecord()
		if err != nil {
			return records, bytes
		}
		records++
		if r.Value != nil {
			bytes += r.Value.Len()
		}
	}
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
