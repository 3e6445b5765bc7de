package catalog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// TestShards: new quotas are spread over the shards there are, stay where they are, and hold their shard.
func TestShards(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	a, err := NewAdmin(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	p := started(t, Options{DSN: dsn})
	changed := p.Subscribe()
	place := func(prefix string) (perShard [4]int) {
		t.Helper()
		for i := range 40 {
			row, err := a.SetQuota(ctx, fmt.Sprintf("%s%d", prefix, i), QuotaChange{})
			if err != nil {
				t.Fatal(err)
			}
			perShard[row.Shard]++
		}
		return perShard
	}
	if got := place("one"); got != [4]int{40} {
		t.Errorf("on one shard: %v", got)
	}
	m, err := NewMigrator(dsn)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Install(ctx, delivery.Installation{Shards: 4}); err != nil {
		t.Fatal(err)
	}
	if got := place("four"); slices.Min(got[:]) < 3 {
		t.Errorf("on four shards: %v", got)
	}
	conn := connected(t, dsn)
	run(t, conn, `INSERT INTO pacer.quotas (id, shard) VALUES ('chosen', 3)`)
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('placed')`)
	s := await(t, p, changed, "all quotas", func(s *delivery.Snapshot) bool { return s.Quotas["placed"] != nil })
	for i := range 40 {
		if q := s.Quotas[fmt.Sprintf("one%d", i)]; q == nil || q.Shard != 0 {
			t.Fatalf("a quota has moved: %+v", q)
		}
	}
	rows, err := listQuotas(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows {
		if q := s.Quotas[rows[i].ID]; q == nil || q.Shard != rows[i].Shard {
			t.Errorf("%+v; the row says shard %d", q, rows[i].Shard)
		}
	}
	if s.Quotas["chosen"].Shard != 3 {
		t.Errorf("%+v", s.Quotas["chosen"])
	}
	line(t, m.Install(ctx, delivery.Installation{Shards: 3}), ErrInvalid, "there are quotas on shard 3: Use at least 4")
	line(t, m.Install(ctx, delivery.Installation{Shards: 1025}), ErrInvalid, "must not be 1025: Use 1 to 1024")
	if err := m.Install(ctx, delivery.Installation{Shards: 6}); err != nil {
		t.Error(err)
	}
}

// TestTheQuotasOfACampaignLiveInOneShard: what would divide them is refused, whichever way it comes.
func TestTheQuotasOfACampaignLiveInOneShard(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	a, err := NewAdmin(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	conn := connected(t, dsn)
	run(t, conn, `UPDATE pacer.store SET shards = 4`)
	run(t, conn, `INSERT INTO pacer.quotas (id, shard, mode) VALUES
('a', 1, 'strict'), ('b', 2, 'shadow'), ('c', 1, 'strict'), ('d', 2, 'strict'), ('soft', 3, 'eventual')`)
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('spring'), ('autumn')`)
	run(t, conn, `INSERT INTO pacer.campaign_quotas VALUES ('spring', 'a'), ('spring', 'c'), ('spring', 'soft'), ('autumn', 'b')`)
	const remedy = "Create the quotas of a campaign in one shard"
	for statement, want := range map[string]string{
		`INSERT INTO pacer.campaign_quotas VALUES ('spring', 'b')`:                             "'spring' would live in several shards of the store: a in shard 1, b in shard 2, c in shard 1",
		`INSERT INTO pacer.campaign_quotas VALUES ('autumn', 'a'), ('autumn', 'soft')`:         "'autumn' would live in several shards of the store: a in shard 1, b in shard 2",
		`UPDATE pacer.campaign_quotas SET quota_id = 'd' WHERE quota_id = 'a'`:                 "c in shard 1, d in shard 2",
		`UPDATE pacer.campaign_quotas SET campaign_id = 'autumn' WHERE quota_id IN ('a', 'c')`: "a in shard 1, b in shard 2, c in shard 1",
		`UPDATE pacer.quotas SET mode = 'strict' WHERE id = 'soft'`:                            "a in shard 1, c in shard 1, soft in shard 3",
	} {
		_, err := conn.Exec(ctx, statement)
		line(t, explain(err), ErrInvalid, want)
		line(t, explain(err), ErrInvalid, remedy)
	}
	_, err = a.SetCampaign(ctx, "spring", CampaignChange{Quotas: &[]string{"a", "b"}})
	line(t, err, ErrInvalid, remedy)
	// All links may be replaced by those to another shard, in one statement too.
	run(t, conn, `UPDATE pacer.campaign_quotas SET quota_id = CASE quota_id WHEN 'a' THEN 'b' ELSE 'd' END
WHERE campaign_id = 'spring' AND quota_id IN ('a', 'c')`)
	row, err := a.SetCampaign(ctx, "spring", CampaignChange{Quotas: &[]string{"a", "c"}})
	if err != nil || !slices.Equal(row.Quotas, []string{"a", "c"}) {
		t.Errorf("%+v, %v", row, err)
	}
	with := func(id string) *string { return &id }
	for i := range 20 {
		q, err := a.SetQuota(ctx, fmt.Sprintf("new%d", i), QuotaChange{With: with("d")})
		if err != nil || q.Shard != 2 {
			t.Fatalf("%+v, %v", q, err)
		}
	}
	if q, err := a.SetQuota(ctx, "new0", QuotaChange{With: with("b")}); err != nil || q.Shard != 2 {
		t.Errorf("%+v, %v", q, err)
	}
	_, err = a.SetQuota(ctx, "new0", QuotaChange{With: with("a")})
	line(t, err, ErrInvalid, "quota new0 lives in shard 2, quota a in shard 1")
	_, err = a.SetQuota(ctx, "other", QuotaChange{With: with("nothing")})
	line(t, err, ErrNotFound, "quota nothing does not exist")
}
