package broker

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices/kafkatest"
)

// TestNothingIsWrittenBehindAFailure: once a chunk has failed, what follows it in its partition is given back unsent, and
// so is all of it where writing may not begin.
func TestNothingIsWrittenBehindAFailure(t *testing.T) {
	m := kafkatest.NewMemory(map[string]int{"jobs": 1})
	m.OnProduce = func(_ context.Context, n int) (int16, error) {
		switch n {
		case 1: // four at once
			return int16(kafka.MessageSizeTooLarge), nil
		case 3: // the second half
			return int16(kafka.NotEnoughReplicas), nil
		}
		return 0, nil
	}
	var acked, failed []int
	begin := true
	w := &Writer[int]{
		Client: memoryClient(t, m),
		Encode: func(int, time.Time) delivery.Record { return delivery.Record{} },
		Acked:  func(items []int) { acked = append(acked, items...) },
		Failed: func(c Chunk[int], err error) {
			if failed = append(failed, c.Items...); !NotWritten(err) {
				t.Errorf("failed with %v", err)
			}
		},
		Begin: func(int) bool { return begin },
	}
	left := w.Write(t.Context(), []Chunk[int]{{jobs, []int{1, 2, 3, 4}}, {jobs, []int{5}}})
	if !slices.Equal(acked, []int{1, 2}) || !slices.Equal(failed, []int{3, 4}) ||
		len(left) != 1 || !slices.Equal(left[0].Items, []int{5}) {
		t.Errorf("acknowledged %v, failed %v, left %v", acked, failed, left)
	}
	begin = false
	if left = w.Write(t.Context(), left); len(left) != 1 || m.Total("jobs") != 2 {
		t.Errorf("%v are left, %d are written", left, m.Total("jobs"))
	}
}

// BenchmarkBatch encodes batches of jobs, as they are and compressed, and reports the bytes of a job.
func BenchmarkBatch(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct{ jobs, size int }{{500, 100}, {500, 1_000}, {5, 200}, {1, 900_000}} {
		records := make([]delivery.Record, c.jobs)
		for i := range records {
			value := fmt.Appendf(nil, `{"to":"+49%010d","template":"autumn-sale","params":{`, rng.Int64N(1e10))
			for k := 0; len(value) < c.size; k++ {
				value = fmt.Appendf(value, `"field_%d":"%x",`, k, rng.Uint32())
			}
			records[i] = delivery.Record{Key: []byte("spring"), Value: value, Headers: []delivery.Header{
				{Key: delivery.HeaderCampaign, Value: []byte("spring")}, {Key: delivery.HeaderHops, Value: []byte("1")},
				{Key: delivery.HeaderJobID, Value: fmt.Appendf(nil, "%x-%x", rng.Uint64(), rng.Uint64())},
				{Key: delivery.HeaderOrigin, Value: fmt.Appendf(nil, "pacer.jobs/3/%d", 10_000+i)},
			}}
		}
		for name, compressed := range map[string]bool{"plain": false, "zstd": true} {
			b.Run(fmt.Sprintf("%dx%d/%s", c.jobs, c.size, name), func(b *testing.B) {
				written := int64(0)
				for b.Loop() {
					e := beginBatch()
					for i := range records {
						e.add(&records[i], time.Time{})
					}
					written += int64(len(e.set(compressed)))
					e.end()
				}
				jobs := float64(b.N * c.jobs)
				b.ReportMetric(float64(written)/jobs, "bytes/job")
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/jobs, "ns/job")
			})
		}
	}
}
