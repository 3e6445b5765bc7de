package catalog

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestWindowsAndLinksNumberTheirRows: changes of windows and links number their quotas and campaigns, and no others.
func TestWindowsAndLinksNumberTheirRows(t *testing.T) {
	_, conn := fresh(t)
	run(t, conn, `INSERT INTO pacer.campaigns (id) SELECT 'c' || g FROM generate_series(1, 9) g`)
	run(t, conn, `INSERT INTO pacer.quotas (id) SELECT 'q' || g FROM generate_series(1, 20) g`)
	run(t, conn, `INSERT INTO pacer.quota_windows (quota_id, span, max_units) SELECT 'q' || g, '1 minute', 5 FROM generate_series(1, 20) g`)
	equal(t, "records", value[int](t, conn, `SELECT count(*) FROM pacer.campaign_changes WHERE quota_id = 'q4'`), 2)
	for _, c := range []struct{ change, table, anew string }{
		{`UPDATE pacer.quota_windows SET max_units = 6 WHERE quota_id IN ('q1', 'q2')`, "quotas", "q1 q2"},
		{`UPDATE pacer.quota_windows SET max_units = CASE quota_id WHEN 'q4' THEN 7 ELSE max_units END`, "quotas", "q4"},
		{`UPDATE pacer.quota_windows SET max_units = max_units`, "quotas", ""},
		{`UPDATE pacer.quota_windows SET quota_id = 'q6', span = '1 hour' WHERE quota_id = 'q5'`, "quotas", "q5 q6"},
		{`INSERT INTO pacer.quota_windows (quota_id, span, max_units) VALUES ('q5', '1 day', 9), ('q7', '1 day', 9)`, "quotas", "q5 q7"},
		{`DELETE FROM pacer.quota_windows WHERE span = '1 day'`, "quotas", "q5 q7"},
		{`DELETE FROM pacer.quota_windows WHERE span = '3 days'`, "quotas", ""},
		{`INSERT INTO pacer.campaign_quotas (campaign_id, quota_id) SELECT 'c' || g, 'q1' FROM generate_series(1, 3) g`, "campaigns", "c1 c2 c3"},
		{`UPDATE pacer.campaign_quotas SET campaign_id = 'c4' WHERE campaign_id = 'c3'`, "campaigns", "c3 c4"},
		{`UPDATE pacer.campaign_quotas SET quota_id = 'q2' WHERE campaign_id = 'c1'`, "campaigns", "c1"},
		{`DELETE FROM pacer.campaign_quotas WHERE campaign_id <> 'c1'`, "campaigns", "c2 c4"},
		{`DELETE FROM pacer.quotas WHERE id = 'q2'`, "campaigns", "c1"},
	} {
		seen := value[int64](t, conn, `SELECT last_value FROM pacer.revisions`)
		run(t, conn, c.change)
		anew := `SELECT coalesce(string_agg(id, ' ' ORDER BY id), '') FROM pacer.` + c.table + ` WHERE revision > $1`
		equal(t, "new revisions after "+c.change, value[string](t, conn, anew, seen), c.anew)
	}
}

// TestAQuotaThatChangesItsStoreNumbersItsCampaigns: their slots move to another shard, if there are several.
func TestAQuotaThatChangesItsStoreNumbersItsCampaigns(t *testing.T) {
	_, conn := fresh(t)
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('linked'), ('other')`)
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('q')`)
	run(t, conn, `INSERT INTO pacer.campaign_quotas (campaign_id, quota_id) VALUES ('linked', 'q')`)
	for _, c := range []struct{ change, anew string }{
		{`UPDATE pacer.quotas SET mode = 'eventual'`, ""},
		{`UPDATE pacer.store SET shards = 2`, ""},
		{`UPDATE pacer.quotas SET mode = 'strict'`, "linked"},
		{`UPDATE pacer.quotas SET mode = 'shadow'`, ""},
		{`UPDATE pacer.quotas SET mode = 'eventual'`, "linked"},
	} {
		seen := value[int64](t, conn, `SELECT last_value FROM pacer.revisions`)
		run(t, conn, c.change)
		anew := `SELECT coalesce(string_agg(id, ' ' ORDER BY id), '') FROM pacer.campaigns WHERE revision > $1`
		equal(t, "new revisions after "+c.change, value[string](t, conn, anew, seen), c.anew)
	}
}

// TestShards: new quotas are spread over the shards there are, stay where they are, and hold their shard. Daemons and the check see what the
// database is set up for.
func TestShards(t *testing.T) {
	dsn, conn := fresh(t)
	a, ctx := adminOf(t, dsn), t.Context()
	p := started(t, Options{DSN: dsn})
	changed := p.Subscribe()
	place := func(prefix string) (perShard [4]int) {
		t.Helper()
		for i := range 40 {
			row := try(a.quota(ctx, fmt.Sprintf("%s%d", prefix, i), QuotaChange{}))(t)
			perShard[row.Shard]++
		}
		return perShard
	}
	equal(t, "on one shard", place("one"), [4]int{40})
	equal(t, "a new database", p.Snapshot().Installation, delivery.Installation{Shards: 1})
	m, four := migrator(t, dsn), delivery.Installation{Cluster: "A", Group: "pacer", Prefix: "pacer.", Shards: 4}
	must(t, m.Install(ctx, four))
	eventually(t, "the catalog has it", func() bool { return p.Snapshot().Installation == four })
	equal(t, "what is found", try(Check(ctx, dsn, Renewal{}))(t).Installation, four)
	if got := place("four"); slices.Min(got[:]) < 3 {
		t.Errorf("on four shards: %v", got)
	}
	run(t, conn, `INSERT INTO pacer.quotas (id, shard) VALUES ('chosen', 3)`)
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('placed')`)
	s := await(t, p, changed, "all quotas", func(s *delivery.Snapshot) bool { return s.Quotas["placed"] != nil })
	for _, row := range try(listQuotas(ctx, a))(t) {
		q := s.Quotas[row.ID]
		if q == nil || q.Shard != row.Shard || strings.HasPrefix(row.ID, "one") && q.Shard != 0 || row.ID == "chosen" && q.Shard != 3 {
			t.Errorf("%+v; the row says shard %d", q, row.Shard)
		}
	}
	line(t, m.Install(ctx, delivery.Installation{Shards: 3}), ErrInvalid, "there are quotas on shard 3: Use at least 4")
	line(t, m.Install(ctx, delivery.Installation{Shards: 1025}), ErrInvalid, "must not be 1025: Use 1 to 1024")
	must(t, m.Install(ctx, delivery.Installation{Shards: 6}))
}

// TestAKeyMayBeHeldForEver, or to a year that few can write, and what is set for others is read as well.
func TestAKeyMayBeHeldForEver(t *testing.T) {
	dsn, conn := fresh(t)
	ctx := t.Context()
	run(t, conn, `INSERT INTO pacer.quotas (id, per) VALUES ('cap', 'to')`)
	run(t, conn, `INSERT INTO pacer.quota_windows VALUES ('cap', '1 day', 5)`)
	run(t, conn, `INSERT INTO pacer.quota_keys (quota_id, key, windows, held_until) VALUES
('cap', '1', null, 'infinity'), ('cap', '2', null, '20000-01-01'), ('cap', '3', null, '-infinity'), ('cap', '1234', '1/1d', null)`)
	p := unstarted(t, Options{DSN: dsn})
	keys, late := loaded(t, p, true).Quotas["cap"].Keys, time.Now().AddDate(1000, 0, 0)
	if !keys["1"].HeldUntil.After(late) || !keys["2"].HeldUntil.After(late) || !keys["3"].HeldUntil.IsZero() || len(keys["1234"].Windows) != 1 {
		t.Errorf("%+v", keys)
	}
	if q := try(adminOf(t, dsn).GetKeyed(ctx, "cap", "1"))(t); !q.Keys["1"].HeldUntil.After(late) {
		t.Errorf("%+v", q.Keys)
	}
}

// TestTheQuotasOfACampaignLiveInOneShard: what would divide them is refused, whichever way it comes.
func TestTheQuotasOfACampaignLiveInOneShard(t *testing.T) {
	dsn, conn := fresh(t)
	a, ctx := adminOf(t, dsn), t.Context()
	run(t, conn, `UPDATE pacer.store SET shards = 4`)
	run(t, conn, `INSERT INTO pacer.quotas (id, shard, mode) VALUES
('a', 1, 'strict'), ('b', 2, 'shadow'), ('c', 1, 'strict'), ('d', 2, 'strict'), ('soft', 3, 'eventual')`)
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('spring'), ('autumn')`)
	run(t, conn, `INSERT INTO pacer.campaign_quotas VALUES ('spring', 'a'), ('spring', 'c'), ('spring', 'soft'), ('autumn', 'b')`)
	const several, remedy = " would live in several shards of the store: a in shard 1, ", ": Create the quotas of a campaign in one shard"
	for statement, want := range map[string]string{
		`INSERT INTO pacer.campaign_quotas VALUES ('spring', 'b')`:                             "'spring'" + several + "b in shard 2, c in shard 1",
		`INSERT INTO pacer.campaign_quotas VALUES ('autumn', 'a'), ('autumn', 'soft')`:         "'autumn'" + several + "b in shard 2",
		`INSERT INTO pacer.campaign_quotas VALUES ('autumn', 'd'), ('spring', 'd')`:            "'spring'" + several + "c in shard 1, d in shard 2",
		`UPDATE pacer.campaign_quotas SET quota_id = 'd' WHERE quota_id = 'soft'`:              "a in shard 1, c in shard 1, d in shard 2",
		`UPDATE pacer.campaign_quotas SET quota_id = 'd' WHERE quota_id = 'a'`:                 "c in shard 1, d in shard 2",
		`UPDATE pacer.campaign_quotas SET campaign_id = 'autumn' WHERE quota_id IN ('a', 'c')`: "a in shard 1, b in shard 2, c in shard 1",
		`UPDATE pacer.quotas SET mode = 'strict' WHERE id = 'soft'`:                            "a in shard 1, c in shard 1, soft in shard 3",
	} {
		_, err := conn.Exec(ctx, statement)
		line(t, explain(err), ErrInvalid, want)
		line(t, explain(err), ErrInvalid, remedy)
	}
	refused(t, ErrInvalid, remedy)(a.edited(ctx, "spring", CampaignChange{Quotas: &[]string{"a", "b"}}))
	// All links may be replaced by those to another shard, in one statement too.
	run(t, conn, `UPDATE pacer.campaign_quotas SET quota_id = CASE quota_id WHEN 'a' THEN 'b' ELSE 'd' END
WHERE campaign_id = 'spring' AND quota_id IN ('a', 'c')`)
	equal(t, "quotas", try(a.edited(ctx, "spring", CampaignChange{Quotas: &[]string{"a", "c"}}))(t).Quotas, []string{"a", "c"})
	for i := range 20 {
		equal(t, "shard", try(a.quota(ctx, fmt.Sprintf("new%d", i), QuotaChange{With: new("d")}))(t).Shard, 2)
	}
	equal(t, "shard", try(a.quota(ctx, "new0", QuotaChange{With: new("b")}))(t).Shard, 2)
	refused(t, ErrInvalid, "quotas.shard is fixed when the quota is created")(a.quota(ctx, "new0", QuotaChange{With: new("a")}))
	refused(t, ErrNotFound, "quota nothing does not exist")(a.quota(ctx, "other", QuotaChange{With: new("nothing")}))
}
