package catalog

import (
	"errors"
	"slices"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// TestChangesOfCampaigns: the newest first, page by page, with what has changed and nothing else.
func TestChangesOfCampaigns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, err := NewAdminAs(migrated(t), "pacer console", Renewal{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	rate, quotas := "500", []string{"provider"}
	if _, err := a.SetQuota(ctx, "provider", QuotaChange{Windows: &[]delivery.Window{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.CreateCampaign(ctx, "spring", CampaignChange{Rate: &rate, Quotas: &quotas}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.CreateCampaign(ctx, "autumn", CampaignChange{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.SetStatus(ctx, "spring", delivery.StatusPaused); err != nil {
		t.Fatal(err)
	}
	newest, err := a.Changes(ctx, ChangesOf{Limit: 1})
	if err != nil || len(newest) != 1 {
		t.Fatalf("%+v, %v", newest, err)
	}
	c := newest[0]
	if c.Campaign != "spring" || c.Application != "pacer console" || c.Operation != "update" || string(c.Old) != `{"status":"active"}` || string(c.New) != `{"status":"paused"}` {
		t.Errorf("the newest change is %+v: %s to %s", c, c.Old, c.New)
	}
	of := func(o ChangesOf) (list []string) {
		o.Limit = 100
		changes, err := a.Changes(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			list = append(list, c.Relation+" "+c.Operation)
		}
		return list
	}
	if got, want := of(ChangesOf{Campaign: "spring", Before: c.Change}), []string{"campaign_quotas insert", "campaigns insert"}; !slices.Equal(got, want) {
		t.Errorf("before that, spring had %v, want %v", got, want)
	}
	if got, want := of(ChangesOf{Quota: "provider"}), []string{"campaign_quotas insert", "quotas insert"}; !slices.Equal(got, want) {
		t.Errorf("the quota had %v, want %v", got, want)
	}
	if all := of(ChangesOf{}); len(all) != 5 {
		t.Errorf("%d changes, want 5: %v", len(all), all)
	}
	if _, err := a.Changes(ctx, ChangesOf{Limit: maxChanges + 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a limit without a bound: %v", err)
	}
}
