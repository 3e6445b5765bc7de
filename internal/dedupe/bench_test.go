package dedupe

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// info is a number of Redis' INFO.
func info(b *testing.B, client redis.UniversalClient, section, field string) float64 {
	b.Helper()
	text, err := client.Info(b.Context(), section).Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(text) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), field+":"); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			return n
		}
	}
	b.Fatalf("INFO has no %s", field)
	return 0
}

// BenchmarkPaced delivers 10,000 jobs a second for b.N jobs, to a sink that answers at once: what the ledger adds to each,
// what it costs Redis, and how many bytes a mark takes there. Use -benchtime=100000x.
func BenchmarkPaced(b *testing.B) {
	const perSecond = 10_000
	server := testservices.FreshRedis(b)
	client := connect(b, server.Addr)
	r := newRig(b, &destination{}, servers{client}, rigOptions{prefix: "pacer.", ttl: 24 * time.Hour})
	r.insist(context.Background(), "connect")
	memory := info(b, client, "memory", "used_memory")
	cpu := info(b, client, "cpu", "used_cpu_user") + info(b, client, "cpu", "used_cpu_sys")
	took := make([]time.Duration, b.N)
	var calls sync.WaitGroup
	b.ResetTimer()
	begun := time.Now()
	for i := range b.N {
		if wait := time.Until(begun.Add(time.Duration(i) * time.Second / perSecond)); wait > time.Millisecond {
			time.Sleep(wait)
		}
		calls.Go(func() {
			from := time.Now()
			if res := r.deliver(fmt.Sprint("pacer.jobs/", i%6, "/", i)); res.Class != delivery.Delivered {
				b.Errorf("%+v", res)
			}
			took[i] = time.Since(from)
		})
	}
	calls.Wait()
	seconds := time.Since(begun).Seconds()
	b.StopTimer()
	slices.Sort(took)
	cpu = info(b, client, "cpu", "used_cpu_user") + info(b, client, "cpu", "used_cpu_sys") - cpu
	b.ReportMetric(float64(b.N)/seconds, "jobs/s")
	b.ReportMetric(float64(took[b.N/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[b.N*99/100].Microseconds()), "p99-µs")
	b.ReportMetric(100*cpu/seconds, "redis-cpu-%")
	b.ReportMetric(1e6*cpu/float64(b.N), "redis-µs/job")
	b.ReportMetric((info(b, client, "memory", "used_memory")-memory)/float64(b.N), "bytes/mark")
}
