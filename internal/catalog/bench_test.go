package catalog

import (
	"fmt"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// BenchmarkSnapshot is what one changed campaign of ten thousand costs after it was read.
func BenchmarkSnapshot(b *testing.B) {
	s := newState()
	for i := range 10_000 {
		id := fmt.Sprintf("c%d", i)
		quota := fmt.Sprintf("q%d", i%100)
		s.quotas[quota] = &quotaEntry{quota: &delivery.Quota{ID: quota}}
		s.campaigns[id] = &campaignEntry{row: delivery.Campaign{ID: id}, quotas: []string{quota}}
	}
	b.ReportAllocs()
	for b.Loop() {
		s.campaigns["c7"] = &campaignEntry{row: delivery.Campaign{ID: "c7"}}
		s.snapshot(time.Time{})
	}
}
