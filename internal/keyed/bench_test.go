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

var scriptTime = regexp.MustCompile(`cmdstat_evalsha:calls=\d+,usec=(\d+)`)

// BenchmarkKeys sends jobs of 100,000 keys, and reports what each takes of Redis: time, and memory with a cap of three.
func BenchmarkKeys(b *testing.B) {
	for name, windows := range map[string][]delivery.Window{
		"chat": {window(1, time.Second), window(20, time.Minute)}, "cap": {window(3, 24*time.Hour)},
	} {
		b.Run(name, func(b *testing.B) {
			r := newRig(b, unlimited(delivery.Quota{Windows: windows}))
			ctx, n := context.Background(), atomic.Int64{}
			if err := r.redis.ConfigResetStat(ctx).Err(); err != nil {
				b.Fatal(err)
			}
			b.SetParallelism(256)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					j := job(fmt.Sprint("key-", n.Add(1)%100_000))
					j.Turned = true
					r.send(j)
				}
			})
			info, err := r.redis.Info(ctx, "commandstats").Result()
			if err != nil {
				b.Fatal(err)
			}
			if found := scriptTime.FindStringSubmatch(info); found != nil {
				spent, _ := strconv.ParseFloat(found[1], 64)
				b.ReportMetric(spent/float64(b.N), "redis-µs/job")
			}
			b.ReportMetric(bytesAKey(b, r.redis), "B/key")
		})
	}
}

// bytesAKey returns the memory of a key, as far as the server counts it for the data.
func bytesAKey(b *testing.B, client redis.UniversalClient) float64 {
	b.Helper()
	info, err := client.Info(context.Background(), "memory").Result()
	if err != nil {
		b.Fatal(err)
	}
	found := regexp.MustCompile(`used_memory_dataset:(\d+)`).FindStringSubmatch(info)
	keys := client.DBSize(context.Background()).Val()
	if found == nil || keys == 0 {
		return 0
	}
	total, _ := strconv.ParseFloat(found[1], 64)
	return total / float64(keys)
}
