package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/notation"
)

func administered(t *testing.T) *Admin {
	t.Helper()
	a, err := NewAdmin(migrated(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	return a
}

func TestAdminCampaigns(t *testing.T) {
	t.Parallel()
	a, ctx := administered(t), t.Context()
	usable := func(ctx context.Context, pool *pgxpool.Pool) error { return checkSchema(ctx, pool) }
	if err := a.with(ctx, usable); err != nil {
		t.Fatal(err)
	}
	if all, err := a.ListCampaigns(ctx); err != nil || len(all) != 0 {
		t.Fatalf("%v, %v", all, err)
	}
	windows, err := ParseWindows("300/1m,15750/1h")
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"smev", "mail"} {
		if _, err := a.SetQuota(ctx, id, QuotaChange{Windows: &windows}); err != nil {
			t.Fatal(err)
		}
	}
	created, err := a.CreateCampaign(ctx, "spring", CampaignChange{
		Rate: new("150/m"), Sink: new("receiver"), JobTTL: new(36 * time.Hour), Quotas: &[]string{"smev", "mail", "smev"},
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(created)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"id":"spring","send_rate":"150","send_per":"1m","burst":0,"status":"active","sink":"receiver","priority_weight":1,` +
		`"max_in_flight":0,"time_zone":"UTC","overflow":"lane","job_ttl":"36h","quotas":["mail","smev"],"revision":`
	if !strings.HasPrefix(string(text), want) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
	if _, err := a.CreateCampaign(ctx, "spring", CampaignChange{}); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), "pacer campaign set spring") {
		t.Errorf("created twice: %v", err)
	}
	changed, err := a.SetCampaign(ctx, "spring", CampaignChange{
		Rate: new("2.50"), Sink: new(""), JobTTL: new(time.Duration(0)), Burst: new(int64(5)), MaxInFlight: new(int64(9)), PriorityWeight: new(int64(3)),
		StartsAt: new(time.Unix(1_800_000_000, 0)), EndsAt: new(time.Unix(1_900_000_000, 0)), ExpectedTotal: new(int64(77)),
		Overflow: new(delivery.OverflowBlock),
	})
	if err != nil || changed.Rate() != "2.5" || changed.Sink != "" || changed.JobTTL != "" || changed.Burst != 5 || changed.MaxInFlight != 9 ||
		changed.PriorityWeight != 3 || changed.StartsAt.Unix() != 1_800_000_000 || changed.EndsAt.Unix() != 1_900_000_000 ||
		*changed.ExpectedTotal != 77 || changed.Overflow != delivery.OverflowBlock || changed.Revision <= created.Revision {
		t.Errorf("%+v, %v", changed, err)
	}
	cleared, err := a.SetCampaign(ctx, "spring", CampaignChange{StartsAt: new(time.Time{}), EndsAt: new(time.Time{}), ExpectedTotal: new(int64(0))})
	if err != nil || cleared.StartsAt != nil || cleared.EndsAt != nil || cleared.ExpectedTotal != nil || cleared.Rate() != "2.5" {
		t.Errorf("%+v, %v", cleared, err)
	}
	if paused, err := a.SetStatus(ctx, "spring", delivery.StatusPaused); err != nil || paused.Status != delivery.StatusPaused {
		t.Errorf("%+v, %v", paused, err)
	}
	if linked, err := a.SetCampaign(ctx, "spring", CampaignChange{Quotas: &[]string{"smev"}}); err != nil || !slices.Equal(linked.Quotas, []string{"smev"}) {
		t.Errorf("%+v, %v", linked, err)
	}
	if linked, err := a.SetCampaign(ctx, "spring", CampaignChange{Quotas: new([]string)}); err != nil || len(linked.Quotas) != 0 {
		t.Errorf("%+v, %v", linked, err)
	}
	got, err := a.GetCampaign(ctx, "spring")
	all, listErr := a.ListCampaigns(ctx)
	if err != nil || listErr != nil || len(all) != 1 || all[0].Revision != got.Revision || got.Status != delivery.StatusPaused {
		t.Errorf("%+v, %+v, %v, %v", got, all, err, listErr)
	}
	revision := got.Revision
	for range 2 { // daemons may hold an active campaign
		resumed, err := a.SetStatus(ctx, "spring", delivery.StatusActive)
		if err != nil || resumed.Status != delivery.StatusActive || resumed.Revision <= revision {
			t.Errorf("resumed at revision %d: %+v, %v", revision, resumed, err)
		}
		revision = resumed.Revision
	}
	if _, err := a.SetStatus(ctx, "nobody", delivery.StatusActive); err == nil {
		t.Error("an unknown campaign was resumed")
	}
}

func TestAdminQuotas(t *testing.T) {
	t.Parallel()
	a, ctx := administered(t), t.Context()
	set := func(spelled string) QuotaRow {
		t.Helper()
		windows, err := ParseWindows(spelled)
		if err != nil {
			t.Fatal(err)
		}
		quota, err := a.SetQuota(ctx, "smev", QuotaChange{Windows: &windows})
		if err != nil {
			t.Fatal(err)
		}
		return quota
	}
	first := set("300/1m, 15750/1h, 300000/1d, 1500000/7d, 6000000/30d")
	want := []WindowRow{{"1m", 300, "sliding", ""}, {"1h", 15750, "sliding", ""}, {"1d", 300000, "sliding", ""},
		{"7d", 1500000, "sliding", ""}, {"30d", 6000000, "sliding", ""}}
	if !slices.Equal(first.Windows, want) || first.OnStoreFailure != "closed" || first.Mode != "strict" || first.Spend != "greedy" {
		t.Errorf("%+v", first)
	}
	if same := set("300/1m,15750/1h,300000/1d,1500000/7d,6000000/30d"); same.Revision != first.Revision {
		t.Error("setting the same windows changed the quota")
	}
	second := set("15/10s:log,301/1m")
	if !slices.Equal(second.Windows, []WindowRow{{"10s", 15, "log", ""}, {"1m", 301, "sliding", ""}}) || second.Revision <= first.Revision {
		t.Errorf("%+v", second)
	}
	third, err := a.SetQuota(ctx, "smev", QuotaChange{Spend: new("even"), OnStoreFailure: new("open")})
	if err != nil || third.Spend != "even" || third.OnStoreFailure != "open" || third.Mode != "strict" || len(third.Windows) != 2 {
		t.Errorf("%+v, %v", third, err)
	}
	if third.Rollout != 100 || third.Unit != "units" || third.Shard != 0 {
		t.Errorf("%+v", third)
	}
	for _, c := range []QuotaChange{{Mode: new("eventual")}, {Unit: new("bytes")}, {Rollout: new(int64(0))}} { // one after the other
		if third, err = a.SetQuota(ctx, "smev", c); err != nil {
			t.Fatal(err)
		}
	}
	if third.Mode != "eventual" || third.Unit != "bytes" || third.Rollout != 0 || third.Spend != "even" {
		t.Errorf("%+v", third)
	}
	// A quota spent evenly may get a great window together with greed, and no sooner.
	great := []delivery.Window{{Span: day, Limit: model.MaxEven + 1, Algorithm: "fixed", Anchor: "day@Europe/Moscow"}}
	_, err = a.SetQuota(ctx, "smev", QuotaChange{Windows: &great})
	line(t, err, ErrInvalid, `must not be 68719476737: quota 'smev' is spent evenly: Use at most 2^36`)
	fourth, err := a.SetQuota(ctx, "smev", QuotaChange{Windows: &great, Spend: new("greedy")})
	if err != nil || !slices.Equal(fourth.Windows, []WindowRow{{"1d", model.MaxEven + 1, "fixed", "day@Europe/Moscow"}}) {
		t.Errorf("%+v, %v", fourth, err)
	}
	small := []delivery.Window{{Span: day, Limit: model.MaxEven}}
	if fourth, err = a.SetQuota(ctx, "smev", QuotaChange{Windows: &small, Spend: new("even")}); err != nil || fourth.Windows[0].Anchor != "" {
		t.Errorf("%+v, %v", fourth, err)
	}
	// Sixteen windows are allowed, and may be set again.
	spans := make([]string, 16)
	for i := range spans {
		spans[i] = "5/" + notation.FormatSpan(time.Duration(i+1)*time.Second)
	}
	for range 2 {
		if q := set(strings.Join(spans, ",")); len(q.Windows) != 16 {
			t.Errorf("%+v", q)
		}
	}
	if _, err := a.CreateCampaign(ctx, "spring", CampaignChange{Quotas: &[]string{"smev"}}); err != nil {
		t.Fatal(err)
	}
	if q, err := a.GetQuota(ctx, "smev"); err != nil || !slices.Equal(q.Campaigns, []string{"spring"}) {
		t.Errorf("%+v, %v", q, err)
	}
	if empty := set(""); len(empty.Windows) != 0 {
		t.Errorf("%+v", empty)
	}
	if all, err := listQuotas(ctx, a); err != nil || len(all) != 1 || all[0].ID != "smev" {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestAdminRefuses: one line each, of the right kind, that names the field; nothing is written.
func TestAdminRefuses(t *testing.T) {
	t.Parallel()
	a, ctx := administered(t), t.Context()
	if _, err := a.CreateCampaign(ctx, "kept", CampaignChange{StartsAt: new(time.Unix(1_900_000_000, 0))}); err != nil {
		t.Fatal(err)
	}
	many := slices.Repeat([]string{"q"}, 17)
	for name, c := range map[string]CampaignChange{
		"must not be negative": {Rate: new("-5")}, "six decimals": {Rate: new("0.1234567")}, "must be a number": {Rate: new("fast")},
		"too many digits": {Rate: new("999999.123457")}, "period": {Rate: new("5/fortnight")},
		"status": {Status: new(delivery.Status("asleep"))}, "overflow": {Overflow: new(delivery.Overflow("drop"))}, "sink": {Sink: new("a b")},
		"burst": {Burst: new(int64(-1))}, "priority_weight": {PriorityWeight: new(int64(0))}, "max_in_flight": {MaxInFlight: new(int64(1) << 40)},
		"expected_total": {ExpectedTotal: new(int64(-1))}, "note must be one line": {Note: new("two\nlines")}, "job_ttl": {JobTTL: new(-time.Second)},
		"ends_at":              {StartsAt: new(time.Unix(9, 0)), EndsAt: new(time.Unix(8, 0))},
		"later than starts_at": {EndsAt: new(time.Unix(1_800_000_000, 0))}, // only the database knows starts_at
		"at most 16":           {Quotas: &many}, "quota id": {Quotas: &[]string{""}}, "pacer quota set nowhere": {Quotas: &[]string{"nowhere"}},
	} {
		_, err := a.SetCampaign(ctx, "kept", c)
		line(t, err, ErrInvalid, name)
	}
	_, err := a.SetCampaign(ctx, "nobody", CampaignChange{Rate: new("5")})
	line(t, err, ErrNotFound, "pacer campaign create nobody")
	_, err = a.SetCampaign(ctx, "nobody", CampaignChange{Quotas: new([]string)})
	line(t, err, ErrNotFound, "campaign nobody does not exist")
	_, err = a.GetCampaign(ctx, "nobody")
	line(t, err, ErrNotFound, "campaign nobody does not exist")
	_, err = a.CreateCampaign(ctx, "a b", CampaignChange{})
	line(t, err, ErrInvalid, `campaign id "a b"`)
	_, err = a.CreateCampaign(ctx, delivery.UnknownCampaign, CampaignChange{})
	line(t, err, ErrInvalid, "campaign id (unknown) is reserved")
	_, err = a.CreateCampaign(ctx, "half", CampaignChange{Quotas: &[]string{"nowhere"}})
	line(t, err, ErrInvalid, "quota nowhere does not exist")
	_, err = a.GetCampaign(ctx, "half") // not half created
	line(t, err, ErrNotFound, "half")
	_, err = a.GetQuota(ctx, "nobody")
	line(t, err, ErrNotFound, "quota nobody does not exist")
	_, err = a.SetQuota(ctx, "a b", QuotaChange{})
	line(t, err, ErrInvalid, "quota id")
	for name, c := range map[string]QuotaChange{
		"mode": {Mode: new("loose")}, "spend": {Spend: new("fast")}, "on_store_failure": {OnStoreFailure: new("ignore")},
		"limit": {Windows: &[]delivery.Window{{Span: time.Minute, Limit: -1}}}, "span": {Windows: &[]delivery.Window{{Limit: 1}}},
		"algorithm": {Windows: &[]delivery.Window{{Span: time.Minute, Algorithm: "bucket"}}},
		"anchor":    {Windows: &[]delivery.Window{{Span: time.Minute, Algorithm: "fixed", Anchor: strings.Repeat("x", 65)}}},
		"rollout":   {Rollout: new(int64(101))}, "unit": {Unit: new("calls")}, "in mode": {Unit: new("bytes")},
		"spent evenly":    {Spend: new("even"), Windows: &[]delivery.Window{{Span: day, Limit: model.MaxEven + 1}}},
		"sliding above":   {Windows: &[]delivery.Window{{Span: day, Limit: model.MaxLog + 1, Algorithm: "log"}}},
		"longest, 31d":    {Windows: &[]delivery.Window{{Span: 30 * day, Algorithm: "fixed", Anchor: "month"}}},
		"algorithm fixed": {Windows: &[]delivery.Window{{Span: day, Anchor: "day"}}},
	} {
		_, err := a.SetQuota(ctx, "q", c)
		line(t, err, ErrInvalid, name)
	}
	if all, err := listQuotas(ctx, a); err != nil || len(all) != 0 {
		t.Errorf("something was written: %+v, %v", all, err)
	}
}

// listQuotas reads all quotas in the order of their ids.
func listQuotas(ctx context.Context, a *Admin) ([]QuotaRow, error) {
	return ask(ctx, a, func(ctx context.Context, pool *pgxpool.Pool) ([]QuotaRow, error) { return queryQuotas(ctx, pool, "") })
}

// line checks that an error is of a kind and is one line, without codes.
func line(t *testing.T, err, kind error, want string) {
	t.Helper()
	if !errors.Is(err, kind) || !strings.Contains(err.Error(), want) || strings.ContainsAny(err.Error(), "\n\t") || strings.Contains(err.Error(), "SQLSTATE") {
		t.Errorf("got %v; want %v with %q", err, kind, want)
	}
}

// TestTheInstallationIsStored: daemons and the check see what the database is set up for, also when that changes.
func TestTheInstallationIsStored(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	p, ctx := started(t, Options{DSN: dsn}), t.Context()
	if got := p.Snapshot().Installation; got != (delivery.Installation{Shards: 1}) {
		t.Errorf("a new database is set up for %+v", got)
	}
	m, err := NewMigrator(dsn)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []delivery.Installation{
		{Cluster: "A", Group: "pacer", Prefix: "pacer.", Shards: 1}, {Cluster: "B", Group: "night", Prefix: "night.", Shards: 2},
	} {
		if err := m.Install(ctx, want); err != nil {
			t.Fatal(err)
		}
		eventually(t, "the catalog has it", func() bool { return p.Snapshot().Installation == want })
		if found, err := Check(ctx, dsn, Renewal{}); err != nil || found.Installation != want {
			t.Errorf("%+v, %v", found, err)
		}
	}
}

// TestOnlyFinishedCampaignsAreDeleted: with their links and progress; their history stays.
func TestOnlyFinishedCampaignsAreDeleted(t *testing.T) {
	t.Parallel()
	a, ctx := administered(t), t.Context()
	if _, err := a.SetQuota(ctx, "provider", QuotaChange{}); err != nil {
		t.Fatal(err)
	}
	if _, err := a.CreateCampaign(ctx, "spring", CampaignChange{Quotas: &[]string{"provider"}}); err != nil {
		t.Fatal(err)
	}
	backlog := func(jobs int) {
		t.Helper()
		err := a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
			_, err := pool.Exec(ctx, `INSERT INTO pacer.campaign_progress (campaign_id, delivered, backlog) VALUES ('spring', 7, $1)
ON CONFLICT (campaign_id) DO UPDATE SET backlog = excluded.backlog`, jobs)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(says string) {
		t.Helper()
		if _, err := a.DeleteCampaign(ctx, "spring", nil); !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
		if _, err := a.GetCampaign(ctx, "spring"); err != nil {
			t.Error(err)
		}
	}
	refused("is active, and only cancelled and completed campaigns")
	if _, err := a.SetStatus(ctx, "spring", delivery.StatusPaused); err != nil {
		t.Fatal(err)
	}
	refused("is paused")
	if _, err := a.SetStatus(ctx, "spring", delivery.StatusCompleted); err != nil {
		t.Fatal(err)
	}
	backlog(3)
	refused("a backlog of 3 jobs")
	backlog(0)
	stale := int64(1)
	if _, err := a.DeleteCampaign(ctx, "spring", &stale); !errors.Is(err, ErrStale) {
		t.Errorf("deleted as it was once: %v", err)
	}
	if row, err := a.DeleteCampaign(ctx, "spring", nil); err != nil || row.ID != "spring" || row.Progress.Delivered != 7 {
		t.Errorf("%+v, %v", row, err)
	}
	if _, err := a.DeleteCampaign(ctx, "spring", nil); !errors.Is(err, ErrNotFound) {
		t.Errorf("deleted twice: %v", err)
	}
	var changes int
	err := a.with(ctx, func(ctx context.Context, pool *pgxpool.Pool) error {
		return pool.QueryRow(ctx, `SELECT count(*) FROM pacer.campaign_changes WHERE campaign_id = 'spring' AND operation = 'delete' AND relation = 'campaigns'`).Scan(&changes)
	})
	if err != nil || changes != 1 {
		t.Errorf("%d records of it, %v", changes, err)
	}
}
