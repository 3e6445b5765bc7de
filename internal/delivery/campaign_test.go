package delivery

import (
	"fmt"
	"testing"
)

// Which campaigns a quota covers: about its percentage of them, more when it grows, and others than the next quota.
func TestCoveredCampaigns(t *testing.T) {
	const campaigns = 10_000
	for _, percent := range []int64{0, 1, 10, 50, 90, 99, 100} {
		covered, both := 0, 0
		for i := range campaigns {
			id := fmt.Sprintf("campaign-%d", i)
			q, other := Quota{ID: "q", Exempt: 100 - percent}, Quota{ID: "other", Exempt: 100 - percent}
			if !q.Covers(id) {
				continue
			}
			covered++
			if other.Covers(id) {
				both++
			}
			q.Exempt--
			if !q.Covers(id) {
				t.Fatalf("%s is not covered any more when the percentage grows", id)
			}
		}
		if want := campaigns * int(percent) / 100; covered < want-150 || covered > want+150 {
			t.Errorf("%d %%: %d of %d campaigns", percent, covered, campaigns)
		}
		if want := campaigns * int(percent*percent) / 10_000; both < want-150 || both > want+150 {
			t.Errorf("%d %%: two quotas cover %d campaigns both, want about %d", percent, both, want)
		}
	}
}
