package broker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness/kafkatest"
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
	var acked, failed, halved []int
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
		Halved: func(items []int) { halved = append(halved, items...) },
		Begin:  func(int) bool { return begin },
	}
	left := w.Write(t.Context(), []Chunk[int]{{jobs, []int{1, 2, 3, 4}}, {jobs, []int{5}}})
	if !slices.Equal(halved, []int{1, 2, 3, 4}) || !slices.Equal(acked, []int{1, 2}) || !slices.Equal(failed, []int{3, 4}) ||
		len(left) != 1 || !slices.Equal(left[0].Items, []int{5}) {
		t.Errorf("halved %v, acknowledged %v, failed %v, left %v", halved, acked, failed, left)
	}
	begin = false
	if left = w.Write(t.Context(), left); len(left) != 1 || m.Total("jobs") != 2 {
		t.Errorf("%v are left, %d are written", left, m.Total("jobs"))
	}
}
