package view

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// refused checks that an error is of a kind, and one line.
func refused(t *testing.T, what string, err, kind error) {
	t.Helper()
	if !errors.Is(err, kind) || strings.Contains(err.Error(), "\n") {
		t.Errorf("%s: %v, want %v", what, err, kind)
	}
}

// textOf returns what a form is filled with.
func textOf(values Values) func(field *Setting) (string, bool) {
	return func(field *Setting) (string, bool) { return field.Text(values), true }
}

// TestChangesOfTheConsole: what a form shows reads as the same, and errors keep their kinds.
func TestChangesOfTheConsole(t *testing.T) {
	t.Parallel()
	dsn, ctx := testservices.Database(t), t.Context()
	migrator, err := catalog.NewMigrator(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Up(ctx); err != nil {
		t.Fatal(err)
	}
	admin, err := catalog.NewAdmin(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	if _, err := admin.WriteQuota(ctx, "provider", &catalog.QuotaChange{}, catalog.Precondition{New: true}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.WriteCampaign(ctx, "spring", &catalog.CampaignChange{}, catalog.Precondition{New: true}); err != nil {
		t.Fatal(err)
	}
	alice := catalog.Actor{Name: "alice@10.0.0.7", Reason: "why", RequestID: "r-1"}
	c := &Sources{
		Catalog: admin, Fault: func(*delivery.Destination) string { return "" }, Sink: func(name string) (id, fault string) { return name, "" },
	}
	ctx = catalog.WithActor(ctx, alice)
	campaignByForm(ctx, t, c)
	changes, err := c.Changes(ctx, catalog.ChangesOf{Campaign: "spring", Limit: 1})
	if err != nil || len(changes) != 1 || changes[0].Actor != alice.Name || changes[0].Reason != "why" || changes[0].RequestID != "r-1" {
		t.Errorf("the change is recorded as %+v, %v", changes, err)
	}
	soon := "soon"
	for _, edit := range []*catalog.CampaignChange{{StartsAt: &soon}, {Rate: &soon}, {JobTTL: &soon}, {Ramp: &soon}, {ActiveHours: &soon}} {
		_, err := c.WriteCampaign(ctx, "spring", edit, catalog.Precondition{})
		refused(t, "a value that is none", err, catalog.ErrInvalid)
	}
	_, err = c.Campaign(ctx, "nobody")
	refused(t, "nobody", err, catalog.ErrNotFound)
	for _, action := range []string{"pause", "rate"} {
		if n, err := admin.ChangeCampaigns(ctx, []string{"spring"}, catalog.BulkChange{Action: action, Rate: "77", Percent: 50}); n != 1 || err != nil {
			t.Errorf("%s: %d, %v", action, n, err)
		}
	}
	if now, err := c.Campaign(ctx, "spring"); err != nil || now.Rate != "77" || now.Status != "paused" {
		t.Errorf("then it is %+v, %v", now, err)
	}
	if _, err := c.SetStatus(ctx, "spring", delivery.StatusCancelled, "", nil); err != nil {
		t.Error(err)
	}
	for _, status := range []delivery.Status{delivery.StatusActive, delivery.StatusPaused} {
		_, err := c.SetStatus(ctx, "spring", status, "", nil)
		refused(t, "a cancelled campaign becomes "+string(status), err, catalog.ErrOver)
	}
	again := &catalog.CampaignChange{Status: new(delivery.StatusActive)}
	if row, err := c.WriteCampaign(ctx, "spring", again, catalog.Precondition{}); err != nil || row.Status != "active" {
		t.Errorf("a cancelled campaign is taken up again in so many words: %+v, %v", row, err)
	}
	destinationsByRole(ctx, t, c, admin)
	createdByForm(ctx, t, c)
	quotasByForm(ctx, t, c, alice)
	replaysOfOthers(t, admin)
}

// campaignByForm sets all that a form has of a campaign, and takes it away again.
func campaignByForm(ctx context.Context, t *testing.T, c *Sources) {
	t.Helper()
	now, err := c.Campaign(ctx, "spring")
	if err != nil {
		t.Fatal(err)
	}
	typed := map[string]string{
		"rate": "150/1m", "ramp": "start=10,factor=1.5,every=1h", "quotas": "provider", "priority_weight": "3", "burst": "5", "max_in_flight": "7",
		"overflow": "block", "active_hours": "mon-fri 09:00-21:00", "time_zone": "recipient", "starts_at": "2026-11-30T09:00",
		"time_zone_missing": "Europe/Moscow", "avoid_minutes": "0,30", "ends_at": "2027-11-30T09:00:05", "finish_by": "2027-06-30T09:00",
		"job_ttl": "7d", "expected_total": "1000", "sink": "receiver", "note": "Anna wants it slow",
	}
	if len(typed) != len(CampaignForm) {
		t.Errorf("%d of %d fields are tried", len(typed), len(CampaignForm))
	}
	for i := range 2 { // the second time what was set is taken away again
		edit, err := EditOf[catalog.CampaignChange](CampaignForm, ValuesOf(now), func(field *Setting) (string, bool) { text, ok := typed[field.Name]; return text, ok })
		if err != nil {
			t.Fatal(err)
		}
		before := now.Revision
		if now, err = c.WriteCampaign(ctx, "spring", edit, catalog.Precondition{At: &before}); err != nil {
			t.Fatal(err)
		}
		for _, field := range CampaignForm {
			if got := field.Text(ValuesOf(now)); got != typed[field.Name] {
				t.Errorf("%d: %s is %q, want %q", i, field.Name, got, typed[field.Name])
			}
		}
		_, err = c.SetStatus(ctx, "spring", delivery.StatusPaused, "", &before)
		refused(t, "a change of what was changed", err, catalog.ErrStale)
		for name, empty := range map[string]string{
			"ramp": "", "quotas": "", "priority_weight": "1", "burst": "0", "max_in_flight": "0", "active_hours": "", "starts_at": "", "ends_at": "",
			"job_ttl": "", "expected_total": "0", "sink": "", "note": "", "time_zone_missing": "", "avoid_minutes": "",
		} {
			typed[name] = empty
		}
	}
}

// destinationsByRole: no role sees a secret, or more than it may, and a destination is disabled and enabled.
func destinationsByRole(ctx context.Context, t *testing.T, c *Sources, admin *catalog.Admin) {
	t.Helper()
	address, headers := "https://shop.example/hook?key=hidden", map[string]string{"X-Tenant": "hidden", "Authorization": "file:hidden"}
	if _, err := admin.WriteDestination(ctx, "shop-7", &catalog.DestinationChange{URL: &address, Headers: &headers}, catalog.Precondition{New: true}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []auth.Role{auth.None, auth.Viewer, auth.Operator, auth.Admin} {
		ctx := auth.With(ctx, &auth.Identity{Role: role})
		changes, err := c.Changes(ctx, catalog.ChangesOf{Destination: "shop-7", Limit: 10})
		shown := fmt.Sprint(changes)
		if err != nil || len(changes) != 1 || changes[0].Destination != "shop-7" || changes[0].What != "destinations insert" ||
			strings.Contains(shown, "hidden") != (role == auth.Admin) || !strings.Contains(shown, "https://shop.example/hook") || !strings.Contains(shown, "X-Tenant") {
			t.Errorf("to %s the change is shown as %s, %v", role, shown, err)
		}
		list, next, err := c.Destinations(ctx, catalog.DestinationsOf{Limit: 1})
		if err != nil || len(list) != 1 || next != "" || list[0].URL != "https://shop.example/hook" || !list[0].Query ||
			(list[0].Headers["X-Tenant"] == "hidden") != (role == auth.Admin) {
			t.Errorf("to %s the destination is %+v, %q, %v", role, list, next, err)
		}
	}
	_, _, err := c.Destinations(ctx, catalog.DestinationsOf{Limit: 1, After: "elsewhere"})
	refused(t, "a page after nothing", err, catalog.ErrInvalid)
	if off, err := c.DisableDestination(ctx, "shop-7", true); err != nil || off.State != "disabled" || off.DisabledReason != "why" {
		t.Errorf("disabled: %+v, %v", off, err)
	}
	if on, err := c.DisableDestination(ctx, "shop-7", false); err != nil || on.State != "enabled" {
		t.Errorf("enabled: %+v, %v", on, err)
	}
}

// replaysOfOthers: a process sees the replays of another one, and may stop them.
func replaysOfOthers(t *testing.T, admin *catalog.Admin) {
	t.Helper()
	ctx := t.Context()
	job := replay.Job{ID: "r1", State: replay.Running, Rate: "100", Started: time.Now().UTC().Truncate(time.Second), Filter: deadletter.Filter{Campaign: "spring"}}
	text, _ := json.Marshal(job)
	others := replay.New(nil, nil, slog.New(slog.DiscardHandler))
	others.Share(admin)
	for _, asked := range []bool{false, true} {
		if stop, err := admin.SaveReplay(ctx, "r1", text, true); stop != asked || err != nil {
			t.Errorf("to be stopped: %t, %v, want %t", stop, err, asked)
		}
		booked, err := others.Booked(ctx)
		if err != nil {
			t.Error(err)
		}
		if list := others.List(booked); len(list) != 1 || !reflect.DeepEqual(list[0], job) {
			t.Errorf("replays are %+v", list)
		}
		if !others.Stop("r1") {
			t.Error("it is not asked to stop")
		}
	}
}

// createdByForm creates what the form of a new campaign begins with, once.
func createdByForm(ctx context.Context, t *testing.T, c *Sources) {
	t.Helper()
	begin := NewCampaign()
	edit, err := EditOf[catalog.CampaignChange](CampaignForm, Values{}, textOf(ValuesOf(begin)))
	if err != nil {
		t.Fatal(err)
	}
	create := func(id string, edit *catalog.CampaignChange) *catalog.CampaignRow {
		t.Helper()
		row, err := c.WriteCampaign(ctx, id, edit, catalog.Precondition{New: true})
		if err != nil {
			t.Fatal(err)
		}
		return row
	}
	row := create("autumn", edit)
	begin.ID, begin.Status, begin.Revision, begin.UpdatedAt, begin.Progress = "autumn", "active", row.Revision, row.UpdatedAt, row.Progress
	if !reflect.DeepEqual(row, begin) {
		t.Errorf("a new campaign is %+v; want %+v", row, begin)
	}
	whole, none := &catalog.CampaignChange{}, NewCampaign()
	none.Rate = "0"
	FillDefaults(CampaignForm, none, whole)
	first, second := create("whole", whole), create("short", &catalog.CampaignChange{})
	if second.ID, second.Revision, second.UpdatedAt = first.ID, first.Revision, first.UpdatedAt; !reflect.DeepEqual(first, second) {
		t.Errorf("written whole it is %+v, and with the defaults of the database %+v", first, second)
	}
	replaced, err := c.WriteCampaign(ctx, begin.ID, whole, catalog.Precondition{})
	if err != nil || replaced.Rate != "0" || replaced.TimeZone != "UTC" || replaced.Status != "active" {
		t.Errorf("replaced it is %+v, %v", replaced, err)
	}
	_, err = c.WriteCampaign(ctx, begin.ID, edit, catalog.Precondition{New: true})
	refused(t, "once more", err, catalog.ErrExists)
}

// quotasByForm creates, changes and deletes a quota as the console does.
func quotasByForm(ctx context.Context, t *testing.T, c *Sources, by catalog.Actor) {
	t.Helper()
	const id = "fresh"
	write := func(on catalog.Precondition, windows ...string) (*catalog.QuotaRow, error) {
		return c.WriteQuota(ctx, id, &catalog.QuotaChange{Windows: &windows}, on)
	}
	_, err := write(catalog.Precondition{}, "5/1s")
	refused(t, "a change of no quota", err, catalog.ErrNotFound)
	now := NewQuota()
	now.Windows = []string{"300/1m", "5000/1d:fixed:day@Europe/Moscow"}
	edit, err := EditOf[catalog.QuotaChange](QuotaForm, Values{}, textOf(ValuesOf(now)))
	if err != nil {
		t.Fatal(err)
	}
	row, err := c.WriteQuota(ctx, id, edit, catalog.Precondition{New: true})
	if err != nil {
		t.Fatal(err)
	}
	now.ID, now.Revision, now.Shard, now.UpdatedAt = id, row.Revision, row.Shard, row.UpdatedAt
	if !reflect.DeepEqual(row, now) {
		t.Errorf("a new quota is %+v, want %+v", row, now)
	}
	_, err = c.WriteQuota(ctx, id, edit, catalog.Precondition{New: true})
	refused(t, "once more", err, catalog.ErrExists)
	for _, want := range [][]string{{"7/1s"}, {}} {
		before := row.Revision
		if row, err = write(catalog.Precondition{At: &before}, want...); err != nil || !slices.Equal(row.Windows, want) || row.Revision <= before {
			t.Fatalf("%v: %+v, %v", want, row, err)
		}
	}
	for _, wrong := range []string{"many", "1/1s,2/1s"} {
		_, err := write(catalog.Precondition{}, wrong)
		refused(t, wrong, err, catalog.ErrInvalid)
	}
	if _, err := c.Catalog.DeleteQuota(ctx, id, false, &row.Revision); err != nil {
		t.Error(err)
	}
	_, err = c.Quota(ctx, id)
	refused(t, "then it is there", err, catalog.ErrNotFound)
	changes, err := c.Changes(ctx, catalog.ChangesOf{Quota: id, Limit: 1})
	if err != nil || len(changes) != 1 || changes[0].Actor != by.Name {
		t.Errorf("the change is recorded as %+v, %v", changes, err)
	}
}
