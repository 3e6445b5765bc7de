package limits

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// BenchmarkTake measures whole takes against a real Redis, one daemon without competitors:
//
//	go test ./internal/limits -run '^$' -bench Take
func BenchmarkTake(b *testing.B) {
	spans := []time.Duration{time.Minute, time.Hour, 24 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}
	for _, campaigns := range []int{1, 10, 100, 1000} {
		for _, n := range []int{0, 1, 5} {
			b.Run(fmt.Sprintf("campaigns=%d/windows=%d", campaigns, n), func(b *testing.B) {
				l := newLua(b, realClient(b))
				e, err := New(Options{Shards: l.shards, KeyPrefix: l.prefix, Registerer: prometheus.NewRegistry()})
				if err != nil {
					b.Fatal(err)
				}
				var asks []delivery.Ask
				for i := range campaigns {
					c := campaign(1000)
					c.ID = fmt.Sprintf("campaign-%d", i)
					if n > 0 {
						q := &delivery.Quota{ID: c.ID, Revision: 1}
						for _, s := range spans[:n] {
							q.Windows = append(q.Windows, delivery.Window{Span: s, Limit: 1 << 40})
						}
						c.Quotas = []*delivery.Quota{q}
					}
					asks = append(asks, ask(c, 25))
				}
				var took []time.Duration
				for b.Loop() {
					started := time.Now()
					if _, err := e.Take(context.Background(), asks); err != nil {
						b.Fatal(err)
					}
					took = append(took, time.Since(started))
				}
				slices.Sort(took)
				at := func(p float64) float64 { return float64(took[int(p*float64(len(took)-1))].Microseconds()) }
				b.ReportMetric(float64(campaigns*len(took))/b.Elapsed().Seconds(), "items/s")
				b.ReportMetric(at(.5), "p50-µs")
				b.ReportMetric(at(.99), "p99-µs")
			})
		}
	}
}
