package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/notation"
)

func TestAdminCampaigns(t *testing.T) {
	a, ctx := administered(t), t.Context()
	must(t, a.database.do(ctx, "", func(ctx context.Context, pool *pgxpool.Pool) error { return checkSchema(ctx, pool) }))
	equal(t, "at first", len(try(a.ListCampaigns(ctx))(t)), 0)
	for _, id := range []string{"smev", "mail"} {
		try(a.quota(ctx, id, QuotaChange{}))(t)
	}
	revision := int64(0)
	// is compares what is shown of a campaign, and its revision with the one before.
	is := func(row CampaignRow, want string) {
		t.Helper()
		text, _, _ := strings.Cut(string(try(json.Marshal(row))(t)), `,"updated_at":`)
		_, text, _ = strings.Cut(text, `,"status":`)
		equal(t, "the campaign", text, want)
		if row.Revision <= revision {
			t.Errorf("revision %d after %d", row.Revision, revision)
		}
		revision = row.Revision
	}
	const noSchedule = `"active_hours":"","time_zone":"UTC","time_zone_missing":"","avoid_minutes":"","ramp":"",`
	is(try(a.created(ctx, "spring", CampaignChange{
		Rate: new("150/m"), Sink: new("receiver"), JobTTL: new("36h"), Quotas: &[]string{"smev", "mail", "smev"},
	}))(t), `"active","rate":"150/1m","sink":"receiver","quotas":["mail","smev"],"priority_weight":1,"burst":0,"max_in_flight":0,"overflow":"lane",`+
		`"starts_at":"","ends_at":"",`+noSchedule+`"job_ttl":"36h","expected_total":0`)
	refused(t, ErrInvalid, "pacer campaign set spring")(a.created(ctx, "spring", CampaignChange{}))
	is(try(a.edited(ctx, "spring", CampaignChange{
		Rate: new("2.50"), Sink: new(""), JobTTL: new(""), Burst: new(int64(5)), MaxInFlight: new(int64(9)), PriorityWeight: new(int64(3)),
		StartsAt: new("2027-01-15T08:00:00Z"), EndsAt: new("2030-03-17T17:46:40Z"), ExpectedTotal: new(int64(77)),
		Overflow: new("block"),
	}))(t), `"active","rate":"2.5","sink":"","quotas":["mail","smev"],"priority_weight":3,"burst":5,"max_in_flight":9,"overflow":"block",`+
		`"starts_at":"2027-01-15T08:00:00Z","ends_at":"2030-03-17T17:46:40Z",`+noSchedule+`"job_ttl":"","expected_total":77`)
	const rest = `,"priority_weight":3,"burst":5,"max_in_flight":9,"overflow":"block","starts_at":"","ends_at":"",` + noSchedule + `"job_ttl":"","expected_total":0`
	const active, paused = `"active","rate":"2.5","sink":"","quotas":`, `"paused","rate":"2.5","sink":"","quotas":`
	none := CampaignChange{StartsAt: new(""), EndsAt: new("none"), ExpectedTotal: new(int64(0))}
	is(try(a.edited(ctx, "spring", none))(t), active+`["mail","smev"]`+rest)
	is(try(a.edited(ctx, "spring", CampaignChange{Quotas: &[]string{"smev"}}))(t), active+`["smev"]`+rest)
	is(try(a.edited(ctx, "spring", CampaignChange{Quotas: new([]string)}))(t), active+`[]`+rest)
	row := try(a.SetStatus(ctx, "spring", delivery.StatusPaused, "", nil))(t)
	is(row, paused+`[]`+rest)
	equal(t, "one", try(a.GetCampaign(ctx, "spring"))(t), row)
	equal(t, "all", try(a.ListCampaigns(ctx))(t), []CampaignRow{row})
	for range 2 { // daemons may hold an active campaign
		is(try(a.SetStatus(ctx, "spring", delivery.StatusActive, "", nil))(t), active+`[]`+rest)
	}
	refused(t, ErrNotFound, "campaign nobody does not exist")(a.SetStatus(ctx, "nobody", delivery.StatusActive, "", nil))
}

func TestAdminQuotas(t *testing.T) {
	a, ctx := administered(t), t.Context()
	set := func(change QuotaChange) QuotaRow {
		t.Helper()
		return try(a.quota(ctx, "smev", change))(t)
	}
	spelled := func(windows string) QuotaRow {
		t.Helper()
		return set(QuotaChange{Windows: &[]string{windows}})
	}
	words := func(q QuotaRow) []any {
		return []any{q.OnStoreFailure, q.Mode, q.Spend, q.Unit, q.Rollout, q.Shard}
	}
	first := spelled("300/1m, 15750/1h, 300000/1d, 1500000/7d, 6000000/30d")
	equal(t, "windows", first.Windows, []string{"300/1m", "15750/1h", "300000/1d", "1500000/7d", "6000000/30d"})
	equal(t, "defaults", words(first), []any{"closed", "strict", "greedy", "units", int64(100), 0})
	equal(t, "revision of the same windows", spelled("300/1m,15750/1h,300000/1d,1500000/7d,6000000/30d").Revision, first.Revision)
	second := spelled("15/10s:log,301/1m")
	equal(t, "windows", second.Windows, []string{"15/10s:log", "301/1m"})
	if second.Revision <= first.Revision {
		t.Errorf("revision %d after %d", second.Revision, first.Revision)
	}
	set(QuotaChange{Spend: new("even"), OnStoreFailure: new("open")})
	set(QuotaChange{Mode: new("eventual")})
	set(QuotaChange{Unit: new("bytes")})
	third := set(QuotaChange{Rollout: new(int64(0))})
	equal(t, "words", words(third), []any{"open", "eventual", "even", "bytes", int64(0), 0})
	equal(t, "windows", third.Windows, second.Windows)
	for _, wait := range []string{"6h", "0", ""} {
		want := &wait
		if wait == "" {
			want = nil
		}
		equal(t, "wait of "+wait, try(a.quota(ctx, "cap", QuotaChange{Per: new("to"), MaxWait: &wait}))(t).MaxWait, want)
	}
	// A quota spent evenly may get a great window together with greed, and no sooner.
	great := []string{fmt.Sprint(model.MaxEven+1, "/1d:fixed:day@Europe/Moscow")}
	refused(t, ErrInvalid, "must not be 68719476737: quota 'smev' is spent evenly: Use at most 2^36")(
		a.quota(ctx, "smev", QuotaChange{Windows: &great}))
	greedy := set(QuotaChange{Windows: &great, Spend: new("greedy")})
	equal(t, "windows", greedy.Windows, great)
	even := set(QuotaChange{Windows: &[]string{fmt.Sprint(model.MaxEven, "/1d")}, Spend: new("even")})
	equal(t, "windows", even.Windows, []string{fmt.Sprint(model.MaxEven, "/1d")})
	// Sixteen windows are allowed, and may be set again.
	spans := make([]string, 16)
	for i := range spans {
		spans[i] = "5/" + notation.FormatSpan(time.Duration(i+1)*time.Second)
	}
	for range 2 {
		equal(t, "windows", len(spelled(strings.Join(spans, ",")).Windows), 16)
	}
	try(a.created(ctx, "spring", CampaignChange{Quotas: &[]string{"smev"}}))(t)
	equal(t, "campaigns", try(a.GetQuota(ctx, "smev"))(t).CampaignIDs, []string{"spring"})
	equal(t, "windows", len(spelled("").Windows), 0)
	if all := try(listQuotas(ctx, a))(t); len(all) != 2 || all[1].ID != "smev" {
		t.Errorf("%+v", all)
	}
}

// TestAChangeIsTriedAgain: of two transactions that wait for each other the server ends one, which is repeated as it was.
func TestAChangeIsTriedAgain(t *testing.T) {
	dsn, conn := fresh(t)
	a, ctx := adminOf(t, dsn), t.Context()
	for _, table := range []string{"campaigns", "quotas", "destinations"} {
		try(conn.Exec(ctx, fmt.Sprintf(`CREATE SEQUENCE pacer.tries_%[1]s;
CREATE FUNCTION pacer.deadlock_%[1]s() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	IF nextval('pacer.tries_%[1]s') = 1 THEN RAISE deadlock_detected; END IF;
	RETURN NEW;
END $$;
CREATE TRIGGER a_deadlock BEFORE INSERT ON pacer.%[1]s FOR EACH ROW EXECUTE FUNCTION pacer.deadlock_%[1]s()`, table)))(t)
	}
	try(a.quota(ctx, "q", QuotaChange{Windows: &[]string{"300/1m"}}))(t)
	try(a.created(ctx, "c", CampaignChange{Quotas: &[]string{"q"}}))(t)
	try(a.WriteDestination(ctx, "d", &DestinationChange{URL: new("https://example.com/")}, Precondition{New: true}))(t)
}

// TestAdminRefuses: one line each, of the right kind, that names the field; nothing is written.
func TestAdminRefuses(t *testing.T) {
	a, ctx := administered(t), t.Context()
	try(a.created(ctx, "kept", CampaignChange{StartsAt: new("2030-03-17T17:46:40Z")}))(t)
	many := slices.Repeat([]string{"q"}, 17)
	for name, c := range map[string]CampaignChange{
		"must not be negative": {Rate: new("-5")}, "six decimals": {Rate: new("0.1234567")}, "must be a number": {Rate: new("fast")},
		"too many digits": {Rate: new("999999.123457")}, "period": {Rate: new("5/fortnight")},
		"status": {Status: new(delivery.Status("asleep"))}, "overflow": {Overflow: new("drop")}, "sink": {Sink: new("a b")},
		"burst": {Burst: new(int64(-1))}, "priority_weight": {PriorityWeight: new(int64(0))}, "max_in_flight": {MaxInFlight: new(int64(1) << 40)},
		"expected_total": {ExpectedTotal: new(int64(-1))}, "note must be one line": {Note: new("two\nlines")}, "job_ttl": {JobTTL: new("-1s")},
		"ends_at":              {StartsAt: new("2026-11-30T09:00:00Z"), EndsAt: new("2026-11-30T08:00:00Z")},
		"later than starts_at": {EndsAt: new("2027-01-15T08:00:00Z")}, // only the database knows starts_at
		"at most 16":           {Quotas: &many}, "quota id": {Quotas: &[]string{""}}, "pacer quota set nowhere": {Quotas: &[]string{"nowhere"}},
	} {
		refused(t, ErrInvalid, name)(a.edited(ctx, "kept", c))
	}
	hours := func(text string) CampaignChange { return CampaignChange{ActiveHours: &text} }
	ramp := func(text string) CampaignChange { return CampaignChange{Ramp: &text} }
	for name, changes := range map[string][]CampaignChange{ // without the database
		"active_hours":  {hours("9:00-21:00"), hours("09:00-24:01"), hours("24:00-09:00"), hours("someday 09:00-21:00")},
		"time_zone":     {{TimeZone: new("Mars/Olympus")}, {TimeZone: new("Local")}, {TimeZone: new("")}, {ZoneMissing: new("Mars/Olympus")}},
		"avoid_minutes": {{AvoidMinutes: new("60")}, {AvoidMinutes: new("1,2,3,x")}},
		"ramp": {
			ramp("start=1,every=1m"), ramp("start=1,add=1,factor=2,every=1m"), ramp("start=1,add=1"), ramp("start=1,add=1,every=1m;"), ramp("slowly"),
		},
	} {
		for i := range changes {
			refused(t, ErrInvalid, name)(changes[i].assignment("kept", time.UTC))
		}
	}
	refused(t, ErrNotFound, "pacer campaign create nobody")(a.edited(ctx, "nobody", CampaignChange{Rate: new("5")}))
	refused(t, ErrNotFound, "campaign nobody does not exist")(a.edited(ctx, "nobody", CampaignChange{Quotas: new([]string)}))
	refused(t, ErrNotFound, "campaign nobody does not exist")(a.GetCampaign(ctx, "nobody"))
	refused(t, ErrInvalid, `campaign id "a b"`)(a.created(ctx, "a b", CampaignChange{}))
	refused(t, ErrInvalid, "campaign id (unknown) is reserved")(a.created(ctx, delivery.UnknownCampaign, CampaignChange{}))
	refused(t, ErrInvalid, "quota nowhere does not exist")(a.created(ctx, "half", CampaignChange{Quotas: &[]string{"nowhere"}}))
	refused(t, ErrNotFound, "half")(a.GetCampaign(ctx, "half")) // not half created
	refused(t, ErrNotFound, "quota nobody does not exist")(a.GetQuota(ctx, "nobody"))
	refused(t, ErrInvalid, "quota id")(a.quota(ctx, "a b", QuotaChange{}))
	for name, c := range map[string]QuotaChange{
		"mode": {Mode: new("loose")}, "spend": {Spend: new("fast")}, "on_store_failure": {OnStoreFailure: new("ignore")},
		"limit": {Windows: &[]string{"-1/1m"}}, "span": {Windows: &[]string{"1/0s"}}, "algorithm": {Windows: &[]string{"0/1m:bucket"}},
		"anchor":  {Windows: &[]string{"0/1m:fixed:" + strings.Repeat("x", 65)}},
		"rollout": {Rollout: new(int64(101))}, "unit": {Unit: new("calls")}, "in mode": {Unit: new("bytes")},
		"spent evenly":    {Spend: new("even"), Windows: &[]string{fmt.Sprint(model.MaxEven+1, "/1d")}},
		"sliding above":   {Windows: &[]string{fmt.Sprint(model.MaxLog+1, "/1d:log")}},
		"longest, 31d":    {Windows: &[]string{"0/30d:fixed:month"}},
		"algorithm fixed": {Windows: &[]string{"0/1d:sliding:day"}},
	} {
		refused(t, ErrInvalid, name)(a.quota(ctx, "q", c))
	}
	equal(t, "written quotas", len(try(listQuotas(ctx, a))(t)), 0)
}

// listQuotas reads all quotas in the order of their ids.
func listQuotas(ctx context.Context, a *Admin) ([]linkedQuota, error) {
	return read(ctx, a.database, "", func(ctx context.Context, pool *pgxpool.Pool) ([]linkedQuota, error) {
		return queryQuotas(ctx, pool, "")
	})
}

// TestOnlyFinishedCampaignsAreDeleted: with their links and progress; their history stays.
func TestOnlyFinishedCampaignsAreDeleted(t *testing.T) {
	dsn, conn := fresh(t)
	a, ctx := adminOf(t, dsn), t.Context()
	try(a.quota(ctx, "provider", QuotaChange{}))(t)
	try(a.created(ctx, "spring", CampaignChange{Quotas: &[]string{"provider"}}))(t)
	backlog := func(jobs int) {
		t.Helper()
		run(t, conn, `INSERT INTO pacer.campaign_progress (campaign_id, delivered, backlog) VALUES ('spring', 7, $1)
ON CONFLICT (campaign_id) DO UPDATE SET backlog = excluded.backlog`, jobs)
	}
	stays := func(kind error, says string, seen *int64) {
		t.Helper()
		refused(t, kind, says)(a.DeleteCampaign(ctx, "spring", seen))
		try(a.GetCampaign(ctx, "spring"))(t)
	}
	stays(ErrInvalid, "is active, and only cancelled and completed campaigns", nil)
	try(a.SetStatus(ctx, "spring", delivery.StatusPaused, "", nil))(t)
	stays(ErrInvalid, "is paused", nil)
	try(a.SetStatus(ctx, "spring", delivery.StatusCompleted, "", nil))(t)
	backlog(3)
	stays(ErrInvalid, "a backlog of 3 jobs", nil)
	backlog(0)
	stays(ErrStale, "was changed meanwhile", new(int64(1)))
	if row := try(a.DeleteCampaign(ctx, "spring", nil))(t); row.ID != "spring" || row.Progress.Delivered != 7 {
		t.Errorf("%+v", row)
	}
	refused(t, ErrNotFound, "does not exist")(a.DeleteCampaign(ctx, "spring", nil))
	records := value[int](t, conn, `SELECT count(*) FROM pacer.campaign_changes
WHERE campaign_id = 'spring' AND operation = 'delete' AND relation = 'campaigns'`)
	equal(t, "records of it", records, 1)
}

// TestCommandsDoNotDeadlock: commands that change a campaign, its links and quotas at once, in any order, all succeed.
func TestCommandsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	run(t, connected(t, dsn), `INSERT INTO pacer.campaigns (id) VALUES ('a'), ('b')`)
	a := adminOf(t, dsn)
	done := make(chan error, 4)
	for w := range 4 {
		go func() {
			var err error
			for i := 0; i < 25 && err == nil; i++ {
				id, quota, burst := []string{"a", "b"}[(i+w)%2], fmt.Sprintf("q%d", i%3), int64(i)
				if w%2 == 0 {
					_, err = a.quota(context.Background(), quota, QuotaChange{Windows: &[]string{fmt.Sprint(1+i, "/1m")}})
					continue
				}
				links := []string{}
				if _, missing := a.GetQuota(context.Background(), quota); missing == nil {
					links = append(links, quota)
				}
				_, err = a.edited(context.Background(), id, CampaignChange{Burst: &burst, Quotas: &links})
			}
			done <- err
		}()
	}
	for range 4 {
		must(t, <-done)
	}
}
