package catalog

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// BenchmarkSnapshot is what one changed campaign of many costs after it was read.
func BenchmarkSnapshot(b *testing.B) {
	for _, campaigns := range []int{10_000, 100_000} {
		b.Run(fmt.Sprintf("campaigns=%d", campaigns), func(b *testing.B) {
			s := newState()
			for i := range campaigns {
				quota := fmt.Sprintf("q%d", i%100)
				s.quotas[quota] = newQuotaEntry(&delivery.Quota{
					ID: quota, Windows: []delivery.Window{{Span: time.Minute, Limit: 5, Algorithm: delivery.AlgorithmSliding}},
				})
				s.putCampaign(&campaignEntry{row: &delivery.Campaign{ID: fmt.Sprintf("c%d", i)}, quotas: []string{quota}})
			}
			before := s.snapshot(time.Time{})
			b.ReportAllocs()
			for b.Loop() {
				s.putCampaign(&campaignEntry{row: &delivery.Campaign{ID: "c7"}})
				next := s.snapshot(time.Time{})
				for range next.Changed(before) {
				}
				before = next
			}
		})
	}
}
