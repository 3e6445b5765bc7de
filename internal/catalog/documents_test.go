package catalog

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// statement finds SQL between backticks, in lines of their own, and as an argument of psql. Where a page writes …, it means the table of
	// the statement before.
	statement = regexp.MustCompile("`((?:SELECT|UPDATE|INSERT|DELETE|… SET) [^`]+)`|(?m:^ {4}((?:SELECT|UPDATE|INSERT|DELETE) .*)$)|psql -c (?:'([^']*)'|\"([^\"]*)\")")
	updated   = regexp.MustCompile(`^UPDATE (pacer\.\w+) `)
)

// TestTheStatementsOfDocumentsWork runs the SQL of all documents on a database with the campaign, the quota and the destination that they
// name, each by itself. Blocks of their own run with the granted rights: see test/secure_test.go.
func TestTheStatementsOfDocumentsWork(t *testing.T) {
	t.Parallel()
	pages := []string{"../../README.md", "../../SECURITY.md"}
	for _, pattern := range []string{"../../docs/*.md", "../../docs/howto/*.md", "../../docs/operations/*.md", "../../docs/sinks/*.md"} {
		pages = append(pages, try(filepath.Glob(pattern))(t)...)
	}
	conn := connected(t, migrated(t))
	run(t, conn, `INSERT INTO pacer.quotas (id) VALUES ('provider')`)
	run(t, conn, `INSERT INTO pacer.quota_windows (quota_id, span, max_units) VALUES ('provider', '1 minute', 300)`)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('spring', 50)`)
	run(t, conn, `INSERT INTO pacer.destinations (id, url) VALUES ('shop-7', 'https://shop-7.example/hook')`)
	done := 0
	for _, name := range pages {
		page := try(os.ReadFile(name))(t)
		table := ""
		for _, match := range statement.FindAllStringSubmatch(string(page), -1) {
			sql := strings.Join(strings.Fields(strings.Join(match[1:], "")), " ")
			sql, _, _ = strings.Cut(sql, "; --")
			if m := updated.FindStringSubmatch(sql); m != nil {
				table = m[1]
			}
			if set, short := strings.CutPrefix(sql, "… "); short {
				id := map[string]string{"pacer.campaigns": "spring", "pacer.destinations": "shop-7"}[table]
				sql = "UPDATE " + table + " " + strings.TrimSuffix(set, " …") + " WHERE id = '" + id + "'"
			}
			if strings.HasPrefix(sql, "INSERT INTO pacer.destinations ") {
				sql = "DELETE FROM pacer.destinations; " + sql
			}
			run(t, conn, `BEGIN`)
			if _, err := conn.Exec(t.Context(), sql); err != nil {
				t.Errorf("%s: %s: %v", name, sql, err)
			}
			run(t, conn, `ROLLBACK`)
			done++
		}
	}
	if done < 15 {
		t.Errorf("%d statements; the test looks at the wrong thing", done)
	}
}
