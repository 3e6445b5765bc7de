package catalog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/delivery"
)

// TestChangesOfCampaigns: the newest first, page by page, with what has changed and nothing else.
func TestChangesOfCampaigns(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	a := try(NewAdminAs(migrated(t), "pacer console", Renewal{}))(t)
	defer a.Close()
	try(a.quota(ctx, "provider", QuotaChange{}))(t)
	try(a.created(ctx, "spring", CampaignChange{Rate: new("500"), Quotas: &[]string{"provider"}}))(t)
	try(a.created(ctx, "autumn", CampaignChange{}))(t)
	try(a.SetStatus(ctx, "spring", delivery.StatusPaused, "", nil))(t)
	newest := try(a.Changes(ctx, ChangesOf{Limit: 1}))(t)
	equal(t, "changes of a page of one", len(newest), 1)
	c := newest[0]
	equal(t, "the newest", []string{c.Campaign, c.Application, c.What}, []string{"spring", "pacer console", "campaigns update"})
	equal(t, "its fields", c.Fields, []Field{{"status", "active", "paused"}})
	for i, name := range []string{"alice@example.com@10.0.0.7", "alice@10.0.0.7", ""} {
		burst := int64(i + 1)
		try(a.edited(WithActor(ctx, Actor{Name: name}), "autumn", CampaignChange{Burst: &burst, ExpectedTotal: &burst}))(t)
	}
	update, link := "campaigns update", "campaign_quotas insert"
	all := []string{update, update, update, update, "campaigns insert", link, "campaigns insert", "quotas insert"}
	for _, tt := range []struct {
		of   ChangesOf
		want []string
	}{
		{ChangesOf{Campaign: "spring", Before: c.Number}, []string{link, "campaigns insert"}},
		{ChangesOf{Quota: "provider"}, []string{link, "quotas insert"}},
		{ChangesOf{Quota: "provider", Who: "alice"}, nil},
		{ChangesOf{Who: "alice"}, []string{update}},
		{ChangesOf{Who: "alice@10.0.0.7"}, []string{update}},
		{ChangesOf{Who: "alice@example.com"}, []string{update}},
		{ChangesOf{Who: "bob"}, nil}, {ChangesOf{Who: c.Who}, all}, {ChangesOf{}, all},
	} {
		tt.of.Limit = 100
		equal(t, fmt.Sprintf("%+v", tt.of), column(try(a.Changes(ctx, tt.of))(t), func(c Change) string { return c.What }), append([]string{}, tt.want...))
	}
	refused(t, ErrInvalid, "")(a.Changes(ctx, ChangesOf{Limit: maxChanges + 1}))
}

// TestRatesOfChanges: a change has the whole rates from before and after it, however the table writes what they are of, and whatever is set later.
func TestRatesOfChanges(t *testing.T) {
	a, ctx := administered(t), t.Context()
	set := []string{"500", "500/15m", "2.5/15m", "2.5/1d", "1/252h"}
	try(a.created(ctx, "spring", CampaignChange{Rate: new("7")}))(t)
	for _, rate := range set {
		try(a.edited(ctx, "spring", CampaignChange{Rate: &rate}))(t)
	}
	try(a.edited(ctx, "spring", CampaignChange{Burst: new(int64(5))}))(t)
	try(a.quota(ctx, "provider", QuotaChange{}))(t)
	got := column(try(a.Changes(ctx, ChangesOf{Limit: 10}))(t), func(c Change) string { return c.OldRate + " " + c.NewRate })
	equal(t, "rates", got, []string{" ", "1/252h 1/252h", "2.5/1d 1/252h", "2.5/15m 2.5/1d", "500/15m 2.5/15m", "500 500/15m", "7 500", " 7"})
}

// TestActorsAndRevisions: a change names who asked for it and why, and is made only of the campaign that was looked at. So does the record of
// jobs that were cancelled, by campaign; there is none if they could not be.
func TestActorsAndRevisions(t *testing.T) {
	a, nobody := administered(t), t.Context()
	alice := WithActor(t.Context(), Actor{Name: "alice@10.0.0.7", Reason: "too fast", RequestID: "r-1"})
	row := try(a.created(nobody, "spring", CampaignChange{Rate: new("500")}))(t)
	after := try(a.WriteCampaign(alice, "spring", &CampaignChange{Rate: new("600")}, Precondition{At: &row.Revision}))(t)
	if after.Rate != "600" || after.Revision <= row.Revision {
		t.Fatalf("%+v", after)
	}
	refused(t, ErrStale, "was changed meanwhile")(a.WriteCampaign(alice, "spring", &CampaignChange{Rate: new("500")}, Precondition{At: &row.Revision}))
	refused(t, ErrStale, "was changed meanwhile")(a.SetStatus(alice, "spring", delivery.StatusPaused, "", &row.Revision))
	refused(t, ErrNotFound, "does not exist")(a.SetStatus(alice, "nobody", delivery.StatusPaused, "", &row.Revision))
	try(a.SetStatus(nobody, "spring", delivery.StatusPaused, "", nil))(t)
	away := errors.New("away")
	line(t, a.CancelJobs(alice, func(context.Context) (map[string][]string, error) {
		return map[string][]string{"spring": {"u-0"}}, away
	}), away, "")
	must(t, a.CancelJobs(alice, func(context.Context) (map[string][]string, error) {
		return map[string][]string{"spring": {"u-1", "u-2"}, "autumn": {"u-1"}}, nil
	}))
	changes := try(a.Changes(nobody, ChangesOf{Limit: 10}))(t)
	equal(t, "changes", column(changes[:4], func(c Change) string {
		return fmt.Sprintf("%s %s %s by %q because %q, %q", c.Campaign, c.What, c.Fields, c.Actor, c.Reason, c.RequestID)
	}), []string{
		`spring jobs cancel [{ids  ["u-1", "u-2"]}] by "alice@10.0.0.7" because "too fast", "r-1"`,
		`autumn jobs cancel [{ids  ["u-1"]}] by "alice@10.0.0.7" because "too fast", "r-1"`,
		`spring campaigns update [{status active paused}] by "" because "", ""`, // also on the connection that was alice's before
		`spring campaigns update [{send_rate 500 600}] by "alice@10.0.0.7" because "too fast", "r-1"`,
	})
	if created := changes[4]; len(changes) != 5 || created.Actor != "" || created.Reason != "" || created.RequestID != "" || created.Who == "" {
		t.Errorf("%+v", created)
	}
	equal(t, "why it is read only", try(a.ReadOnly(nobody))(t), "")
}

// TestBulkChanges: only campaigns that are going change, and only those that are named.
func TestBulkChanges(t *testing.T) {
	a, ctx := administered(t), t.Context()
	for _, id := range []string{"a", "b", "c", "other"} {
		try(a.created(ctx, id, CampaignChange{Rate: new("10")}))(t)
	}
	try(a.SetStatus(ctx, "c", delivery.StatusCancelled, "", nil))(t)
	all := []string{"c", "b", "a", "nobody"}
	for _, step := range []struct {
		change BulkChange
		want   int
		a      string
	}{
		{BulkChange{Action: "pause"}, 2, "paused at 10"},
		{BulkChange{Action: "pause"}, 0, "paused at 10"},
		{BulkChange{Action: "resume"}, 2, "active at 10"},
		{BulkChange{Action: "percent", Percent: 150}, 2, "active at 15"},
		{BulkChange{Action: "percent", Percent: 33.3}, 2, "active at 4.995"},
		{BulkChange{Action: "rate", Rate: "150/m"}, 2, "active at 150/1m"},
		{BulkChange{Action: "rate", Rate: "10"}, 2, "active at 10"},
	} {
		equal(t, fmt.Sprintf("changed by %+v", step.change), try(a.ChangeCampaigns(ctx, all, step.change))(t), step.want)
		row := try(a.GetCampaign(ctx, "a"))(t)
		equal(t, fmt.Sprintf("a after %+v", step.change), fmt.Sprint(row.Status, " at ", row.Rate), step.a)
	}
	changes := try(a.Changes(ctx, ChangesOf{Campaign: "a", Limit: 10}))(t)
	fields := fmt.Sprint(column(changes, func(c Change) []Field { return c.Fields }))
	if len(changes) < 6 || strings.Contains(fields, "000") { // rates are as they are written, without zeros that say nothing
		t.Errorf("the record of changes has %s", fields)
	}
	// Those that go on by themselves are those that it pauses: one that was paused before stays so.
	try(a.SetStatus(ctx, "b", delivery.StatusPaused, "", nil))(t)
	until := time.Now().Add(time.Hour).Truncate(time.Second)
	equal(t, "changed", try(a.ChangeCampaigns(ctx, all, BulkChange{Action: "pause", Until: until.Format(time.RFC3339)}))(t), 1)
	for id, want := range map[string]string{
		"a": "10 paused " + until.UTC().Format(time.RFC3339), "b": "10 paused ever", "c": "10 cancelled ever", "other": "10 active ever",
	} {
		row, until := try(a.GetCampaign(ctx, id))(t), "ever"
		if row.PausedUntil != "" {
			until = row.PausedUntil
		}
		equal(t, id, fmt.Sprint(row.Rate, " ", row.Status, " ", until), want)
	}
	for _, change := range []BulkChange{{}, {Action: "percent", Percent: -1}, {Action: "rate", Rate: "fast"}, {Action: "rate"}, {Action: "pause", Until: "tomorrow"}, {Action: "cancel"}} {
		refused(t, ErrInvalid, "")(a.ChangeCampaigns(ctx, all, change))
	}
}

// TestFindDestinations: the disabled ones come first, pages follow each other without gaps, and a change is only of what was seen.
func TestFindDestinations(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	a := adminOf(t, dsn)
	url, hooks := "https://shop.example/", "hooks"
	for _, id := range []string{"Zoo", "a", "b", "c", "d%", "e:f"} {
		change := DestinationChange{URL: &url}
		if id == "c" {
			change.Sink = &hooks
		}
		try(a.WriteDestination(ctx, id, &change, Precondition{New: true}))(t)
	}
	for _, id := range []string{"e:f", "b"} {
		try(a.DisableDestination(ctx, id, true))(t)
	}
	run(t, connected(t, dsn), `UPDATE pacer.destinations SET failing_since = now() WHERE id = 'd%'`)
	for _, tt := range []struct {
		of   DestinationsOf
		want string
	}{
		{DestinationsOf{}, "b e:f d% Zoo a c"}, {DestinationsOf{Text: "%"}, "d%"},
		{DestinationsOf{State: "disabled"}, "b e:f"}, {DestinationsOf{State: "failing"}, "d%"},
		{DestinationsOf{State: "enabled", Text: "a"}, "a"}, {DestinationsOf{Sink: "hooks"}, "c"}, {DestinationsOf{Text: "nothing"}, ""},
	} {
		found := ""
		for of := tt.of; ; {
			of.Limit = 2
			rows, next, err := a.FindDestinations(ctx, of)
			must(t, err)
			for i := range rows {
				found += " " + rows[i].ID
			}
			if of.After = next; next == "" {
				break
			}
		}
		if strings.TrimSpace(found) != tt.want {
			t.Errorf("%+v finds%s, want %s", tt.of, found, tt.want)
		}
	}
	row := try(a.GetDestination(ctx, "a"))(t)
	earlier := row.Revision - 1
	refused(t, ErrStale, "was changed meanwhile")(a.WriteDestination(ctx, "a", &DestinationChange{Sink: &hooks}, Precondition{At: &earlier}))
	refused(t, ErrStale, "was changed meanwhile")(a.DeleteDestination(ctx, "a", &earlier))
	refused(t, ErrNotFound, "does not exist")(a.WriteDestination(ctx, "nowhere", &DestinationChange{Sink: &hooks}, Precondition{At: &earlier}))
	row = try(a.WriteDestination(ctx, "a", &DestinationChange{Sink: &hooks}, Precondition{At: &row.Revision}))(t)
	equal(t, "sink", row.Sink, hooks)
	try(a.DeleteDestination(ctx, "a", &row.Revision))(t)
}

// TestARevisionHasAllCommitsBelowIt: a transaction that began to change rows first and is committed last has the later revisions. So a daemon
// that says a revision has every change with it or a lower one. While the transaction is open, other campaigns are created and changed. Changes
// of quotas, and deletions, take turns, and wait for nothing else.
func TestARevisionHasAllCommitsBelowIt(t *testing.T) {
	dsn, first := fresh(t)
	second := connected(t, dsn)
	run(t, first, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('a', 1), ('b', 1), ('gone', 1)`)
	run(t, first, `INSERT INTO pacer.quotas (id) VALUES ('q'), ('gone')`)
	run(t, first, `INSERT INTO pacer.destinations (id, url) VALUES ('shop', 'https://a.example/')`)
	run(t, second, `SET lock_timeout = '5s'`)
	p := unstarted(t, Options{DSN: dsn})
	// said is the revision that the daemon says once it has read what is new.
	said := func(full bool) int64 {
		t.Helper()
		revision := loaded(t, p, full).Revision
		equal(t, "what is said", testutil.ToFloat64(p.metrics.revision), float64(revision))
		return revision
	}
	said(true)
	const ofA, removed = `SELECT revision FROM pacer.campaigns WHERE id = 'a'`, `SELECT removed FROM pacer.revision`
	for what, c := range map[string]struct {
		change, number string
		turn           bool
		acts           func(*delivery.Snapshot) bool
	}{
		"a pause": {
			`UPDATE pacer.campaigns SET status = 'paused' WHERE id = 'a'`, ofA, false,
			func(s *delivery.Snapshot) bool { return s.Campaign("a").Status == delivery.StatusPaused },
		},
		"a link": {
			`INSERT INTO pacer.campaign_quotas VALUES ('a', 'q')`, ofA, true,
			func(s *delivery.Snapshot) bool { return len(s.Campaign("a").Quotas) == 1 },
		},
		"a campaign": {
			`INSERT INTO pacer.campaigns (id) VALUES ('new')`, `SELECT revision FROM pacer.campaigns WHERE id = 'new'`, false,
			func(s *delivery.Snapshot) bool { return s.Campaign("new") != nil },
		},
		"a window": {
			`INSERT INTO pacer.quota_windows VALUES ('q', '1 hour', 5)`, `SELECT revision FROM pacer.quotas WHERE id = 'q'`, true,
			func(s *delivery.Snapshot) bool { return len(s.Quotas["q"].Windows) == 1 },
		},
		"a destination": {
			`UPDATE pacer.destinations SET max_in_flight = 3`, `SELECT revision FROM pacer.destinations WHERE id = 'shop'`, false,
			func(s *delivery.Snapshot) bool { return s.Destinations["shop"].MaxInFlight == 3 },
		},
		"a deletion": {
			`DELETE FROM pacer.campaigns WHERE id = 'gone'`, removed, true,
			func(s *delivery.Snapshot) bool { return s.Campaign("gone") == nil },
		},
		"a deletion of a quota": {
			`DELETE FROM pacer.quotas WHERE id = 'gone'`, removed, true,
			func(s *delivery.Snapshot) bool { return s.Quotas["gone"] == nil },
		},
	} {
		run(t, first, `BEGIN`)
		run(t, first, c.change)
		if !c.turn {
			run(t, second, `INSERT INTO pacer.quotas (id) VALUES ('passing')`)
			run(t, second, `INSERT INTO pacer.campaign_quotas VALUES ('b', 'passing')`)
			run(t, second, `DELETE FROM pacer.quotas WHERE id = 'passing'`)
			said(false) // everything, since a row is gone
		}
		run(t, second, `UPDATE pacer.campaigns SET burst = burst + 1 WHERE id = 'b'`)
		run(t, second, `INSERT INTO pacer.campaigns (id) VALUES ($1)`, strings.ReplaceAll(what, " ", "-"))
		before := said(false)
		if c.acts(p.Snapshot()) {
			t.Errorf("%s acts before it is committed", what)
		}
		run(t, first, `COMMIT`)
		number := value[int64](t, second, c.number)
		if before >= number {
			t.Errorf("%s has revision %d, and %d was said without it", what, number, before)
		}
		if after := said(false); after < number || !c.acts(p.Snapshot()) {
			t.Errorf("%s with revision %d: %d is said, and it acts: %t", what, number, after, c.acts(p.Snapshot()))
		}
	}
	same(t, first, p.Snapshot())
}

// TestChangesAreKeptForAWhile: the oldest rows of the record go as new ones come, also while another transaction deletes
// some.
func TestChangesAreKeptForAWhile(t *testing.T) {
	dsn, conn := fresh(t)
	other := connected(t, dsn)
	run(t, conn, `UPDATE pacer.store SET changes_kept = '30 days'`)
	run(t, conn, `INSERT INTO pacer.campaign_changes ("when", who, application, relation, operation, campaign_id)
SELECT now() - '31 days'::interval, 'x', 'x', 'campaigns', 'update', 'old' FROM generate_series(1, 300)`)
	count := func() (old, all int) {
		must(t, conn.QueryRow(t.Context(), `SELECT count(*) FILTER (WHERE campaign_id = 'old'), count(*) FROM pacer.campaign_changes`).Scan(&old, &all))
		return old, all
	}
	run(t, other, `BEGIN`)
	run(t, other, `INSERT INTO pacer.campaigns (id) SELECT 'other' || g FROM generate_series(1, 16) g`) // deletes 64 and holds them
	run(t, conn, `INSERT INTO pacer.campaigns (id) SELECT 'c' || g FROM generate_series(1, 32) g`)
	run(t, other, `COMMIT`)
	run(t, conn, `INSERT INTO pacer.campaigns (id) SELECT 'd' || g FROM generate_series(1, 64) g`)
	if old, all := count(); old != 0 || all < 112 {
		t.Errorf("%d rows of 31 days ago are left, of %d", old, all)
	}
	if _, err := conn.Exec(t.Context(), `UPDATE pacer.store SET changes_kept = '0'`); err == nil {
		t.Error("a retention of nothing was accepted")
	}
}
