package catalog

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestASequenceBehindItsRows, as that of a database that a logical replica has become, is told of, with what to do.
func TestASequenceBehindItsRows(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn := connected(t, dsn)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('c', 1)`)
	var log journal
	p := started(t, Options{DSN: dsn, PollInterval: time.Hour, Logger: log.logger()})
	changed := p.Subscribe()
	equal(t, "lines of a sequence that is right", log.count("sequence"), 0)
	run(t, conn, `SELECT setval('pacer.revisions', 1)`)
	p.request(true)
	eventually(t, "a line about the sequence", func() bool { return log.count("the sequence pacer.revisions is behind") == 1 })
	equal(t, "behind", try(Check(t.Context(), dsn, Renewal{}))(t).Behind, true)
	try(migrator(t, dsn).CatchUp(t.Context()))(t)
	run(t, conn, setRate, "c", 7)
	await(t, p, changed, "a change", hasRate("c", 7))
	equal(t, "behind", try(Check(t.Context(), dsn, Renewal{}))(t).Behind, false)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('d', 'https://d.example')`)
	run(t, conn, `SELECT setval('pacer.revisions', (SELECT revision - 1 FROM pacer.destinations))`)
	equal(t, "behind a destination", try(Check(t.Context(), dsn, Renewal{}))(t).Behind, true)
}

// TestADatabaseOfYesterdayCatchesUp: a daemon that has read the newer database logs it and what to do. Then everything has a revision above
// those that were seen, so that changes act; what was not there yesterday is gone.
func TestADatabaseOfYesterdayCatchesUp(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	conn := connected(t, dsn)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('c', 1), ('of-today', 1)`)
	var log journal
	p := started(t, Options{DSN: dsn, PollInterval: time.Hour, Logger: log.logger()})
	try(adminOver(p).SetQuota(ctx, "q", QuotaChange{Windows: &[]delivery.Window{{Span: time.Minute, Limit: 5}}}))(t)
	try(adminOver(p).SetCampaign(ctx, "c", CampaignChange{Quotas: &[]string{"q"}}))(t)
	changed := p.Subscribe()
	linked := func(s *delivery.Snapshot) bool { return len(s.Campaigns) == 2 && len(s.Campaign("c").Quotas) == 1 }
	seen := await(t, p, changed, "a link", linked).Revision
	p.request(true)
	run(t, conn, setRate, "c", 2)
	await(t, p, changed, "a change", hasRate("c", 2))
	equal(t, "lines of a database that was not brought back", log.count("older"), 0)

	run(t, conn, `SET session_replication_role = replica`) // no triggers, as when a backup is brought back
	run(t, conn, `DELETE FROM pacer.campaigns WHERE id = 'of-today'`)
	run(t, conn, `UPDATE pacer.campaigns SET revision = 1`)
	run(t, conn, `UPDATE pacer.quotas SET revision = 2`)
	run(t, conn, `UPDATE pacer.revision SET removed = 0`)
	run(t, conn, `SET session_replication_role = DEFAULT`)
	run(t, conn, `SELECT setval('pacer.revisions', 2)`)
	p.request(true)
	eventually(t, "a line about the database", func() bool { return log.count("run pacer migrate catch-up") == 1 })
	for range 2 { // again, it does no harm
		equal(t, "rows", try(migrator(t, dsn).CatchUp(ctx))(t), 2)
		seen = await(t, p, changed, "new revisions", func(s *delivery.Snapshot) bool {
			return s.Campaign("of-today") == nil && s.Campaign("c").Revision > seen && s.Campaign("c").Quotas[0].Revision > seen
		}).Revision
	}
	run(t, conn, setRate, "c", 7)
	await(t, p, changed, "a change", hasRate("c", 7))
	equal(t, "lines about the database", log.count("older"), 1)
}
