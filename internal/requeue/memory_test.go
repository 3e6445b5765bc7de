package requeue

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

// memory is a transport with a broker in it that takes every record, or does what onProduce says. It does no
// I/O, so that time can be faked around it.
type memory struct {
	topics    map[string]int // partitions
	onProduce func(ctx context.Context, n int) (errorCode int16, err error)

	mu      sync.Mutex
	calls   int
	written map[partition][]kafka.Record
}

func newMemory(prefix string) *memory {
	m := &memory{topics: map[string]int{LaneTopic(prefix): 8, DeadTopic(prefix): 2}, written: make(map[partition][]kafka.Record)}
	for _, d := range DefaultTimers() {
		m.topics[TimerTopic(prefix, d)] = 2
	}
	return m
}

func (m *memory) client() *kafka.Client {
	return &kafka.Client{Addr: kafka.TCP("memory:1"), Transport: m}
}

func (m *memory) RoundTrip(ctx context.Context, _ net.Addr, req kafka.Request) (kafka.Response, error) {
	switch req := req.(type) {
	case *metadataapi.Request:
		return m.metadata(req), nil
	case *produceapi.Request:
		return m.produce(ctx, req)
	}
	return nil, fmt.Errorf("memory: unexpected %T", req)
}

func (m *memory) metadata(req *metadataapi.Request) *metadataapi.Response {
	res := &metadataapi.Response{Brokers: []metadataapi.ResponseBroker{{NodeID: 1, Host: "memory", Port: 1}}}
	for _, name := range req.TopicNames {
		t := metadataapi.ResponseTopic{Name: name}
		for p := range m.topics[name] {
			t.Partitions = append(t.Partitions, metadataapi.ResponsePartition{PartitionIndex: int32(p), LeaderID: 1})
		}
		res.Topics = append(res.Topics, t)
	}
	return res
}

func (m *memory) produce(ctx context.Context, req *produceapi.Request) (*produceapi.Response, error) {
	m.mu.Lock()
	m.calls++
	n := m.calls
	m.mu.Unlock()
	code := int16(0)
	if m.onProduce != nil {
		var err error
		if code, err = m.onProduce(ctx, n); err != nil {
			return nil, err
		}
	}
	res := &produceapi.Response{}
	for _, t := range req.Topics {
		rt := produceapi.ResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			rt.Partitions = append(rt.Partitions, produceapi.ResponsePartition{Partition: p.Partition, ErrorCode: code})
			if code == 0 {
				m.keep(partition{t.Topic, int(p.Partition)}, p.RecordSet.Records)
			}
		}
		res.Topics = append(res.Topics, rt)
	}
	return res, nil
}

func (m *memory) keep(to partition, records kafka.RecordReader) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for {
		r, err := records.ReadRecord()
		if err != nil {
			return
		}
		m.written[to] = append(m.written[to], *r)
	}
}

// total is how many records lie in topics whose names contain part.
func (m *memory) total(part string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for to, records := range m.written {
		if strings.Contains(to.topic, part) {
			n += len(records)
		}
	}
	return n
}
