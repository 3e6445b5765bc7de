package view

import (
	"context"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
)

// CheckReason returns catalog.ErrInvalid unless the text is one line that can be shown, logged and recorded as it is.
func CheckReason(name, text string) error {
	if !catalog.IsLine(text) {
		return catalog.Fault(catalog.ErrInvalid, "%s: give one line of at most 500 characters, without control characters", name)
	}
	return nil
}

// By returns a context whose changes are recorded as those of who asks, for a reason. The error is that of CheckReason.
func By(ctx context.Context, reason string) (context.Context, error) {
	who := auth.Of(ctx)
	return catalog.WithActor(ctx, catalog.Actor{Name: who.Actor(), Reason: reason, RequestID: who.Request}), CheckReason("reason", reason)
}

// NewCampaign is what the form of a new campaign begins with.
func NewCampaign() *catalog.CampaignRow {
	return &catalog.CampaignRow{Rate: "100", Quotas: []string{}, PriorityWeight: 1, Overflow: "lane", TimeZone: "UTC"}
}

// MaxBulk is how many campaigns one change may be of.
const MaxBulk = 100_000

// Chosen returns those of the ids that exist, or if there are none, the ids of the selected campaigns, as All does.
func (s *State) Chosen(by CampaignFilter, ids []string, expect int) ([]string, error) {
	if len(ids) == 0 {
		return s.All(by, expect)
	}
	if by != (CampaignFilter{}) {
		return nil, catalog.Fault(catalog.ErrInvalid, "give a filter or ids, not both")
	}
	ids = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(ids))), func(id string) bool { return s.Campaign(id) == nil })
	if len(ids) != expect {
		return nil, catalog.Fault(catalog.ErrStale, "%d of the campaigns exist, not %d as expected; look again", len(ids), expect)
	}
	return ids, nil
}

// All returns the ids of the selected campaigns, on all pages. The error is catalog.ErrInvalid if they are too many, catalog.ErrStale
// if their number is not the expected one, and that of Missing.
func (s *State) All(by CampaignFilter, expect int) ([]string, error) {
	list, all, _ := s.Select(Selection{CampaignFilter: by}, MaxBulk)
	if missing := s.Missing(by); all == 0 && missing != nil {
		return nil, missing
	}
	switch {
	case all > MaxBulk:
		return nil, catalog.Fault(catalog.ErrInvalid, "%d campaigns match, and at most %d are changed at once; narrow the filter", all, MaxBulk)
	case all != expect:
		return nil, catalog.Fault(catalog.ErrStale, "%d campaigns match, not %d as expected; look again", all, expect)
	}
	ids := make([]string, len(list))
	for i, c := range list {
		ids[i] = c.ID
	}
	return ids, nil
}

// Line is an error in one line.
func Line(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
