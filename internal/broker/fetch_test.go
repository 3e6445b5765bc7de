package broker

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/compress"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/pacer/pacer/internal/delivery"
)

// TestBatchesLeaveAProcessor: however many lanes have something to read and to write, one processor is left for what is due.
func TestBatchesLeaveAProcessor(t *testing.T) {
	log := sealed(t, 0, protocol.Attributes(compress.None), 2, recordOf(nil, []byte("a")), recordOf(nil, []byte("b")))
	var now, seen, over atomic.Int64
	bound := int64(max(1, runtime.GOMAXPROCS(0)-1))
	busy := func() {
		if now.Add(1) > bound {
			over.Add(1)
		}
		for range 5 {
			runtime.Gosched()
		}
		seen.Add(1)
		now.Add(-1)
	}
	w := &Writer[int]{Aside: true, Encode: func(int, time.Time) delivery.Record { busy(); return delivery.Record{} }}
	var all sync.WaitGroup
	const readers, records = 64, 2
	for range readers {
		all.Go(func() {
			brought := &Brought{answer: kmsg.FetchResponseTopicPartition{RecordBatches: log, HighWatermark: records, LastStableOffset: -1}}
			client := &Client{options: Options{MaxRecordBytes: DefaultMaxRecordBytes}}
			visit := func(*delivery.Record) error { busy(); return nil }
			if _, err := client.Fetch(t.Context(), FetchRequest{Brought: brought, Aside: true}, visit); err != nil {
				t.Error(err)
			}
		})
		all.Go(func() { w.encode(t.Context(), Chunk[int]{Items: []int{1}}, time.Now()) })
	}
	all.Wait()
	if want := int64(readers * (records + 1)); seen.Load() != want {
		t.Errorf("%d records were read and encoded, want %d", seen.Load(), want)
	}
	if over.Load() > 0 {
		t.Errorf("more than %d batches were in hand, %d times", bound, over.Load())
	}
}

// TestNobodyWaitsForAProcessorAfterTheEnd: a stop does not wait for batches that others decode.
func TestNobodyWaitsForAProcessorAfterTheEnd(t *testing.T) {
	for range cap(aside) {
		defer stepAside(t.Context())()
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 3 {
		stepAside(ctx)()
	}
}
