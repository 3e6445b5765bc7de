package catalog

import (
	"fmt"
	"slices"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// TestShards: new quotas are spread over the shards there are, stay where they are, and hold their shard.
func TestShards(t *testing.T) {
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
	if err := a.SetShards(ctx, 4); err != nil {
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
	rows, err := a.ListQuotas(ctx)
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
	line(t, a.SetShards(ctx, 3), ErrInvalid, "there are quotas on shard 3: Use at least 4")
	line(t, a.SetShards(ctx, 0), ErrInvalid, "must not be 0: Use 1 to 1024")
	if err := a.SetShards(ctx, 6); err != nil {
		t.Error(err)
	}
}

// TestSetShardsAgainWaitsForNobody: daemons set it as they start, also while a person's transaction is open.
func TestSetShardsAgainWaitsForNobody(t *testing.T) {
	dsn := migrated(t)
	conn := connected(t, dsn)
	run(t, conn, `BEGIN`)
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('q')`)
	a, err := NewAdmin(dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	if err := a.SetShards(t.Context(), 1); err != nil {
		t.Error(err)
	}
	run(t, conn, `ROLLBACK`)
}
