package requeue

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	produceapi "github.com/segmentio/kafka-go/protocol/produce"
)

// Bounds on one produce call. The broker's own wait for its replicas is the shorter one, so that its answer
// arrives before the call is given up and its outcome unknown.
const (
	produceTimeout = 15 * time.Second
	ackTimeout     = 10 * time.Second
	layoutTimeout  = 5 * time.Second
	topologyTTL    = time.Second
)

// noLeader stands for the leader of a partition that has none.
const noLeader = -1

// ErrNoTopic tells that the broker does not know a topic.
var ErrNoTopic = errors.New("topic does not exist")

// partition names a partition of a topic.
type partition struct {
	topic string
	id    int
}

// recordBatch is what one produce request writes to one partition: accepted or refused as a whole.
type recordBatch struct {
	to      partition
	records []kafka.Record
	err     error // set by send; nil: acknowledged by all in-sync replicas
}

// broker writes record batches. It talks to the transport rather than through Client.Produce, which writes one
// partition a call: a batch of jobs of a hundred campaigns lies on a hundred lanes. Safe for concurrent use.
type broker struct {
	client *kafka.Client

	mu     sync.Mutex
	layout map[string][]int // topic -> partition -> leader
	readAt time.Time
}

func newBroker(client *kafka.Client) (*broker, error) {
	if client == nil || client.Addr == nil || client.Transport == nil {
		return nil, errors.New("a kafka client with an address and a transport is required")
	}
	return &broker{client: client, layout: make(map[string][]int)}, nil
}

// partitions returns how many partitions the topic has.
func (b *broker) partitions(ctx context.Context, topic string) (int, error) {
	leaders, err := b.leaders(ctx, topic)
	return len(leaders), err
}

// leaders returns the leader of each partition of the topic, at most topologyTTL (and the transport's metadata
// TTL) old.
func (b *broker) leaders(ctx context.Context, topic string) ([]int, error) {
	b.mu.Lock()
	if time.Since(b.readAt) > topologyTTL {
		clear(b.layout)
		b.readAt = time.Now()
	}
	leaders := b.layout[topic]
	b.mu.Unlock()
	if leaders != nil {
		return leaders, nil
	}

	ctx, cancel := context.WithTimeout(ctx, layoutTimeout)
	defer cancel()
	answer, err := b.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, fmt.Errorf("read the layout of topic %s: %w", topic, err)
	}
	if len(answer.Topics) != 1 || len(answer.Topics[0].Partitions) == 0 {
		return nil, fmt.Errorf("topic %s: %w", topic, ErrNoTopic)
	}
	partitions := answer.Topics[0].Partitions
	leaders = make([]int, len(partitions))
	for _, p := range partitions {
		if p.ID < 0 || p.ID >= len(leaders) {
			continue
		}
		leaders[p.ID] = p.Leader.ID
		if p.Leader.Port == 0 {
			leaders[p.ID] = noLeader // a request of its own, so that it fails alone
		}
	}
	b.mu.Lock()
	b.layout[topic] = leaders
	b.mu.Unlock()
	return leaders, nil
}

// forget makes the next call read the layout again: a refusal may mean that a leader moved.
func (b *broker) forget() {
	b.mu.Lock()
	b.readAt = time.Time{}
	b.mu.Unlock()
}

// send writes the batches, no two of them to the same partition, with acks=all: one request per leader, all at
// once. It returns when each has its err.
func (b *broker) send(ctx context.Context, batches []*recordBatch) {
	ctx, cancel := context.WithTimeout(ctx, produceTimeout)
	defer cancel()
	byLeader := make(map[int][]*recordBatch)
	for _, rb := range batches {
		leaders, err := b.leaders(ctx, rb.to.topic)
		if err == nil && rb.to.id >= len(leaders) {
			err = fmt.Errorf("topic %s has no partition %d: %w", rb.to.topic, rb.to.id, kafka.UnknownTopicOrPartition)
		}
		if err != nil {
			rb.err = err
			continue
		}
		byLeader[leaders[rb.to.id]] = append(byLeader[leaders[rb.to.id]], rb)
	}
	var wg sync.WaitGroup
	for _, group := range byLeader {
		wg.Go(func() { b.request(ctx, group) })
	}
	wg.Wait()
	for _, rb := range batches {
		if rb.err != nil {
			b.forget()
			return
		}
	}
}

// request writes batches of partitions that one broker leads.
func (b *broker) request(ctx context.Context, batches []*recordBatch) {
	answer, err := b.client.Transport.RoundTrip(ctx, b.client.Addr, produceRequest(batches))
	var outcome map[partition]error
	if err == nil {
		outcome, err = outcomes(answer)
	}
	for _, rb := range batches {
		switch {
		case err != nil:
			rb.err = fmt.Errorf("produce to %s/%d: %w", rb.to.topic, rb.to.id, err)
		default:
			refusal, answered := outcome[rb.to]
			if !answered {
				refusal = errors.New("the broker's answer leaves the partition out")
			}
			if refusal != nil {
				rb.err = fmt.Errorf("produce to %s/%d: %w", rb.to.topic, rb.to.id, refusal)
			}
		}
	}
}

func produceRequest(batches []*recordBatch) *produceapi.Request {
	req := &produceapi.Request{Acks: int16(kafka.RequireAll), Timeout: int32(ackTimeout.Milliseconds())}
	byTopic := make(map[string]int)
	for _, rb := range batches {
		i, ok := byTopic[rb.to.topic]
		if !ok {
			i = len(req.Topics)
			byTopic[rb.to.topic] = i
			req.Topics = append(req.Topics, produceapi.RequestTopic{Topic: rb.to.topic})
		}
		req.Topics[i].Partitions = append(req.Topics[i].Partitions, produceapi.RequestPartition{
			Partition: int32(rb.to.id),
			RecordSet: protocol.RecordSet{Records: kafka.NewRecordReader(rb.records...)},
		})
	}
	return req
}

// outcomes reads the answer of each partition; nil stands for acknowledged.
func outcomes(answer kafka.Response) (map[partition]error, error) {
	res, ok := answer.(*produceapi.Response)
	if !ok {
		return nil, fmt.Errorf("unexpected answer %T", answer)
	}
	out := make(map[partition]error)
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			var err error
			if p.ErrorCode != 0 {
				err = kafka.Error(p.ErrorCode)
			}
			if err != nil && p.ErrorMessage != "" {
				err = fmt.Errorf("%w (%s)", err, oneLine(p.ErrorMessage, maxDetail))
			}
			out[partition{topic: t.Topic, id: int(p.Partition)}] = err
		}
	}
	return out, nil
}

// tooLarge tells that a batch was refused for its size, which sending it again will not change.
func tooLarge(err error) bool {
	return errors.Is(err, kafka.MessageSizeTooLarge) || errors.Is(err, kafka.RecordListTooLarge)
}

// refused tells that the broker certainly did not write the batch. Everything else (a lost connection, a
// timeout, replicas that failed after the append) leaves the outcome unknown.
func refused(err error) bool {
	if errors.Is(err, ErrNoTopic) {
		return true
	}
	var dialing *net.OpError
	if errors.As(err, &dialing) && dialing.Op == "dial" {
		return true
	}
	var code kafka.Error
	if !errors.As(err, &code) {
		return false
	}
	switch code {
	case kafka.Unknown, kafka.RequestTimedOut, kafka.NetworkException, kafka.NotEnoughReplicasAfterAppend:
		return false
	default:
		return true
	}
}
