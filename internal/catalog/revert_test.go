package catalog

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestRevert: a change is undone by another one, if what it made is still there, and whatever else has changed since.
func TestRevert(t *testing.T) {
	t.Parallel()
	a, err := NewAdmin(migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ctx := WithActor(t.Context(), Actor{Name: "alice", Reason: "a mistake"})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	last := func() int64 {
		t.Helper()
		list, err := a.Changes(ctx, ChangesOf{Limit: 1})
		must(err)
		return list[0].Change
	}
	refuses := func(what string, change int64, kind error) {
		t.Helper()
		before := last()
		if _, err := a.Revert(ctx, change); !errors.Is(err, kind) {
			t.Errorf("%s: %v, want %v", what, err, kind)
		}
		if last() != before {
			t.Errorf("%s has changed something", what)
		}
	}
	campaign := func() CampaignRow {
		t.Helper()
		row, err := a.GetCampaign(ctx, "spring")
		must(err)
		return row
	}
	windows := func(limits ...int64) *[]delivery.Window {
		list := make([]delivery.Window, 0, len(limits))
		for i, limit := range limits {
			list = append(list, delivery.Window{Span: time.Duration(i+1) * time.Hour, Limit: limit})
		}
		return &list
	}
	_, err = a.SetQuota(ctx, "provider", QuotaChange{Windows: windows(100, 200)})
	must(err)
	rate, faster := "150/m", "600"
	_, err = a.CreateCampaign(ctx, "spring", CampaignChange{Rate: &rate, Quotas: &[]string{"provider"}})
	must(err)
	made := last() // of the link
	ttl, hours := 36*time.Hour, []byte(`[{"from": "09:00", "to": "18:00"}]`)
	_, err = a.SetCampaign(ctx, "spring", CampaignChange{Rate: &faster, JobTTL: &ttl, ActiveHours: new(json.RawMessage(hours))})
	must(err)
	change := last()
	_, err = a.SetStatus(ctx, "spring", delivery.StatusPaused) // another column
	must(err)
	paused := last()
	before := campaign()
	undone, err := a.Revert(ctx, change)
	must(err)
	row := campaign()
	if undone.Campaign != "spring" || row.Rate() != "150/1m" || row.JobTTL != "" || row.ActiveHours != nil || row.Status != delivery.StatusPaused || row.Revision <= before.Revision {
		t.Errorf("undone: %+v is %+v", undone, row)
	}
	list, err := a.Changes(ctx, ChangesOf{Limit: 1})
	must(err)
	if list[0].Actor != "alice" || list[0].Reason != "a mistake" || list[0].Operation != "update" {
		t.Errorf("it is recorded as %+v", list[0])
	}
	refuses("undone twice", change, ErrStale)
	_, err = a.Revert(ctx, list[0].Change)
	must(err)
	if row = campaign(); row.Rate() != faster || row.JobTTL != "36h" || row.ActiveHours == nil {
		t.Errorf("what was undone is done again: %+v", row)
	}
	_, err = a.Revert(ctx, paused)
	must(err)
	if row = campaign(); row.Status != delivery.StatusActive {
		t.Errorf("a pause is undone: %+v", row)
	}
	_, err = a.SetStatus(ctx, "spring", delivery.StatusCancelled)
	must(err)
	refuses("of a campaign that is cancelled", last(), ErrOver)
	_, err = a.Revert(ctx, made)
	must(err)
	if row = campaign(); len(row.Quotas) != 0 {
		t.Errorf("a link is undone: %v", row.Quotas)
	}
	refuses("a link that is gone", made, ErrStale)
	unlinked := last()
	_, err = a.Revert(ctx, unlinked)
	must(err)
	if row = campaign(); len(row.Quotas) != 1 {
		t.Errorf("a link is back: %v", row.Quotas)
	}
	refuses("a link that is back", unlinked, ErrStale)

	_, err = a.SetQuota(ctx, "provider", QuotaChange{Windows: windows(100, 500)})
	must(err)
	window := last()
	_, err = a.Revert(ctx, window)
	must(err)
	if q, err := a.GetQuota(ctx, "provider"); err != nil || len(q.Windows) != 2 || q.Windows[1].MaxUnits != 200 {
		t.Errorf("a window is what it was: %+v, %v", q, err)
	}
	refuses("a window that has changed since", window, ErrStale)
	_, err = a.SetQuota(ctx, "provider", QuotaChange{Windows: windows(100)})
	must(err)
	_, err = a.Revert(ctx, last())
	must(err)
	if q, err := a.GetQuota(ctx, "provider"); err != nil || len(q.Windows) != 2 {
		t.Errorf("a window is back: %+v, %v", q, err)
	}
	_, err = a.CreateDestination(ctx, "shop-7", DestinationChange{URL: new("https://shop-7.example/a"), Secrets: &[]string{"file:a"}})
	must(err)
	refuses("of what was created", last(), ErrInvalid)
	_, err = a.SetDestination(ctx, "shop-7", DestinationChange{URL: new("https://shop-7.example/b"), Secrets: &[]string{"file:b", "file:a"}})
	must(err)
	undone, err = a.Revert(ctx, last())
	must(err)
	if d, err := a.GetDestination(ctx, "shop-7"); err != nil || d.URL != "https://shop-7.example/a" || len(d.Secrets) != 1 || undone.Destination != "shop-7" {
		t.Errorf("a destination is what it was: %+v, %v", d, err)
	}
	refuses("of nothing", 1_000_000, ErrNotFound)
}
