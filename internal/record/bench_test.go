package record

import (
	"fmt"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// BenchmarkDecode decodes jobs of one campaign, and of more than a decoder remembers.
func BenchmarkDecode(b *testing.B) {
	for _, campaigns := range []int{1, 10_000} {
		b.Run(fmt.Sprint(campaigns), func(b *testing.B) {
			records := make([]*delivery.Record, campaigns)
			for i := range records {
				records[i] = rec("payload", "pacer-campaign", fmt.Sprint("campaign-", i), "pacer-job-id", fmt.Sprint("job-", i),
					"content-type", "application/json")
			}
			var d Decoder
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				d.Decode(records[i%campaigns], delivery.FromIngress, limits, readAt)
			}
		})
	}
}
