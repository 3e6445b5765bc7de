package command

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// TestQuotaShowSaysWhatIsLeft: the counts are those of the store, and the campaigns are named with what they may do.
func TestQuotaShowSaysWhatIsLeft(t *testing.T) {
	d := newDesk(t, testservices.FreshRedis(t).Addr)
	d.fields(d.run("quota set provider --window 300/1m,7/1h:log --window 300000/1d:fixed:day@Europe/Moscow --rollout 100 "+
		"--on-store-failure local-share --spend greedy"),
		"windows 300/1m,7/1h:log,300000/1d:fixed:day@Europe/Moscow", "on store failure local-share")
	d.run("quota set trial --window 5/1s:log,9/1d:fixed,10/100ms,2/31d:fixed:month --mode shadow --rollout 25")
	d.run("quota set volume --mode eventual --unit bytes")
	d.run("quota set calm --spend even")
	for _, id := range []string{"spring", "autumn"} {
		d.run("campaign create " + id + " --rate 150/m --quota provider --priority-weight 3 --status paused")
	}
	d.fields(d.run("quota list"), "provider 300/1m,7/1h:log,300000/1d:fixed:day@Europe/Moscow strict local-share autumn,spring",
		"trial 10/100ms,5/1s:log,9/1d:fixed,2/31d:fixed:month shadow,25% closed -", "volume - eventual,bytes closed -", "calm - strict,even closed -")

	d.spend("provider", 5)
	before := time.Now().Truncate(time.Millisecond)
	shown := d.run("quota show provider")
	d.fields(shown, "shard 0", "rollout 100%", "unit units", "mode strict", "autumn 150/1m paused 3 yes 0 paused -", "spring 150/1m paused 3 yes 0 paused -")
	view := read[quotaShown](d, "quota show provider")
	if view.Unknown != "" || view.Shard != 0 || len(view.UsedBy) != 2 || view.UsedBy[0].ID != "autumn" {
		t.Errorf("%+v", view)
	}
	for i, want := range []struct {
		remaining int64
		within    time.Duration
	}{{295, time.Minute}, {2, time.Hour}, {299_995, 25 * time.Hour}} {
		w := view.Windows[i]
		if *w.Remaining != want.remaining || w.FullAt.Before(before) || w.FullAt.After(time.Now().Add(want.within+want.within/16+time.Second)) {
			t.Errorf("%s: %d of %d remain until %s", w.Span, *w.Remaining, w.Limit, w.FullAt)
		}
		d.fields(shown, fmt.Sprintf("%s %d %d now %s", w.Span, w.Limit, want.remaining, w.FullAt.Format(preciseTime)))
	}
}

// TestQuotasAreChangedInPart: windows that stay keep their counts; a quota that limits campaigns is deleted only on demand.
func TestQuotasAreChangedInPart(t *testing.T) {
	d := newDesk(t, testservices.FreshRedis(t).Addr)
	d.run("quota set provider --window 300/1m,2/1h:log --mode strict")
	d.run("campaign create spring --rate 150/m --quota provider --status paused")
	d.spend("provider", 2)
	d.fields(d.run("quota set provider --window 200/1m,2/1h:log,9/1d"), "windows 200/1m,2/1h:log,9/1d")
	d.fields(d.run("quota set provider --window 200/1m,2/1h:log"), "windows 200/1m,2/1h:log")
	d.refuses(1, "quota adjust provider 7d --used 5 --reason credit", "has no window of 7d; it has 1m, 1h")
	for _, missing := range []string{
		"quota show nothing", "campaign set nothing --rate 5", "campaign show nothing", "destination show nothing", "explain nothing",
	} {
		d.refuses(1, missing, "nothing")
	}
	d.refuses(2, "quota set provider --window 3/1s:slow", "slow")

	shown := d.run("quota show provider")
	windows := read[quotaShown](d, "quota show provider").Windows
	if minute, hour := windows[0], windows[1]; *minute.Remaining != 198 || minute.FreeAt != nil || *hour.Remaining != 0 || hour.FreeAt == nil ||
		hour.FreeAt.After(*hour.FullAt) || hour.FreeAt.Before(time.Now().Add(58*time.Minute)) {
		t.Errorf("%+v", windows)
	} else {
		d.fields(shown, fmt.Sprintf("1h 2 0 %s %s", hour.FreeAt.Format(preciseTime), hour.FullAt.Format(preciseTime)))
	}

	d.refuses(2, "quota delete provider", "give --yes")
	d.refuses(2, "quota delete provider --yes", "limits 1 campaigns, such as spring; take them out of it, or give --unlink")
	d.prints("quota delete provider --yes --unlink", "deleted quota provider, which limited 1 campaign\n")
	d.refuses(1, "quota show provider", "does not exist")
	d.refuses(1, "quota delete provider --yes", "does not exist")
	d.fields(d.run("campaign show spring"), "quotas -")
}

// TestQuotaShowSaysWhomItCovers: a quota that is rolled out in part covers some of its campaigns, which are named.
func TestQuotaShowSaysWhomItCovers(t *testing.T) {
	d := newDesk(t, "")
	d.run("quota set trial --window 300/1m --rollout 40")
	q, covered, want := delivery.Quota{ID: "trial", Exempt: 60}, 0, []string{"rollout 40%"}
	for i := range 10 {
		id, says := fmt.Sprint("c", i), "no"
		d.run("campaign create " + id + " --rate 10 --quota trial")
		if q.Covers(id) {
			says = "yes"
			covered++
		}
		want = append(want, fmt.Sprintf("%s 10 active 1 %s - - -", id, says))
	}
	d.fields(d.run("quota show trial"), append(want, fmt.Sprintf("covers %d of 10 campaigns", covered))...)
	for _, c := range read[quotaShown](d, "quota show trial").UsedBy {
		if c.Covered != q.Covers(c.ID) {
			t.Errorf("%+v", c)
		}
	}
	if covered == 0 || covered == 10 {
		t.Errorf("%d of 10 are covered: the test shows nothing", covered)
	}
}

// TestQuotaAdjust: the count of one window is set while the others stay; making room has to be asked for, and every change is
// recorded with its reason.
func TestQuotaAdjust(t *testing.T) {
	d := newDesk(t, testservices.FreshRedis(t).Addr)
	d.run("quota set provider --window 300/1m,1000/1h")
	d.spend("provider", 5)
	if said := d.run("quota adjust provider 1h --used 200 --reason", "the contract began earlier"); said !=
		"window 1h of quota provider has counted 200 of 1000 units, and 5 before\n" {
		t.Errorf("%q", said)
	}
	const adjust = "quota adjust provider 1h --used "
	d.refuses(2, adjust+"150 --reason credit", "has counted 200 units, and 150 would make room for 50 more; give lower")
	d.refuses(1, "quota adjust provider 1d --used 150 --reason credit", "has no window of 1d")
	d.refuses(2, adjust+"1001 --reason typo", "is more than window 1h of quota provider allows")
	d.run("quota set capped --per recipient --window 3/1d")
	d.refuses(2, "quota adjust capped 1d --used 2 --reason typo", "quota capped counts each recipient by itself")
	d.refuses(2, adjust+"150", "--reason")
	d.refuses(2, adjust+"-1 --reason credit", "used: expected number >= 0")
	if done := read[view.Adjusted](d, adjust+"150 --lower --reason credit"); done !=
		(view.Adjusted{Quota: "provider", Window: "1h", Limit: 1000, Before: 200, Used: 150}) {
		t.Errorf("%+v", done)
	}
	d.spend("provider", 5)
	if windows := read[quotaShown](d, "quota show provider").Windows; *windows[0].Remaining != 290 || *windows[1].Remaining != 845 {
		t.Errorf("%+v", windows)
	}
	conn := d.database()
	rows := try(conn.Query(t.Context(), `SELECT concat_ws(' ', relation, old->>'span', old->>'used', new->>'used', new->>'reason', who <> '')
FROM pacer.campaign_changes WHERE operation = 'adjust' AND quota_id = 'provider' ORDER BY change`))(t)
	list := try(pgx.CollectRows(rows, pgx.RowTo[string]))(t)
	if want := []string{"quota_windows 01:00:00 5 200 the contract began earlier t", "quota_windows 01:00:00 200 150 credit t"}; !slices.Equal(list, want) {
		t.Errorf("%q", list)
	}
	var units int64
	if err := conn.QueryRow(t.Context(), `SELECT sum(units) FROM pacer.quota_usage WHERE node LIKE 'adjust-%'`).Scan(&units); err != nil || units != 195 {
		t.Errorf("%d units in the ledger, %v", units, err)
	}
	d.run("quota set soft --mode eventual --window 5/1h")
	d.refuses(2, "quota adjust soft 1h --used 1 --reason credit", "the daemons count by themselves")
}

// TestADatabaseOfYesterdayGrantsAgain: a database that was brought back from a backup has lower revisions than the store, which grants
// nothing. After pacer migrate catch-up the quota goes on with its counts.
func TestADatabaseOfYesterdayGrantsAgain(t *testing.T) {
	d := newDesk(t, testservices.FreshRedis(t).Addr)
	d.run("quota set provider --window 10/1h")
	d.exec(`SELECT setval('pacer.revisions', 5000)`,
		`UPDATE pacer.quotas SET revision = revision + 1`) // as many changes as that
	d.spend("provider", 4)

	d.exec(`SET session_replication_role = replica`, // no triggers, as when a backup is brought back
		`UPDATE pacer.quotas SET revision = 2`,
		`SET session_replication_role = DEFAULT`,
		`SELECT setval('pacer.revisions', 2)`)
	d.run("quota set provider --window 20/1h")
	if granted := d.take("provider", 1); granted != 0 {
		t.Fatalf("granted %d", granted)
	}
	d.shows("migrate catch-up", "1 campaigns, quotas and destinations have new revisions")
	d.spend("provider", 16)
	if granted := d.take("provider", 1); granted != 0 {
		t.Error("the counts from before are forgotten")
	}
}

// TestQuotaShowWithoutTheStore: what the catalog says is shown within seconds, with one line about what is missing.
func TestQuotaShowWithoutTheStore(t *testing.T) {
	frozen := testservices.FreshRedis(t)
	frozen.Freeze()
	t.Cleanup(frozen.Thaw)
	for redis, want := range map[string]string{
		frozen.Addr:   "what remains is not known: redis.addrs: the quota store does not answer",
		"127.0.0.1:1": "what remains is not known: redis.addrs: the quota store does not answer",
		"":            "what remains is not known: redis.addrs is not set",
	} {
		d := newDesk(t, redis)
		d.run("quota set provider --window 300/1m")
		started := time.Now()
		shown := d.run("quota show provider")
		if took := time.Since(started); took > 5*time.Second {
			t.Errorf("after %s", took)
		}
		d.fields(shown, "1m 300 - - -")
		if strings.Count(shown, want) != 1 {
			t.Errorf("no %q in\n%s", want, shown)
		}
		view := read[quotaShown](d, "quota show provider")
		if len(view.Windows) != 1 || view.Windows[0].Remaining != nil || view.Windows[0].FullAt != nil || !strings.Contains(view.Unknown, "redis.addrs") {
			t.Errorf("%+v", view)
		}
	}
}

func TestQuotaUsageShowsTheLedger(t *testing.T) {
	d, ctx := newDesk(t, "127.0.0.1:1"), t.Context()
	d.run("quota set provider --window 9/1s,300/1h")
	c := try(catalog.NewPostgres(catalog.Options{DSN: d.dsn}))(t)
	defer c.Close()
	minute := time.Now().Unix()/60 - 60
	try(c.ReplaceEpoch(ctx, 0, 0, delivery.Incarnation{Epoch: 1}, "test"))(t)
	try(c.WriteTaken(ctx, 0, 1, 0, minute*60_000_000, []delivery.Taken{{Quota: "provider", Born: 1, Units: 120, Held: 120}}, nil))(t)
	const last3h = "quota usage provider --last 3h --step 30m"
	d.run("quota set new --window 9/1h")
	if unused := d.run("quota usage new"); strings.Count(unused, "\n") != 2 || !strings.HasPrefix(unused, "no use of quota new is known since 20") {
		t.Errorf("%q", unused)
	}
	at := time.Unix(60*minute, 0).UTC().Truncate(30 * time.Minute).Format(time.RFC3339)
	table := d.run(last3h)
	d.fields(table, "FROM UNITS LEDGER LEAVES OF 9/1s LEDGER LEAVES OF 300/1h", at+" 120 - 180",
		"the ledger leaves too little where quota adjust has added units, which count in all windows here, or taken some away, which still count: "+
			"pacer quota show has what is left; what is older than a day is kept by the hour")
	if lines := strings.Split(table, "\n"); !strings.HasPrefix(lines[1], at) {
		t.Errorf("the time before the first use is shown: %s", table)
	}
	answer := read[quotaUsage](d, last3h)
	var units int64
	for _, s := range answer.Steps {
		units += s.Units
	}
	if units != 120 || answer.Quota != "provider" || answer.Step != "30m" || len(answer.Steps) < 6 || len(answer.Steps) > 8 {
		t.Errorf("%+v", answer)
	}
}

// TestQuotaUsageSaysWhatItDoesNotKnow: a quota without kept usage must not look unused.
func TestQuotaUsageSaysWhatItDoesNotKnow(t *testing.T) {
	window := func(span time.Duration) []view.Window { return []view.Window{{Seconds: 1}, {Seconds: span.Seconds()}} }
	for _, c := range []struct {
		quota view.Quota
		want  string
	}{
		{view.Quota{Mode: delivery.ModeStrict, Rollout: 100, Windows: window(time.Hour)}, "older than a day"},
		{view.Quota{Mode: delivery.ModeShadow, Rollout: 1, Windows: window(121 * time.Second)}, "older than a day"},
		{view.Quota{Mode: delivery.ModeStrict, Rollout: 100, Windows: window(2 * time.Minute)}, "longer than 2 minutes"},
		{view.Quota{Mode: delivery.ModeStrict, Rollout: 100}, "longer than 2 minutes"},
		{view.Quota{Mode: delivery.ModeStrict, Windows: window(time.Hour)}, "rollout of 0"},
		{view.Quota{Mode: delivery.ModeEventual, Rollout: 100, Windows: window(time.Hour)}, "mode eventual"},
	} {
		if got := usageNote(&c.quota); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.quota, got, c.want)
		}
	}
}
