package broker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

func numbered(n int) iter.Seq2[delivery.Record, error] {
	return func(yield func(delivery.Record, error) bool) {
		for i := range n {
			r := delivery.Record{
				Value:   fmt.Appendf(nil, "job %d", i),
				Headers: []delivery.Header{{Key: delivery.HeaderJobID, Value: fmt.Appendf(nil, "%d", i)}},
			}
			if !yield(r, nil) {
				return
			}
		}
	}
}

// TestPublishSpreadsKeepsOrderAndCounts: over all partitions of a topic, or to the one that is named.
func TestPublishSpreadsKeepsOrderAndCounts(t *testing.T) {
	client := fakeCluster(t, kfake.SeedTopics(3, "jobs"), kfake.SeedTopics(3, "lanes"))
	p := NewProducer(ProducerOptions{Client: client})
	const n = 5_000
	told := 0
	acked, err := p.Publish(t.Context(), "jobs", numbered(n), func(k int) { told += k })
	if err != nil || acked != n || told != n {
		t.Fatalf("acked %d, told %d, %v", acked, told, err)
	}
	if acked, err = p.PublishTo(t.Context(), []Partition{{"lanes", 2}}, numbered(n), nil); err != nil || acked != n {
		t.Fatalf("acked %d, %v", acked, err)
	}
	for topic, want := range map[string][3]int{"jobs": {n / 3, n / 3, n / 3}, "lanes": {0, 0, n}} {
		seen, last, count := make(map[string]bool), [3]int{-1, -1, -1}, [3]int{}
		for _, r := range readAll(t, client, topic) {
			var i int
			if _, err := fmt.Sscan(r.Header(delivery.HeaderJobID), &i); err != nil || i <= last[r.Partition] {
				t.Fatalf("%s/%d: job %d after %d, %v", topic, r.Partition, i, last[r.Partition], err)
			}
			last[r.Partition] = i
			count[r.Partition]++
			seen[string(r.Value)] = true
		}
		for id, n := range count {
			if n < want[id] || n > want[id]+1 {
				t.Errorf("%s/%d: %d records", topic, id, n)
			}
		}
		if len(seen) != n {
			t.Errorf("%s: %d distinct records", topic, len(seen))
		}
	}
}

func TestPublishReportsTheReadersError(t *testing.T) {
	client := fakeCluster(t, kfake.SeedTopics(2, "jobs"))
	broken := errors.New("line 4 is too long")
	acked, err := client.publish(t, "jobs", func(yield func(delivery.Record, error) bool) {
		for r := range numbered(3) {
			if !yield(r, nil) {
				return
			}
		}
		yield(delivery.Record{}, broken)
	})
	if !errors.Is(err, broken) || acked != 3 {
		t.Errorf("acked %d, %v", acked, err)
	}
}

func TestPublishSplitsWhatIsTooLarge(t *testing.T) {
	client := fakeCluster(t, kfake.SeedTopics(1, "jobs"), kfake.BrokerConfigs(map[string]string{"message.max.bytes": "20000"}))
	records := make([]delivery.Record, 50)
	for i := range records {
		records[i].Value = bytes.Repeat([]byte{byte(i)}, 3_000)
	}
	if acked, err := client.publish(t, "jobs", All(records)); err != nil || acked != 50 {
		t.Fatalf("acked %d, %v", acked, err)
	}
	for i, r := range readAll(t, client, "jobs") {
		if r.Value[0] != byte(i) {
			t.Fatalf("record %d is out of order", i)
		}
	}
	_, err := client.publish(t, "jobs", All([]delivery.Record{{Value: make([]byte, 30_000)}}))
	if err == nil || !strings.Contains(err.Error(), "max.message.bytes") || !errors.Is(err, kafka.MessageSizeTooLarge) {
		t.Errorf("error %v", err)
	}
}

func TestPublishIsPatientButNotForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kafkatest.NewMemory(map[string]int{"jobs": 2})
		var down atomic.Bool
		down.Store(true)
		m.OnProduce = func(context.Context, int) (int16, error) {
			if down.Load() {
				return 0, errors.New("connection refused")
			}
			return 0, nil
		}
		client := memoryClient(t, m)
		time.AfterFunc(20*time.Second, func() { down.Store(false) })
		if acked, err := client.publish(t, "jobs", numbered(1_500)); err != nil || acked != 1_500 {
			t.Errorf("acked %d, %v", acked, err)
		}
		down.Store(true)
		began := time.Now()
		if acked, err := client.publish(t, "jobs", numbered(1_500)); err == nil || acked != 0 {
			t.Errorf("acked %d, %v", acked, err)
		}
		if took := time.Since(began); took < publishPatience || took > publishPatience+10*time.Second {
			t.Errorf("gave up after %s", took)
		}
	})
}

func TestPublishDoesNotWaitForAFullBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kafkatest.NewMemory(map[string]int{"jobs": 1})
		var seen atomic.Int64
		acked, err := memoryClient(t, m).publish(t, "jobs", func(yield func(delivery.Record, error) bool) {
			for range 3 { // typed by hand
				yield(delivery.Record{Value: []byte("x")}, nil)
				time.Sleep(time.Second)
				seen.Store(int64(m.Total("jobs")))
			}
		})
		if err != nil || acked != 3 || seen.Load() != 3 {
			t.Errorf("acked %d, written before the end %d, %v", acked, seen.Load(), err)
		}
	})
}

func TestPublishEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := kafkatest.NewMemory(map[string]int{"jobs": 2})
		m.OnProduce = func(ctx context.Context, _ int) (int16, error) { <-ctx.Done(); return 0, ctx.Err() }
		p := NewProducer(ProducerOptions{Client: memoryClient(t, m)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if acked, err := p.Publish(ctx, "jobs", numbered(100_000), nil); !errors.Is(err, context.DeadlineExceeded) || acked != 0 {
			t.Errorf("acked %d, %v", acked, err)
		}
	})
}

func TestPublishToNoTopic(t *testing.T) {
	if _, err := fakeCluster(t).publish(t, "absent", numbered(1)); !errors.Is(err, ErrNoTopic) ||
		!strings.Contains(err.Error(), "absent: topic does not exist; create it") {
		t.Errorf("error %v", err)
	}
}

// TestPublishDoesNotWaitForATerminal: a sequence that waits for its next record, as standard input may for any time, does not keep a publication
// from its end when it is given up, or the broker refuses.
func TestPublishDoesNotWaitForATerminal(t *testing.T) {
	client := fakeCluster(t, kfake.SeedTopics(1, "jobs"))
	typed, over := make(chan struct{}), make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	var acked atomic.Int64
	go func() {
		_, err := NewProducer(ProducerOptions{Client: client}).Publish(ctx, "jobs", func(yield func(delivery.Record, error) bool) {
			yield(delivery.Record{Value: []byte("x")}, nil)
			<-typed
		}, func(n int) { acked.Add(int64(n)) })
		over <- err
	}()
	kafkatest.Eventually(t, "the first is written", func() bool { return acked.Load() == 1 })
	cancel()
	select {
	case err := <-over:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("given up: %v", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("a publication that was given up waits for its next record")
	}
	close(typed)
}
