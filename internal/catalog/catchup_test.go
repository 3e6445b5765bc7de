package catalog

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestADatabaseOfYesterdayCatchesUp: everything gets a revision above those that were seen, so that changes act, also for
// daemons that have read the newer database; what was not there yesterday is gone. Other databases stay as they are.
func TestADatabaseOfYesterdayCatchesUp(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	conn := connected(t, dsn)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('c', 1), ('of-today', 1)`)
	p := started(t, Options{DSN: dsn, PollInterval: time.Hour})
	if _, err := p.Admin().SetQuota(ctx, "q", QuotaChange{Windows: &[]delivery.Window{{Span: time.Minute, Limit: 5}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Admin().SetCampaign(ctx, "c", CampaignChange{Quotas: &[]string{"q"}}); err != nil {
		t.Fatal(err)
	}
	changed := p.Subscribe()
	linked := func(s *delivery.Snapshot) bool { return len(s.Campaigns) == 2 && len(s.Campaign("c").Quotas) == 1 }
	before := await(t, p, changed, "a link", linked)
	if behind, err := p.CatchUp(ctx, before.Revision); err != nil || behind {
		t.Fatalf("nothing was brought back: behind %t, %v", behind, err)
	}

	const seen = 5000
	run(t, conn, `SET session_replication_role = replica`) // no triggers, as when a backup is brought back
	run(t, conn, `DELETE FROM pacer.campaigns WHERE id = 'of-today'`)
	run(t, conn, `UPDATE pacer.campaigns SET revision = 1`)
	run(t, conn, `UPDATE pacer.quotas SET revision = 2`)
	run(t, conn, `SET session_replication_role = DEFAULT`)
	run(t, conn, `SELECT setval('pacer.revisions', 2)`)
	if behind, err := p.CatchUp(ctx, seen); err != nil || !behind {
		t.Fatalf("behind %t, %v", behind, err)
	}
	after := await(t, p, changed, "new revisions", func(s *delivery.Snapshot) bool { return s.Campaign("of-today") == nil })
	if c := after.Campaign("c"); c.Revision <= seen || c.Quotas[0].Revision <= seen {
		t.Errorf("revisions %d and %d", c.Revision, c.Quotas[0].Revision)
	}
	if behind, err := p.CatchUp(ctx, seen); err != nil || behind {
		t.Errorf("once more: behind %t, %v", behind, err)
	}
	run(t, conn, setRate, "c", 7)
	await(t, p, changed, "a change", func(s *delivery.Snapshot) bool { return s.Campaign("c").Rate == delivery.PerSecond(7) })

	if _, err := p.CatchUp(ctx, 1<<50); err == nil {
		t.Error("a revision out of all reason is believed")
	}
	reader, readerDSN := role(t, conn, dsn, "reader")
	run(t, conn, `GRANT USAGE ON SCHEMA pacer TO `+reader)
	if _, err := connected(t, readerDSN).Exec(ctx, `SELECT pacer.catch_up(10000)`); err == nil {
		t.Error("somebody who is no daemon changes all revisions")
	}
}
