package catalog

import (
	"testing"
)

// TestASequenceBehindItsRows, as that of a database that a logical replica has become, is told of, with what to do.
func TestASequenceBehindItsRows(t *testing.T) {
	dsn, conn := fresh(t)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('c', 1)`)
	var log journal
	p := unstarted(t, Options{DSN: dsn, Logger: log.logger()})
	loaded(t, p, true)
	equal(t, "lines of a sequence that is right", log.count("sequence"), 0)
	run(t, conn, `SELECT setval('pacer.revisions', 1)`)
	loaded(t, p, true)
	equal(t, "lines about the sequence", log.count("the sequence pacer.revisions is behind"), 1)
	equal(t, "behind", try(Check(t.Context(), dsn, Renewal{}))(t).Behind, true)
	try(migrator(t, dsn).CatchUp(t.Context()))(t)
	run(t, conn, setRate, "c", 7)
	equal(t, "the change acts", hasRate("c", 7)(loaded(t, p, false)), true)
	equal(t, "behind", try(Check(t.Context(), dsn, Renewal{}))(t).Behind, false)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('d', 'https://d.example')`)
	run(t, conn, `SELECT setval('pacer.revisions', (SELECT revision - 1 FROM pacer.destinations))`)
	equal(t, "behind a destination", try(Check(t.Context(), dsn, Renewal{}))(t).Behind, true)
}

// TestADatabaseOfYesterdayCatchesUp: a daemon that has read the newer database logs it and what to do. Then everything has a revision above
// those that were seen, so that changes act; what was not there yesterday is gone.
func TestADatabaseOfYesterdayCatchesUp(t *testing.T) {
	dsn, conn := fresh(t)
	ctx := t.Context()
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('c', 1), ('of-today', 1)`)
	var log journal
	p := unstarted(t, Options{DSN: dsn, Logger: log.logger()})
	try(adminOver(p).quota(ctx, "q", QuotaChange{Windows: &[]string{"5/1m"}}))(t)
	try(adminOver(p).edited(ctx, "c", CampaignChange{Quotas: &[]string{"q"}}))(t)
	seen := loaded(t, p, true).Revision
	loaded(t, p, true)
	equal(t, "lines of a database that was not brought back", log.count("older"), 0)

	run(t, conn, `SET session_replication_role = replica`) // no triggers, as when a backup is brought back
	run(t, conn, `DELETE FROM pacer.campaigns WHERE id = 'of-today'`)
	run(t, conn, `UPDATE pacer.campaigns SET revision = 1`)
	run(t, conn, `UPDATE pacer.quotas SET revision = 2`)
	run(t, conn, `UPDATE pacer.revision SET removed = 0`)
	run(t, conn, `SET session_replication_role = DEFAULT`)
	run(t, conn, `SELECT setval('pacer.revisions', 2)`)
	loaded(t, p, true)
	equal(t, "lines about the database", log.count("run pacer migrate catch-up"), 1)
	for range 2 { // again, it does no harm
		equal(t, "rows", try(migrator(t, dsn).CatchUp(ctx))(t), 2)
		s := loaded(t, p, false)
		if c := s.Campaign("c"); s.Campaign("of-today") != nil || c.Revision <= seen || c.Quotas[0].Revision <= seen {
			t.Errorf("after revision %d: %+v", seen, c)
		}
		seen = s.Revision
	}
	run(t, conn, setRate, "c", 7)
	equal(t, "the change acts", hasRate("c", 7)(loaded(t, p, false)), true)
	equal(t, "lines about the database", log.count("older"), 1)
}
