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

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestChangesOfTheConsole: what a form shows reads as the same, errors keep their kinds, and a role that may only read is named.
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
	if _, err := admin.SetQuota(ctx, "provider", catalog.QuotaChange{}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.CreateCampaign(ctx, "spring", catalog.CampaignChange{}); err != nil {
		t.Fatal(err)
	}
	alice := catalog.Actor{Name: "alice@10.0.0.7", Reason: "why", RequestID: "r-1"}
	c := &Sources{
		Catalog: admin, Fault: func(*delivery.Destination) string { return "" }, Sink: func(name string) (id, fault string) { return name, "" },
	}
	ctx = catalog.WithActor(ctx, alice)
	now, err := c.Campaign(ctx, "spring")
	if err != nil {
		t.Fatal(err)
	}
	typed := map[string]string{
		"rate": "150/1m", "ramp": "start=10,factor=1.5,every=1h", "quotas": "provider", "priority_weight": "3", "burst": "5", "max_in_flight": "7",
		"overflow": "block", "active_hours": "mon-fri 09:00-21:00", "time_zone": "recipient", "starts_at": "2026-11-30T09:00",
		"time_zone_missing": "Europe/Moscow", "avoid_minutes": "0,30",
		"ends_at": "2027-11-30T09:00:05", "finish_by": "2027-06-30T09:00", "job_ttl": "7d", "expected_total": "1000", "sink": "receiver", "note": "Anna wants it slow",
	}
	if len(typed) != len(CampaignForm) {
		t.Errorf("%d of %d fields are tried", len(typed), len(CampaignForm))
	}
	for i := range 2 { // the second time what was set is taken away again
		edit, err := EditOf[Edit](CampaignForm, ValuesOf(now), func(name string) (string, bool) { text, ok := typed[name]; return text, ok })
		if err != nil {
			t.Fatal(err)
		}
		before := now.Revision
		if now, err = c.WriteCampaign(ctx, "spring", edit, Condition{At: &before}); err != nil {
			t.Fatal(err)
		}
		for _, field := range CampaignForm {
			if got := field.Text(ValuesOf(now)); got != typed[field.Name] {
				t.Errorf("%d: %s is %q, want %q", i, field.Name, got, typed[field.Name])
			}
		}
		if _, err := c.SetStatus(ctx, "spring", delivery.StatusPaused, "", &before); !errors.Is(err, catalog.ErrStale) {
			t.Errorf("a change of what was changed: %v", err)
		}
		for name, empty := range map[string]string{
			"ramp": "", "quotas": "", "priority_weight": "1", "burst": "0", "max_in_flight": "0", "active_hours": "", "starts_at": "", "ends_at": "",
			"job_ttl": "", "expected_total": "0", "sink": "", "note": "", "time_zone_missing": "", "avoid_minutes": "",
		} {
			typed[name] = empty
		}
	}
	changes, err := c.Changes(ctx, catalog.ChangesOf{Campaign: "spring", Limit: 1})
	if err != nil || len(changes) != 1 || changes[0].Actor != alice.Name || changes[0].Reason != "why" || changes[0].RequestID != "r-1" {
		t.Errorf("the change is recorded as %+v, %v", changes, err)
	}
	address, headers := "https://shop.example/hook?key=hidden", map[string]string{"X-Tenant": "hidden", "Authorization": "file:hidden"}
	if _, err := admin.CreateDestination(ctx, "shop-7", catalog.DestinationChange{URL: &address, Headers: &headers}); err != nil {
		t.Fatal(err)
	}
	for _, role := range []auth.Role{auth.None, auth.Viewer, auth.Operator, auth.Admin} {
		changes, err := c.Changes(auth.With(ctx, &auth.Identity{Role: role}), catalog.ChangesOf{Limit: 1})
		shown := fmt.Sprint(changes)
		if err != nil || strings.Contains(shown, "hidden") != (role == auth.Admin) || !strings.Contains(shown, "https://shop.example/hook") || !strings.Contains(shown, "X-Tenant") {
			t.Errorf("to %s the destination is shown as %s, %v", role, shown, err)
		}
	}
	of, err := c.Changes(ctx, catalog.ChangesOf{Destination: "shop-7", Limit: 10})
	if err != nil || len(of) != 1 || of[0].Destination != "shop-7" || of[0].What != "destinations insert" {
		t.Errorf("the changes of the destination are %+v, %v", of, err)
	}
	soon := "soon"
	for _, edit := range []*Edit{{StartsAt: &soon}, {CampaignChange: catalog.CampaignChange{Rate: &soon}}, {JobTTL: &soon}, {Ramp: &soon}, {ActiveHours: &soon}} {
		if _, err := c.WriteCampaign(ctx, "spring", edit, Condition{}); !errors.Is(err, catalog.ErrInvalid) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v", edit, err)
		}
	}
	if _, err := c.Campaign(ctx, "nobody"); !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("nobody: %v", err)
	}
	if n, err := c.Bulk(ctx, []string{"spring"}, &Bulk{Action: "pause", Until: "tomorrow"}); n != 0 || !errors.Is(err, catalog.ErrInvalid) {
		t.Errorf("until nothing: %d, %v", n, err)
	}
	for _, role := range []auth.Role{auth.Viewer, auth.Operator, auth.Admin} { // whoever looks sees no secret, nor what is not for them
		ctx := auth.With(ctx, &auth.Identity{Role: role})
		list, next, err := c.Destinations(ctx, DestinationsOf{Limit: 1})
		if err != nil || len(list) != 1 || next != "" || list[0].URL != "https://shop.example/hook" || !list[0].Query || (list[0].Headers["X-Tenant"] == "hidden") != (role == auth.Admin) {
			t.Errorf("to %s the destination is %+v, %q, %v", role, list, next, err)
		}
	}
	if _, _, err := c.Destinations(ctx, DestinationsOf{Limit: 1, After: "elsewhere"}); !errors.Is(err, catalog.ErrInvalid) {
		t.Errorf("a page after nothing: %v", err)
	}
	off, err := c.SetDestination(ctx, "shop-7", true)
	if err != nil || off.State != "disabled" || off.DisabledReason != "why" {
		t.Errorf("disabled: %+v, %v", off, err)
	}
	if on, err := c.SetDestination(ctx, "shop-7", false); err != nil || on.State != "enabled" {
		t.Errorf("enabled: %+v, %v", on, err)
	}
	for action, want := range map[string]int{"pause": 1, "rate": 1} {
		if n, err := c.Bulk(ctx, []string{"spring"}, &Bulk{Action: action, Rate: "77", Percent: 50}); n != want || err != nil {
			t.Errorf("%s: %d, %v", action, n, err)
		}
	}
	if n, err := c.Bulk(ctx, []string{"spring"}, &Bulk{Action: "rate"}); n != 0 || !errors.Is(err, catalog.ErrInvalid) {
		t.Errorf("no rate: %d, %v", n, err)
	}
	if now, _ = c.Campaign(ctx, "spring"); now.Rate != "77" || now.Status != "paused" {
		t.Errorf("then it is %s at %s", now.Status, now.Rate)
	}
	if _, err := c.SetStatus(ctx, "spring", delivery.StatusCancelled, "", nil); err != nil {
		t.Error(err)
	}
	for _, status := range []delivery.Status{delivery.StatusActive, delivery.StatusPaused} {
		if _, err := c.SetStatus(ctx, "spring", status, "", nil); !errors.Is(err, catalog.ErrOver) || strings.Contains(err.Error(), "\n") {
			t.Errorf("a cancelled campaign becomes %s: %v", status, err)
		}
	}
	if row, err := c.WriteCampaign(ctx, "spring", &Edit{CampaignChange: catalog.CampaignChange{Status: new(delivery.StatusActive)}}, Condition{}); err != nil || row.Status != "active" {
		t.Errorf("a cancelled campaign is taken up again in so many words: %+v, %v", row, err)
	}
	createdByForm(ctx, t, c)
	quotasByForm(ctx, t, c, alice)
	replaysOfOthers(t, admin)
	readOnly(t, dsn, "spring")
}

// replaysOfOthers: a process sees the replays of another one, and may stop them.
func replaysOfOthers(t *testing.T, admin *catalog.Admin) {
	t.Helper()
	ctx := t.Context()
	job := replay.Job{ID: "r1", State: replay.Running, Rate: "100", Started: time.Now().UTC().Truncate(time.Second), Filter: replay.Filter{Campaign: "spring"}}
	text, _ := json.Marshal(job)
	if stop, err := admin.SaveReplay(ctx, "r1", text, true); stop || err != nil {
		t.Errorf("a replay: %t, %v", stop, err)
	}
	others := replay.New(nil, nil, slog.New(slog.DiscardHandler))
	others.Share(admin)
	if list := others.List(); len(list) != 1 || !reflect.DeepEqual(list[0], job) {
		t.Errorf("replays are %+v", list)
	}
	if !others.Stop("r1") {
		t.Error("it is not asked to stop")
	}
	if stop, err := admin.SaveReplay(ctx, "r1", text, true); !stop || err != nil {
		t.Errorf("nobody asks to stop it: %t, %v", stop, err)
	}
}

// createdByForm creates what the form of a new campaign and of a new quota begin with, once.
func createdByForm(ctx context.Context, t *testing.T, c *Sources) {
	t.Helper()
	begin := NewCampaign()
	edit, err := EditOf[Edit](CampaignForm, nil, func(name string) (string, bool) {
		for _, field := range CampaignForm {
			if field.Name == name {
				return field.Text(ValuesOf(begin)), true
			}
		}
		return "", false
	})
	if err != nil {
		t.Fatal(err)
	}
	begin.ID, begin.Status = "autumn", "active"
	row, err := c.WriteCampaign(ctx, begin.ID, edit, Condition{New: true})
	if err == nil {
		begin.Revision, begin.UpdatedAt, begin.Progress = row.Revision, row.UpdatedAt, row.Progress
	}
	if err != nil || !reflect.DeepEqual(row, begin) {
		t.Errorf("a new campaign is %+v, %v; want %+v", row, err, begin)
	}
	whole, short := &Edit{}, &Edit{}
	none := NewCampaign()
	none.Rate = "0"
	FillDefaults(CampaignForm, none, whole)
	first, err := c.WriteCampaign(ctx, "whole", whole, Condition{New: true})
	if err != nil {
		t.Fatal(err)
	}
	second, err := c.WriteCampaign(ctx, "short", short, Condition{New: true})
	if err != nil {
		t.Fatal(err)
	}
	if second.ID, second.Revision, second.UpdatedAt = first.ID, first.Revision, first.UpdatedAt; !reflect.DeepEqual(first, second) {
		t.Errorf("written whole it is %+v, and with the defaults of the database %+v", first, second)
	}
	if replaced, err := c.WriteCampaign(ctx, begin.ID, whole, Condition{}); err != nil || replaced.Rate != "0" || replaced.TimeZone != "UTC" || replaced.Status != "active" {
		t.Errorf("replaced it is %+v, %v", replaced, err)
	}
	if _, err := c.WriteCampaign(ctx, begin.ID, edit, Condition{New: true}); !errors.Is(err, catalog.ErrExists) || strings.Contains(err.Error(), "\n") {
		t.Errorf("once more: %v", err)
	}
}

// quotasByForm creates, changes and deletes a quota as the console does.
func quotasByForm(ctx context.Context, t *testing.T, c *Sources, by catalog.Actor) {
	t.Helper()
	const id = "fresh"
	if _, err := c.WriteQuota(ctx, id, &QuotaEdit{Windows: &[]string{"5/1s"}}, Condition{}); !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("a change of no quota: %v", err)
	}
	now := NewQuota()
	now.Windows = []string{"300/1m", "5000/1d:fixed:day@Europe/Moscow"}
	text := func(name string) (string, bool) {
		for _, field := range QuotaForm {
			if field.Name == name {
				return field.Text(ValuesOf(now)), true
			}
		}
		return "", false
	}
	edit, err := EditOf[QuotaEdit](QuotaForm, nil, text)
	if err != nil {
		t.Fatal(err)
	}
	row, err := c.WriteQuota(ctx, id, edit, Condition{New: true})
	if err != nil {
		t.Fatal(err)
	}
	now.ID, now.Revision, now.Shard, now.UpdatedAt = id, row.Revision, row.Shard, row.UpdatedAt
	if !reflect.DeepEqual(row, now) {
		t.Errorf("a new quota is %+v, want %+v", row, now)
	}
	if _, err := c.WriteQuota(ctx, id, edit, Condition{New: true}); !errors.Is(err, catalog.ErrExists) {
		t.Errorf("once more: %v", err)
	}
	stale := row.Revision
	for _, tt := range []struct {
		want []string
		at   *int64
	}{
		{[]string{"7/1s"}, &stale}, {[]string{}, nil},
	} {
		before := row.Revision
		if row, err = c.WriteQuota(ctx, id, &QuotaEdit{Windows: &tt.want}, Condition{At: tt.at}); err != nil || !slices.Equal(row.Windows, tt.want) || row.Revision <= before {
			t.Fatalf("%v: %+v, %v", tt.want, row, err)
		}
	}
	for name, err := range map[string]error{
		"windows": func() error {
			_, err := c.WriteQuota(ctx, id, &QuotaEdit{Windows: &[]string{"1/1s"}}, Condition{At: &stale})
			return err
		}(),
		"nothing": func() error { _, err := c.Catalog.DeleteQuota(ctx, id, false, &stale); return err }(),
	} {
		if !errors.Is(err, catalog.ErrStale) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s of a quota that was changed: %v", name, err)
		}
	}
	for _, edit := range []*QuotaEdit{{Windows: &[]string{"many"}}, {Windows: &[]string{"1/1s,2/1s"}}} {
		if _, err := c.WriteQuota(ctx, id, edit, Condition{}); !errors.Is(err, catalog.ErrInvalid) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%+v: %v", edit, err)
		}
	}
	if _, err := c.Catalog.DeleteQuota(ctx, "provider", false, nil); err != nil {
		t.Errorf("a quota of no campaign: %v", err)
	}
	if _, err := c.Catalog.DeleteQuota(ctx, id, false, &row.Revision); err != nil {
		t.Error(err)
	}
	if _, err := c.Quota(ctx, id); !errors.Is(err, catalog.ErrNotFound) {
		t.Errorf("then it is %v", err)
	}
	changes, err := c.Changes(ctx, catalog.ChangesOf{Quota: id, Limit: 1})
	if err != nil || len(changes) != 1 || changes[0].Actor != by.Name {
		t.Errorf("the change is recorded as %+v, %v", changes, err)
	}
}

// readOnly tries a change with a role that may only read.
func readOnly(t *testing.T, dsn, id string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	role := "reader_" + time.Now().Format("150405000000")
	for _, statement := range []string{
		`CREATE ROLE ` + role, `GRANT USAGE ON SCHEMA pacer TO ` + role, `GRANT SELECT ON ALL TABLES IN SCHEMA pacer TO ` + role,
	} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	defer func() {
		_, _ = conn.Exec(t.Context(), `DROP OWNED BY `+role)
		_, _ = conn.Exec(t.Context(), `DROP ROLE `+role)
	}()
	separator := "?"
	if strings.Contains(dsn, "?") {
		separator = "&"
	}
	admin, err := catalog.NewAdmin(dsn + separator + "options=-c%20role%3D" + role)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	_, err = (&Sources{Catalog: admin}).SetStatus(t.Context(), id, delivery.StatusPaused, "", nil)
	if !errors.Is(err, catalog.ErrForbidden) || !strings.Contains(err.Error(), "the database role "+role+" of this process may not change campaigns") {
		t.Errorf("with a role that may only read: %v", err)
	}
	if why, err := admin.ReadOnly(t.Context()); err != nil || !strings.Contains(why, "the database role "+role+" of this process may not change") {
		t.Errorf("the page says %q, %v", why, err)
	}
}
