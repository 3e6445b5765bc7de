package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus/testutil"

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
	if c.Campaign != "spring" || c.Application != "pacer console" || c.What != "campaigns update" || !slices.Equal(c.Fields, []Field{{"status", "active", "paused"}}) {
		t.Errorf("the newest change is %+v", c)
	}
	of := func(o ChangesOf) (list []string) {
		o.Limit = 100
		changes, err := a.Changes(ctx, o)
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range changes {
			list = append(list, c.What)
		}
		return list
	}
	if got, want := of(ChangesOf{Campaign: "spring", Before: c.Number}), []string{"campaign_quotas insert", "campaigns insert"}; !slices.Equal(got, want) {
		t.Errorf("before that, spring had %v, want %v", got, want)
	}
	if got, want := of(ChangesOf{Quota: "provider"}), []string{"campaign_quotas insert", "quotas insert"}; !slices.Equal(got, want) {
		t.Errorf("the quota had %v, want %v", got, want)
	}
	for i, name := range []string{"alice@example.com@10.0.0.7", "alice@10.0.0.7", ""} {
		burst := int64(i + 1)
		if _, err := a.SetCampaign(WithActor(ctx, Actor{Name: name}), "autumn", CampaignChange{Burst: &burst, ExpectedTotal: &burst}); err != nil {
			t.Fatal(err)
		}
	}
	for who, want := range map[string]int{"alice": 1, "alice@10.0.0.7": 1, "alice@example.com": 1, "bob": 0, c.Who: 8, "": 8} {
		if got := of(ChangesOf{Who: who}); len(got) != want {
			t.Errorf("%q made %v, want %d", who, got, want)
		}
	}
	if got := of(ChangesOf{Quota: "provider", Who: "alice"}); len(got) != 0 {
		t.Errorf("alice changed the quota: %v", got)
	}
	if all := of(ChangesOf{}); len(all) != 8 {
		t.Errorf("%d changes, want 8: %v", len(all), all)
	}
	if _, err := a.Changes(ctx, ChangesOf{Limit: maxChanges + 1}); !errors.Is(err, ErrInvalid) {
		t.Errorf("a limit without a bound: %v", err)
	}
}

// TestActorsAndRevisions: a change names who asked for it and why, and is made only of the campaign that was looked at.
func TestActorsAndRevisions(t *testing.T) {
	t.Parallel()
	a, err := NewAdmin(migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	ctx := WithActor(t.Context(), Actor{Name: "alice@10.0.0.7", Reason: "too fast", RequestID: "r-1"})
	rate, faster := "500", "600"
	row, err := a.CreateCampaign(t.Context(), "spring", CampaignChange{Rate: &rate})
	if err != nil {
		t.Fatal(err)
	}
	after, err := a.SetCampaign(ctx, "spring", CampaignChange{Rate: &faster, AtRevision: &row.Revision})
	if err != nil || after.SendRate != "600" || after.Revision <= row.Revision {
		t.Fatalf("%+v, %v", after, err)
	}
	if _, err := a.SetCampaign(ctx, "spring", CampaignChange{Rate: &rate, AtRevision: &row.Revision}); !errors.Is(err, ErrStale) {
		t.Errorf("a change of what was changed: %v", err)
	}
	if _, err := a.SetStatusAt(ctx, "spring", CampaignChange{Status: new(delivery.StatusPaused), AtRevision: &row.Revision}); !errors.Is(err, ErrStale) {
		t.Errorf("a pause of what was changed: %v", err)
	}
	if _, err := a.SetStatusAt(ctx, "nobody", CampaignChange{Status: new(delivery.StatusPaused), AtRevision: &row.Revision}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a pause of nothing: %v", err)
	}
	if _, err := a.SetStatus(t.Context(), "spring", delivery.StatusPaused); err != nil {
		t.Fatal(err)
	}
	changes, err := a.Changes(t.Context(), ChangesOf{Limit: 3})
	if err != nil || len(changes) != 3 {
		t.Fatalf("%+v, %v", changes, err)
	}
	if c := changes[1]; c.Actor != "alice@10.0.0.7" || c.Reason != "too fast" || c.RequestID != "r-1" || c.Who == "" {
		t.Errorf("alice's change is %+v", c)
	}
	for _, c := range []Change{changes[0], changes[2]} { // also on the connection that was alice's before
		if c.Actor != "" || c.Reason != "" || c.RequestID != "" {
			t.Errorf("nobody's change is %+v", c)
		}
	}
	if why, err := a.ReadOnly(t.Context()); err != nil || why != "" {
		t.Errorf("read only because %q, %v", why, err)
	}
}

// TestBulkChanges: only campaigns that are going change, and only those that are named.
func TestBulkChanges(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, err := NewAdmin(migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	rate := "10"
	for _, id := range []string{"a", "b", "c", "other"} {
		if _, err := a.CreateCampaign(ctx, id, CampaignChange{Rate: &rate}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := a.SetStatus(ctx, "c", delivery.StatusCancelled); err != nil {
		t.Fatal(err)
	}
	all := []string{"c", "b", "a", "nobody"}
	for _, step := range []struct {
		change BulkChange
		want   int
		rate   string
		status delivery.Status
	}{
		{BulkChange{Status: delivery.StatusPaused}, 2, "10", delivery.StatusPaused},
		{BulkChange{Status: delivery.StatusPaused}, 0, "10", delivery.StatusPaused},
		{BulkChange{Status: delivery.StatusActive}, 2, "10", delivery.StatusActive},
		{BulkChange{Percent: 150}, 2, "15", delivery.StatusActive},
		{BulkChange{Percent: 33.3}, 2, "4.995", delivery.StatusActive},
		{BulkChange{Rate: "150/m"}, 2, "150", delivery.StatusActive},
	} {
		changed, err := a.ChangeCampaigns(ctx, all, step.change)
		row, _ := a.GetCampaign(ctx, "a")
		if err != nil || changed != step.want || row.SendRate != step.rate || row.Status != step.status {
			t.Errorf("%+v: %d changed, %v; a is %s at %s", step.change, changed, err, row.Status, row.SendRate)
		}
	}
	changes, err := a.Changes(ctx, ChangesOf{Campaign: "a", Limit: 10})
	if err != nil || len(changes) < 6 {
		t.Fatal(changes, err)
	}
	for i := range changes {
		if text := fmt.Sprint(changes[i].Fields); strings.Contains(text, "000") { // as a rate is written, without zeros that say nothing
			t.Errorf("the record of changes has %s", text)
		}
	}
	// Those that go on by themselves are those that it pauses: one that was paused before stays so.
	if _, err := a.SetStatus(ctx, "b", delivery.StatusPaused); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	if changed, err := a.ChangeCampaigns(ctx, all, BulkChange{Status: delivery.StatusPaused, PausedUntil: until}); changed != 1 || err != nil {
		t.Errorf("paused until %s: %d, %v", until, changed, err)
	}
	for id, want := range map[string]*time.Time{"a": &until, "b": nil} {
		if row, err := a.GetCampaign(ctx, id); err != nil || row.Status != delivery.StatusPaused || (row.PausedUntil == nil) != (want == nil) || want != nil && !row.PausedUntil.Equal(*want) {
			t.Errorf("%s is %s until %v, %v", id, row.Status, row.PausedUntil, err)
		}
	}
	for _, id := range []string{"c", "other"} {
		if row, err := a.GetCampaign(ctx, id); err != nil || row.SendRate != "10" {
			t.Errorf("%s: %+v, %v", id, row, err)
		}
	}
	for _, change := range []BulkChange{{}, {Percent: -1}, {Rate: "fast"}, {Status: delivery.StatusCancelled}} {
		if _, err := a.ChangeCampaigns(ctx, all, change); !errors.Is(err, ErrInvalid) {
			t.Errorf("%+v: %v", change, err)
		}
	}
}

// TestFindDestinations: the disabled ones come first, pages follow each other without gaps, and a change is only of what was seen.
func TestFindDestinations(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a, err := NewAdmin(migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	url, hooks := "https://shop.example/", "hooks"
	for _, id := range []string{"Zoo", "a", "b", "c", "d%", "e:f"} {
		change := DestinationChange{URL: &url}
		if id == "c" {
			change.Sink = &hooks
		}
		if _, err := a.CreateDestination(ctx, id, change); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []string{"e:f", "b"} {
		if _, err := a.DisableDestination(ctx, id, "gone"); err != nil {
			t.Fatal(err)
		}
	}
	err = a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		_, err := pool.Exec(ctx, `UPDATE pacer.destinations SET failing_since = now() WHERE id = 'd%'`)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		of   DestinationsOf
		want string
	}{
		{DestinationsOf{}, "b e:f d% Zoo a c"}, {DestinationsOf{Text: "%"}, "d%"}, {DestinationsOf{State: "disabled"}, "b e:f"}, {DestinationsOf{State: "failing"}, "d%"},
		{DestinationsOf{State: "enabled", Text: "a"}, "a"}, {DestinationsOf{Sink: "hooks"}, "c"}, {DestinationsOf{Text: "nothing"}, ""},
	} {
		found := ""
		for of := tt.of; ; {
			of.Limit = 2
			rows, err := a.FindDestinations(ctx, of)
			if err != nil {
				t.Fatal(err)
			}
			if len(rows) == 0 {
				break
			}
			for i := range rows {
				found += " " + rows[i].ID
				of.After, of.AfterState = rows[i].ID, rows[i].State
			}
		}
		if strings.TrimSpace(found) != tt.want {
			t.Errorf("%+v finds%s, want %s", tt.of, found, tt.want)
		}
	}
	row, err := a.GetDestination(ctx, "a")
	if err != nil {
		t.Fatal(err)
	}
	earlier := row.Revision - 1
	if _, err := a.SetDestination(ctx, "a", DestinationChange{Sink: &hooks, AtRevision: &earlier}); !errors.Is(err, ErrStale) {
		t.Errorf("a change of what was changed: %v", err)
	}
	if _, err := a.DeleteDestination(ctx, "a", &earlier); !errors.Is(err, ErrStale) {
		t.Errorf("a deletion of what was changed: %v", err)
	}
	if _, err := a.SetDestination(ctx, "nowhere", DestinationChange{Sink: &hooks, AtRevision: &earlier}); !errors.Is(err, ErrNotFound) {
		t.Errorf("a change of nothing: %v", err)
	}
	if row, err = a.SetDestination(ctx, "a", DestinationChange{Sink: &hooks, AtRevision: &row.Revision}); err != nil || row.Sink != hooks {
		t.Errorf("%+v, %v", row, err)
	}
	if _, err := a.DeleteDestination(ctx, "a", &row.Revision); err != nil {
		t.Error(err)
	}
}

// TestARevisionHasAllCommitsBelowIt: a transaction that began to change rows first and is committed last has the later revisions. So a daemon
// that says a revision has every change with it or a lower one.
func TestARevisionHasAllCommitsBelowIt(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	first, second := connected(t, dsn), connected(t, dsn)
	run(t, first, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('a', 1), ('b', 1), ('gone', 1)`)
	run(t, first, `INSERT INTO pacer.quotas (id) VALUES ('q')`)
	run(t, first, `INSERT INTO pacer.destinations (id, url) VALUES ('shop', 'https://a.example/')`)
	p, err := NewPostgres(Options{DSN: dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	// said is the revision that the daemon says once it has read what is new.
	said := func(s scope) int64 {
		t.Helper()
		if err := p.load(ctx, s); err != nil {
			t.Fatal(err)
		}
		if n := testutil.ToFloat64(p.metrics.revision); n != float64(p.Snapshot().Revision) {
			t.Errorf("%v is said, and the snapshot has %d", n, p.Snapshot().Revision)
		}
		return p.Snapshot().Revision
	}
	said(scope{full: true})
	for what, c := range map[string]struct {
		change, number string
		acts           func(*delivery.Snapshot) bool
	}{
		"a pause": {
			`UPDATE pacer.campaigns SET status = 'paused' WHERE id = 'a'`, `SELECT revision FROM pacer.campaigns WHERE id = 'a'`,
			func(s *delivery.Snapshot) bool { return s.Campaign("a").Status == delivery.StatusPaused },
		},
		"a link": {
			`INSERT INTO pacer.campaign_quotas VALUES ('a', 'q')`, `SELECT revision FROM pacer.campaigns WHERE id = 'a'`,
			func(s *delivery.Snapshot) bool { return len(s.Campaign("a").Quotas) == 1 },
		},
		"a window": {
			`INSERT INTO pacer.quota_windows VALUES ('q', '1 hour', 5)`, `SELECT revision FROM pacer.quotas WHERE id = 'q'`,
			func(s *delivery.Snapshot) bool { return len(s.Quotas["q"].Windows) == 1 },
		},
		"a destination": {
			`UPDATE pacer.destinations SET max_in_flight = 3`, `SELECT revision FROM pacer.destinations WHERE id = 'shop'`,
			func(s *delivery.Snapshot) bool { return s.Destinations["shop"].MaxInFlight == 3 },
		},
		"a deletion": {
			`DELETE FROM pacer.campaigns WHERE id = 'gone'`, `SELECT removed FROM pacer.revision`,
			func(s *delivery.Snapshot) bool { return s.Campaign("gone") == nil },
		},
	} {
		run(t, first, `BEGIN`)
		run(t, first, c.change)
		run(t, second, `BEGIN`)
		run(t, second, `UPDATE pacer.campaigns SET burst = burst + 1 WHERE id = 'b'`)
		run(t, second, `COMMIT`)
		before := said(scope{})
		if c.acts(p.Snapshot()) {
			t.Errorf("%s acts before it is committed", what)
		}
		run(t, first, `COMMIT`)
		var number int64
		if err := second.QueryRow(ctx, c.number).Scan(&number); err != nil {
			t.Fatal(err)
		}
		if before >= number {
			t.Errorf("%s has revision %d, and %d was said without it", what, number, before)
		}
		if after := said(scope{}); after < number || !c.acts(p.Snapshot()) {
			t.Errorf("%s with revision %d: %d is said, and it acts: %t", what, number, after, c.acts(p.Snapshot()))
		}
	}
}
