package catalog

import (
	"strings"
	"testing"
)

// TestAChangedDestinationBeginsAnew: since when it has failed is forgotten with anything that changes what is sent, or where.
func TestAChangedDestinationBeginsAnew(t *testing.T) {
	_, conn := fresh(t)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('shop', 'https://a.example/')`)
	const renewed = `SELECT renewed FROM pacer.destinations WHERE id = 'shop'`
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
		was := value[int](t, conn, renewed)
		run(t, conn, `UPDATE pacer.destinations SET failing_since = '2026-11-01' WHERE id = 'shop'`)
		run(t, conn, `UPDATE pacer.destinations SET `+c.change+` WHERE id = 'shop'`)
		anew := value[bool](t, conn, `SELECT failing_since IS NULL FROM pacer.destinations WHERE id = 'shop'`)
		if n := value[int](t, conn, renewed) - was; anew != c.anew || n != 1 && anew || n != 0 && !anew {
			t.Errorf("%s: it begins anew: %t, %d times", c.change, anew, n)
		}
	}
}

// TestNobodyButTheSchemaNumbersARow: an update by a user's own trigger that sets a revision does nothing but number the row, in its turn.
func TestNobodyButTheSchemaNumbersARow(t *testing.T) {
	_, conn := fresh(t)
	run(t, conn, `CREATE TEMP TABLE others (id text)`)
	run(t, conn, `CREATE FUNCTION pg_temp.change() RETURNS trigger LANGUAGE plpgsql AS
$$ BEGIN UPDATE pacer.destinations SET revision = 7, url = 'not an address' WHERE id = NEW.id; RETURN NEW; END $$`)
	run(t, conn, `CREATE TRIGGER change BEFORE INSERT ON others FOR EACH ROW EXECUTE FUNCTION pg_temp.change()`)
	run(t, conn, `BEGIN`)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('shop', 'https://a.example/')`)
	run(t, conn, `INSERT INTO others VALUES ('shop')`)
	run(t, conn, `COMMIT`)
	row := value[string](t, conn, `SELECT concat_ws(' ', url, revision = (SELECT last_value FROM pacer.revisions),
(SELECT count(*) FROM pacer.campaign_changes)) FROM pacer.destinations`)
	equal(t, "the address, whether it was numbered last, and records", row, "https://a.example/ t 1")
}

// TestWrongAddressesOfDestinations: the part of an address that is wrong is named, and no secret in it repeated.
func TestWrongAddressesOfDestinations(t *testing.T) {
	for url, want := range map[string]string{
		"ftp://hunter22.example/x":      "url: must begin with https:// or http://, such as https://",
		"127.0.0.1:9/x":                 "url: must begin with https:// or http://",
		"HTTPS://a.example/":            "url: must begin with https:// or http://",
		"":                              "url: must begin with https:// or http://",
		"https://u:hunter22@a.example/": "url: must have no user",
		"https://":                      "url: names no host",
		"https:///x":                    "url: names no host",
		"https://a.example/#hunter22":   "url: must have no fragment",
		"https://a.example/hunter 22":   "url: must be printable ASCII without spaces",
		"https://пример.example/":       "url: must be printable ASCII without spaces",
		"https://a.example/" + strings.Repeat("x", 2048): "url: 2066 characters are more than 2048",
		"https://a.example/a@b?c=d@e":                    "",
		"http://[::1]:9?x":                               "",
	} {
		err := (&DestinationChange{URL: &url}).check()
		if want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "hunter")) {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}
