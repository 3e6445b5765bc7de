package keyed

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
)

const keys = 100_000

var usedCPU = regexp.MustCompile(`used_cpu_(?:sys|user):([0-9.]+)`)

// BenchmarkKeys sends jobs of 100,000 keys, and reports what each takes of Redis: CPU, and memory with a cap of three.
func BenchmarkKeys(b *testing.B) {
	for name, windows := range map[string][]delivery.Window{
		"chat": {window(1, time.Second), window(20, time.Minute)}, "cap": {window(3, 24*time.Hour)},
	} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, unlimited(delivery.Quota{Windows: windows}))
			n := atomic.Int64{}
			before := cpuMicros(b, r.redis)
			b.SetParallelism(256)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					j := job(fmt.Sprint("key-", n.Add(1)%keys))
					j.Turned = true
					r.send(j)
				}
			})
			b.ReportMetric((cpuMicros(b, r.redis)-before)/float64(b.N), "redis-µs/job")
			b.ReportMetric(bytesAKey(b, r.redis), "B/key")
		})
	}
}

// cpuMicros is the CPU that the server has used, in microseconds.
func cpuMicros(b testing.TB, client redis.UniversalClient) (sum float64) {
	b.Helper()
	info, err := client.Info(context.Background(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, found := range usedCPU.FindAllStringSubmatch(info, -1) {
		seconds, _ := strconv.ParseFloat(found[1], 64)
		sum += 1e6 * seconds
	}
	return sum
}

// bytesAKey returns the memory of a key, as far as the server counts it for the data.
func bytesAKey(b *testing.B, client redis.UniversalClient) float64 {
	b.Helper()
	info, err := client.Info(context.Background(), "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	found := regexp.MustCompile(`used_memory_dataset:(\d+)`).FindStringSubmatch(info)
	if found == nil {
		return 0
	}
	total, _ := strconv.ParseFloat(found[1], 64)
	return total / keys
}
