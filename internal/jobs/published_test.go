package jobs

import (
	"fmt"
	"maps"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// TestPublished: what was read of a campaign counts, in whatever form it was published; what is still open, of others, or replayed does not.
func TestPublished(t *testing.T) {
	topics := newRig(t, "jobs")
	var records []delivery.Record
	for i := range 10 {
		records = append(records, recordOf("{}", delivery.HeaderCampaign, "a", delivery.HeaderJobID, fmt.Sprint(i)))
	}
	records = append(records,
		recordOf("{}", delivery.HeaderCampaign, "a", delivery.HeaderReplayedFrom, "dead/0/1"),
		recordOf("{}", delivery.HeaderCampaign, "b", delivery.HeaderDestination, "shop"),
		recordOf(`{"campaign":"a","id":"e","payload":{}}`, delivery.HeaderDestination, "shop"),
		recordOf("{}", delivery.HeaderCampaign, "a", delivery.HeaderJobID, "open"))
	topics.publish(t, "jobs", records...)
	if n, to, err := topics.Published(t.Context(), "a"); err != nil || n != 0 || len(to) > 0 {
		t.Errorf("%d before anything was read, %v", n, err)
	}
	topics.commit(t, "jobs", int64(len(records))-1, "")
	if n, to, err := topics.Published(t.Context(), "a"); err != nil || n != 11 || !maps.Equal(to, map[string]int64{"shop": 1}) {
		t.Errorf("%d, want 11, to %v; %v", n, to, err)
	}
}
