package catalog

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

var update = flag.Bool("update", false, "write docs/reference/tables.md")

const tablesHead = `# Tables

Generated from a migrated database by ` + "`make reference`" + `: the schema ` + "`pacer`" + ` of PostgreSQL. SQL is an interface like the commands:
columns of ` + "`campaigns`, `quotas`, `quota_windows`, `quota_keys`, `campaign_quotas` and `destinations`" + ` may be written, and a row that
makes no sense is refused with a hint. pacer writes the other tables. [Day by day](../operations/day-by-day.md) has examples.
`

// internalTables are of no use to people: the page names them only.
var internalTables = []string{"campaign_history", "positions", "quota_anchors", "quota_counts", "replays", "revision", "store", "store_incarnations", "store_takers"}

// tablesQuery lists what there is, in the order of the page: the columns of each table and view, then the functions with a comment.
const tablesQuery = `
SELECT c.relname, coalesce(obj_description(c.oid, 'pg_class'), ''), a.attname, format_type(a.atttypid, a.atttypmod)
        || CASE WHEN c.relkind <> 'v' AND NOT a.attnotnull THEN ', null' ELSE '' END,
    CASE WHEN a.attgenerated <> '' THEN 'generated'
        WHEN a.attidentity <> '' THEN 'a number of its own'
        ELSE coalesce(pg_get_expr(d.adbin, d.adrelid), '') END,
    EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary AND a.attnum = ANY (i.indkey)),
    coalesce(col_description(c.oid, a.attnum), '')
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relnamespace = 'pacer'::regnamespace AND c.relkind IN ('r', 'v', 'p') AND c.relname <> $1
ORDER BY c.relname, a.attnum`

const functionsQuery = `
SELECT format('%s(%s) RETURNS %s', proname, pg_get_function_arguments(oid), pg_get_function_result(oid)), obj_description(oid, 'pg_proc')
FROM pg_proc WHERE pronamespace = 'pacer'::regnamespace AND obj_description(oid, 'pg_proc') IS NOT NULL ORDER BY 1`

// TestThePageOfTablesIsWhatMigrationsMake compares docs/reference/tables.md with a migrated database. Each table and column has a comment.
func TestThePageOfTablesIsWhatMigrationsMake(t *testing.T) {
	_, conn := fresh(t)
	page, own := bytes.NewBufferString(tablesHead), &bytes.Buffer{}
	var table, about, column, kind, preset, comment, last string
	var key bool
	each(t, conn, tablesQuery, []any{versionTable[len("pacer."):]}, []any{&table, &about, &column, &kind, &preset, &key, &comment}, func() {
		if table != last {
			if about == "" {
				t.Errorf("pacer.%s has no comment", table)
			}
			if last = table; slices.Contains(internalTables, table) {
				fmt.Fprintf(own, "| `%s` | %s |\n", table, about)
			} else {
				fmt.Fprintf(page, "\n## %s\n\n%s.\n\n| column | type | default | meaning |\n| --- | --- | --- | --- |\n", table, strings.ToUpper(about[:min(1, len(about))])+about[min(1, len(about)):])
			}
		}
		if comment == "" {
			t.Errorf("pacer.%s.%s has no comment", table, column)
		}
		if slices.Contains(internalTables, table) {
			return
		}
		if key {
			column = "**" + column + "**"
		}
		if preset != "" {
			preset = "`" + preset + "`"
		}
		fmt.Fprintf(page, "| %s | %s | %s | %s |\n", column, kind, preset, comment)
	})
	fmt.Fprintf(page, "\nA column in bold belongs to the key.\n\n## What pacer keeps for itself\n\n`\\d+` of psql describes the columns.\n\n| table | |\n| --- | --- |\n%s", own)
	page.WriteString("\n## Functions\n\n| function of `pacer` | |\n| --- | --- |\n")
	each(t, conn, functionsQuery, nil, []any{&column, &comment}, func() { fmt.Fprintf(page, "| `%s` | %s |\n", column, comment) })
	const committed = "../../docs/reference/tables.md"
	if *update {
		must(t, os.WriteFile(committed, page.Bytes(), 0o600))
	}
	if text, err := os.ReadFile(committed); err != nil || !bytes.Equal(text, page.Bytes()) {
		t.Errorf("docs/reference/tables.md is not what the migrations make (%v); run make reference", err)
	}
}

// each runs a query and calls visit with each of its rows in the variables.
func each(t *testing.T, conn *pgx.Conn, query string, args, variables []any, visit func()) {
	t.Helper()
	rows, err := conn.Query(t.Context(), query, args...)
	if err == nil {
		_, err = pgx.ForEachRow(rows, variables, func() error { visit(); return nil })
	}
	if err != nil {
		t.Fatal(err)
	}
}
