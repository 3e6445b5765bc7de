package catalog

import (
	"strings"
	"testing"
)

// TestQuotasAreNumberedTogether: rows get final revisions at the commit of their transaction. Each row is recorded once, also if it
// changes twice. Changes of windows and links number their quotas and campaigns.
func TestQuotasAreNumberedTogether(t *testing.T) {
	t.Parallel()
	conn := connected(t, migrated(t))
	ask := func(query string, args ...any) (n int64) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), query, args...).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	run(t, conn, `INSERT INTO pacer.campaigns (id) SELECT 'c' || g FROM generate_series(1, 9) g`)
	run(t, conn, `BEGIN`)
	run(t, conn, `INSERT INTO pacer.quotas (id) SELECT 'q' || g FROM generate_series(1, 20) g`)
	run(t, conn, `INSERT INTO pacer.quota_windows (quota_id, span, max_units) SELECT 'q' || g, '1 minute', 5 FROM generate_series(1, 20) g`)
	run(t, conn, `UPDATE pacer.quotas SET mode = 'shadow' WHERE id = 'q3'`)
	run(t, conn, `UPDATE pacer.quotas SET revision = 1`)
	run(t, conn, `COMMIT`)
	for query, want := range map[string]int64{
		`SELECT count(DISTINCT revision) FROM pacer.quotas WHERE revision > (SELECT max(revision) FROM pacer.campaigns)`: 20,
		`SELECT count(*) FROM pacer.quotas WHERE revision > (SELECT last_value FROM pacer.revisions)`:                    0,
		`SELECT count(*) FROM pacer.campaign_changes WHERE quota_id = 'q3' AND relation = 'quotas'`:                      2,
		`SELECT count(*) FROM pacer.campaign_changes WHERE quota_id = 'q4' AND relation = 'quotas'`:                      1,
		`SELECT count(*) FROM pacer.campaign_changes WHERE quota_id = 'q4' AND relation = 'quota_windows'`:               1,
		`SELECT count(*) FROM pacer.campaign_changes WHERE quota_id IS NOT NULL AND relation = 'quotas' AND old IS NULL`: 20,
	} {
		if n := ask(query); n != want {
			t.Errorf("%s: %d, want %d", query, n, want)
		}
	}
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
		seen := ask(`SELECT last_value FROM pacer.revisions`)
		run(t, conn, c.change)
		var anew string
		err := conn.QueryRow(t.Context(), `SELECT coalesce(string_agg(id, ' ' ORDER BY id), '') FROM pacer.`+c.table+` WHERE revision > $1`, seen).Scan(&anew)
		if err != nil || anew != c.anew {
			t.Errorf("%s: new revisions of %q, want %q, %v", c.change, anew, c.anew, err)
		}
	}
}

// TestLinksOfAStatementStayInOneShard: all links of a statement are looked at, and those of quotas that no shard counts do not matter.
func TestLinksOfAStatementStayInOneShard(t *testing.T) {
	t.Parallel()
	conn := connected(t, migrated(t))
	run(t, conn, `UPDATE pacer.store SET shards = 2`)
	run(t, conn, `INSERT INTO pacer.campaigns (id) SELECT 'c' || g FROM generate_series(1, 9) g`)
	run(t, conn, `INSERT INTO pacer.quotas (id, shard, mode) VALUES ('one', 0, 'strict'), ('other', 1, 'shadow'), ('soft', 1, 'eventual')`)
	run(t, conn, `INSERT INTO pacer.campaign_quotas SELECT 'c' || g, 'one' FROM generate_series(1, 5) g`)
	run(t, conn, `INSERT INTO pacer.campaign_quotas SELECT 'c' || g, 'soft' FROM generate_series(1, 9) g`)
	run(t, conn, `INSERT INTO pacer.campaign_quotas SELECT 'c' || g, 'other' FROM generate_series(6, 8) g`)
	for _, change := range []string{
		`INSERT INTO pacer.campaign_quotas SELECT 'c' || g, 'other' FROM generate_series(5, 9, 4) g`,
		`UPDATE pacer.campaign_quotas SET quota_id = 'other' WHERE campaign_id = 'c5' AND quota_id = 'soft'`,
		`INSERT INTO pacer.campaign_quotas VALUES ('c5', 'other')`,
	} {
		_, err := conn.Exec(t.Context(), change)
		if err == nil || !strings.Contains(err.Error(), "campaign 'c5' would live in several shards of the store: one in shard 0, other in shard 1") {
			t.Errorf("%s: %v", change, err)
		}
	}
}

// TestEachCampaignOfAStatementHasAtMostSixteenQuotas: the statement is refused for any of them.
func TestEachCampaignOfAStatementHasAtMostSixteenQuotas(t *testing.T) {
	t.Parallel()
	conn := connected(t, migrated(t))
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('a'), ('b'), ('c')`)
	run(t, conn, `INSERT INTO pacer.quotas (id) SELECT 'q' || g FROM generate_series(1, 17) g`)
	run(t, conn, `INSERT INTO pacer.campaign_quotas SELECT 'b', 'q' || g FROM generate_series(1, 16) g`)
	_, err := conn.Exec(t.Context(), `INSERT INTO pacer.campaign_quotas SELECT c.id, 'q17' FROM pacer.campaigns c`)
	if err == nil || !strings.Contains(err.Error(), "campaign 'b' has 16 quotas already") {
		t.Error(err)
	}
	run(t, conn, `INSERT INTO pacer.campaign_quotas SELECT c.id, 'q17' FROM pacer.campaigns c WHERE c.id <> 'b'`)
}
