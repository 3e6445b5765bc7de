package catalog

import (
	"fmt"
	"testing"
)

// TestAChangedDestinationBeginsAnew: since when it has failed is forgotten with anything that changes what is sent, or where.
func TestAChangedDestinationBeginsAnew(t *testing.T) {
	t.Parallel()
	conn := connected(t, migrated(t))
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('shop', 'https://a.example/')`)
	renewed := func() (n int) {
		if err := conn.QueryRow(t.Context(), `SELECT renewed FROM pacer.destinations WHERE id = 'shop'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, c := range []struct {
		change string
		anew   bool
	}{
		{`url = 'https://b.example/'`, true},
		{`headers = '{"x-tenant": "blue"}'`, true},
		{`secrets = '{file:new}'`, true},
		{`sink = 'hooks'`, true},
		{`max_in_flight = 3`, false},
		{`headers = headers, secrets = secrets, sink = sink`, false},
		{`renewed = 99`, false},
		{`disabled_at = now()`, false},
		{`disabled_at = NULL`, true},
	} {
		was := renewed()
		run(t, conn, `UPDATE pacer.destinations SET failing_since = '2026-11-01' WHERE id = 'shop'`)
		run(t, conn, `UPDATE pacer.destinations SET `+c.change+` WHERE id = 'shop'`)
		var anew bool
		if err := conn.QueryRow(t.Context(), `SELECT failing_since IS NULL FROM pacer.destinations WHERE id = 'shop'`).Scan(&anew); err != nil {
			t.Fatal(err)
		}
		if n := renewed() - was; anew != c.anew || n != 1 && anew || n != 0 && !anew {
			t.Errorf("%s: it begins anew: %t, %d times", c.change, anew, n)
		}
	}
}

// TestDestinationsAreNumberedTogether: what one transaction changes gets revisions in the order of commits, and is recorded and announced once,
// however many rows it has, and also where it changes a row twice, or another trigger does.
func TestDestinationsAreNumberedTogether(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	early, late := connected(t, dsn), connected(t, dsn)
	ask := func(query string) (n int64) {
		t.Helper()
		if err := early.QueryRow(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	run(t, late, `BEGIN`)
	run(t, late, `INSERT INTO pacer.destinations (id, url) SELECT 'late-' || g, 'https://a.example/' FROM generate_series(1, 20) g`)
	run(t, early, `INSERT INTO pacer.destinations (id, url) SELECT 'early-' || g, 'https://a.example/' FROM generate_series(1, 20) g`)
	seen := ask(`SELECT max(revision) FROM pacer.destinations`)
	run(t, late, `UPDATE pacer.destinations SET max_in_flight = 1 WHERE id LIKE 'late-%' AND id < 'late-15'`)
	run(t, late, `UPDATE pacer.destinations SET revision = 1`)
	run(t, late, `CREATE TEMP TABLE others (id text)`)
	run(t, late, `CREATE FUNCTION pg_temp.change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN UPDATE pacer.destinations SET max_in_flight = 7 WHERE id = NEW.id; RETURN NEW; END $$`)
	run(t, late, `CREATE TRIGGER change BEFORE INSERT ON others FOR EACH ROW EXECUTE FUNCTION pg_temp.change()`)
	run(t, late, `INSERT INTO others VALUES ('late-3'), ('early-3')`)
	run(t, late, `COMMIT`)
	for what, c := range map[string]struct {
		query string
		want  int64
	}{
		"rows that a reader of revisions finds": {fmt.Sprintf(`SELECT count(*) FROM pacer.destinations WHERE revision > %d`, seen), 40},
		"different revisions":                   {`SELECT count(DISTINCT revision) FROM pacer.destinations`, 40},
		"revisions below the highest":           {`SELECT count(*) FROM pacer.destinations WHERE revision > (SELECT last_value FROM pacer.revisions)`, 0},
		"records of late-3":                     {`SELECT count(*) FROM pacer.campaign_changes WHERE destination_id = 'late-3'`, 2},
		"records of late-10":                    {`SELECT count(*) FROM pacer.campaign_changes WHERE destination_id = 'late-10'`, 2},
		"records of late-9":                     {`SELECT count(*) FROM pacer.campaign_changes WHERE destination_id = 'late-9'`, 1},
	} {
		if n := ask(c.query); n != c.want {
			t.Errorf("%s: %d, want %d", what, n, c.want)
		}
	}
}

// TestNobodyButTheSchemaNumbersARow: an update by a user's own trigger that sets a revision does nothing but number the row, in its turn.
func TestNobodyButTheSchemaNumbersARow(t *testing.T) {
	t.Parallel()
	conn := connected(t, migrated(t))
	run(t, conn, `CREATE TEMP TABLE others (id text)`)
	run(t, conn, `CREATE FUNCTION pg_temp.change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN UPDATE pacer.destinations SET revision = 7, url = 'not an address' WHERE id = NEW.id; RETURN NEW; END $$`)
	run(t, conn, `CREATE TRIGGER change BEFORE INSERT ON others FOR EACH ROW EXECUTE FUNCTION pg_temp.change()`)
	run(t, conn, `BEGIN`)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('shop', 'https://a.example/')`)
	run(t, conn, `INSERT INTO others VALUES ('shop')`)
	run(t, conn, `COMMIT`)
	var url string
	var numbered bool
	var records int
	err := conn.QueryRow(t.Context(), `SELECT url, revision = (SELECT last_value FROM pacer.revisions), (SELECT count(*) FROM pacer.campaign_changes)
FROM pacer.destinations`).Scan(&url, &numbered, &records)
	if err != nil || url != "https://a.example/" || !numbered || records != 1 {
		t.Errorf("%s, numbered last: %t, %d records, %v", url, numbered, records, err)
	}
}
