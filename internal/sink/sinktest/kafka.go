package sinktest

import (
	"crypto/tls"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Written is a record that a broker got, in a request that was read to its end.
type Written struct {
	ID        string // pacer-job-id
	Partition int32
	Key       []byte
	Value     []byte
	Headers   []kmsg.Header
}

// Treatment is how a broker answers a request.
type Treatment struct {
	Code int16 // of an error, for each partition; nothing is written
	// Codes are of errors by partition; the records of others are written. So are those of a partition with the code of
	// REQUEST_TIMED_OUT or NOT_ENOUGH_REPLICAS_AFTER_APPEND.
	Codes map[int32]int16
	Reset bool // the connection is closed
	Hang  bool // there is no answer
}

// Broker is a Kafka broker, or several, that speak TLS. It ends with the test.
type Broker struct {
	Cluster *kfake.Cluster
	Addr    string
	CAFile  string

	mu   sync.Mutex
	seen []Written
}

// BrokerOptions are what a broker has.
type BrokerOptions struct {
	Topic      string
	Partitions int32
	Brokers    int // 0: one
	More       []kfake.Opt
	// Treat, if set, is asked for each request, by the number of its broker and with what it is to write.
	Treat func(node int32, records []Written) Treatment
}

// StartBroker starts a broker.
func StartBroker(t testing.TB, opt BrokerOptions) *Broker {
	t.Helper()
	cert, caFile := Certificate(t)
	cluster, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(max(opt.Brokers, 1)), kfake.SeedTopics(opt.Partitions, opt.Topic),
		kfake.TLS(&tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}}),
	}, opt.More...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	b := &Broker{Cluster: cluster, Addr: cluster.ListenAddrs()[0], CAFile: caFile}
	cluster.ControlKey(int16(kmsg.Produce), func(request kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		produce := request.(*kmsg.ProduceRequest)
		if produce.Acks != -1 {
			t.Errorf("a request wants acks=%d: what it writes may be lost", produce.Acks)
		}
		records := writes(produce)
		b.mu.Lock()
		b.seen = append(b.seen, records...)
		b.mu.Unlock()
		if opt.Treat == nil {
			return nil, nil, false
		}
		how := opt.Treat(cluster.CurrentNode(), records)
		for p, code := range how.Codes {
			// Requests are handled one after the other: this is the one that the fault meets.
			cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Partitions: []int32{p}, Err: kerr.TypedErrorForCode(code)})
		}
		answer, handled, err := answerTo(produce, how)
		return answer, err, handled
	})
	return b
}

func answerTo(request *kmsg.ProduceRequest, how Treatment) (answer kmsg.Response, handled bool, err error) {
	switch {
	case how.Reset:
		return nil, true, errors.New("reset")
	case how.Hang:
		return nil, true, nil
	case how.Code == 0:
		return nil, false, nil
	}
	all := request.ResponseKind().(*kmsg.ProduceResponse)
	for _, t := range request.Topics {
		topic := kmsg.NewProduceResponseTopic()
		topic.Topic, topic.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			partition := kmsg.NewProduceResponseTopicPartition()
			partition.Partition, partition.ErrorCode, partition.BaseOffset = p.Partition, how.Code, -1
			topic.Partitions = append(topic.Partitions, partition)
		}
		all.Topics = append(all.Topics, topic)
	}
	return all, true, nil
}

// writes returns what a request is to write.
func writes(request *kmsg.ProduceRequest) (all []Written) {
	for _, t := range request.Topics {
		for _, p := range t.Partitions {
			var batch kmsg.RecordBatch
			if batch.ReadFrom(p.Records) != nil {
				continue
			}
			records, _ := kfake.BatchRecords(batch)
			for _, r := range records {
				w := Written{Partition: p.Partition, Key: r.Key, Value: r.Value, Headers: r.Headers}
				for _, h := range r.Headers {
					if h.Key == "pacer-job-id" {
						w.ID = string(h.Value)
					}
				}
				all = append(all, w)
			}
		}
	}
	return all
}

// Seen returns the records of all requests that were read to their end, in order, with any answer.
func (b *Broker) Seen() []Written {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.seen)
}

// Kept returns how many records are in the topic.
func (b *Broker) Kept(topic string) (n int64) {
	for _, p := range b.Cluster.PartitionInfos(topic) {
		n += p.HighWatermark
	}
	return n
}
