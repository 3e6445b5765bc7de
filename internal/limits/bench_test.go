package limits

import (
	"context"
	"fmt"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
)

// BenchmarkMemory fills a quota of five windows and prints what its keys take.
func BenchmarkMemory(b *testing.B) {
	b.Run("fill", func(b *testing.B) {
		client := privateClient(b, harness.FreshRedis(b))
		usage := func(key string) int64 {
			bytes, err := client.MemoryUsage(context.Background(), key).Result()
			must(b, err)
			return bytes
		}
		var line, began, full int64
		for b.Loop() {
			l, q := newLua(b, client), &delivery.Quota{ID: "q", Revision: 1, Windows: smev}
			for i := range 3 {
				take1(l, epoch, fmt.Sprint("node-", i), ask(campaign(1000, q), 5))
			}
			k := newKeys(l.prefix, 0)
			line, began = usage(k.timeline("c")), usage(k.quota("q"))
			fillBuckets(l, q)
			full = usage(k.quota("q"))
		}
		fmt.Printf("%-60s %6d bytes\n", "timeline, three daemons", line)
		fmt.Printf("%-60s %6d bytes\n", "quota of five sliding windows, one bucket each", began)
		fmt.Printf("%-60s %6d bytes\n", "quota of five sliding windows, all buckets in use", full)
	})
}
