package catalog

import (
	"context"
	"errors"
	"slices"
	"testing"
)

// TestCancelledJobsAreRecorded: by campaign, for whom and why; nothing if they could not be cancelled.
func TestCancelledJobsAreRecorded(t *testing.T) {
	t.Parallel()
	a, err := NewAdmin(migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ctx := WithActor(t.Context(), Actor{Name: "alice@10.0.0.7", Reason: "ticket 4711", RequestID: "r-1"})
	away := errors.New("away")
	if err := a.CancelJobs(ctx, func(context.Context) (map[string][]string, error) {
		return map[string][]string{"spring": {"u-0"}}, away
	}); !errors.Is(err, away) {
		t.Errorf("%v", err)
	}
	if err := a.CancelJobs(ctx, func(context.Context) (map[string][]string, error) {
		return map[string][]string{"spring": {"u-1", "u-2"}, "autumn": {"u-1"}}, nil
	}); err != nil {
		t.Fatal(err)
	}
	list, err := a.Changes(t.Context(), ChangesOf{Limit: 10})
	if err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	c := list[0]
	if c.Campaign != "spring" || c.What != "jobs cancel" || c.Actor != "alice@10.0.0.7" || c.Reason != "ticket 4711" || c.RequestID != "r-1" ||
		!slices.Equal(c.Fields, []Field{{"ids", "", `["u-1", "u-2"]`}}) || list[1].Campaign != "autumn" {
		t.Errorf("%+v", list)
	}
}
