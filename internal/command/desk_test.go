package command

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// must ends the test at an error.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// try is for calls that give a value, and end the test at an error: row := try(admin.GetQuota(ctx, id))(t).
func try[T any](value T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return value
	}
}

// desk is where a person types commands about one deployment.
type desk struct {
	t          *testing.T
	dsn, redis string
	environ    []string
}

// schema is a database with the schema in it.
var schema = testservices.NewTemplate(func(ctx context.Context, dsn string) error {
	m, err := catalog.NewMigrator(dsn)
	if err == nil {
		_, err = m.Up(ctx)
	}
	return err
})

// newDesk makes a database with the schema in it; redis is what PACER_REDIS_ADDRS says.
func newDesk(t *testing.T, redis string) *desk {
	t.Helper()
	t.Chdir(t.TempDir())
	d := &desk{t: t, dsn: schema.Database(t), redis: redis}
	d.environ = []string{"PACER_POSTGRES_DSN=" + d.dsn, "PACER_REDIS_ADDRS=" + redis}
	return d
}

// file writes a file beside the commands.
func (d *desk) file(name, text string) {
	d.t.Helper()
	must(d.t, os.WriteFile(name, []byte(text), 0o600))
}

// types runs one command line, and returns what came of it; the arguments after the first one are not split.
func (d *desk) types(line string, args ...string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Run(d.t.Context(), append(strings.Fields(line), args...), World{strings.NewReader(""), &out, &errs, d.environ})
	return code, out.String(), errs.String()
}

// run runs one command line that must not fail, and returns what it printed.
func (d *desk) run(line string, args ...string) string {
	d.t.Helper()
	code, out, errs := d.types(line, args...)
	if code != 0 {
		d.t.Fatalf("%s %q: exit code %d, %s", line, args, code, errs)
	}
	return out
}

// read returns what a command line prints with --json.
func read[T any](d *desk, line string) T {
	d.t.Helper()
	what, code, errs := reads[T](d, line)
	if code != 0 {
		d.t.Fatalf("%s: exit code %d, %s", line, code, errs)
	}
	return what
}

// reads is read for one that may fail.
func reads[T any](d *desk, line string) (what T, code int, stderr string) {
	d.t.Helper()
	code, out, stderr := d.types(line + " --json")
	if err := json.Unmarshal([]byte(out), &what); err != nil {
		d.t.Fatalf("%s: code %d, %v: prints %s%s", line, code, err, out, stderr)
	}
	return what, code, stderr
}

// prints checks all that a command line prints.
func (d *desk) prints(line, want string) {
	d.t.Helper()
	if out := d.run(line); out != want {
		d.t.Errorf("%s prints %q, want %q", line, out, want)
	}
}

// shows checks that a command line prints these words, also among others.
func (d *desk) shows(line string, words ...string) {
	d.t.Helper()
	contains(d.t, d.run(line), words...)
}

// contains checks that a text has these words.
func contains(t *testing.T, text string, words ...string) {
	t.Helper()
	for _, word := range words {
		if !strings.Contains(text, word) {
			t.Errorf("no %q in\n%s", word, text)
		}
	}
}

// fields checks that a table has lines with these cells.
func (d *desk) fields(table string, lines ...string) {
	d.t.Helper()
	var all []string
	for line := range strings.Lines(table) {
		all = append(all, strings.Join(strings.Fields(line), " "))
	}
	for _, want := range lines {
		if !strings.Contains("\n"+strings.Join(all, "\n")+"\n", "\n"+want+"\n") {
			d.t.Errorf("no line %q in\n%s", want, table)
		}
	}
}

// refuses checks that a command line fails with one line that says why: with code 2 if the line is wrong, or else with 1.
func (d *desk) refuses(code int, line string, why ...string) {
	d.t.Helper()
	got, out, said := d.types(line)
	if got != code || out != "" || strings.Count(said, "\n") != 1 || !strings.HasPrefix(said, "pacer: ") {
		d.t.Errorf("%s: exit code %d, want %d; %s%s", line, got, code, out, said)
	}
	contains(d.t, said, why...)
}

// warns checks that a command line does what it is to do, with one line of warning that says this; "" for none.
func (d *desk) warns(line, says string) {
	d.t.Helper()
	code, _, said := d.types(line)
	one := strings.Count(said, "\n") == 1 && strings.HasPrefix(said, "pacer: warning: ") && strings.Contains(said, says)
	if code != 0 || says == "" && said != "" || says != "" && !one {
		d.t.Errorf("%s: exit code %d, says %q, want %q", line, code, said, says)
	}
}

// database is a connection to the database.
func (d *desk) database() *pgx.Conn {
	d.t.Helper()
	conn := try(pgx.Connect(d.t.Context(), d.dsn))(d.t)
	d.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// exec changes the database as no command does.
func (d *desk) exec(statements ...string) {
	d.t.Helper()
	conn := d.database()
	for _, statement := range statements {
		try(conn.Exec(d.t.Context(), statement))(d.t)
	}
}

// engine takes from the store as a daemon does.
func (d *desk) engine() *limits.Engine {
	d.t.Helper()
	set := try(shards.Connect(shards.Options{Addrs: []string{d.redis}, Mode: shards.ModeSingle}))(d.t)
	d.t.Cleanup(func() { _ = set.Close() })
	return limits.New(limits.Options{Shards: set, KeyPrefix: "pacer.", Registerer: prometheus.NewRegistry()})
}

// spend takes units of a quota as a daemon would.
func (d *desk) spend(quota string, units int64) {
	d.t.Helper()
	if granted := d.take(quota, units); granted != units {
		d.t.Fatalf("%d of %d units granted", granted, units)
	}
}

// take takes units of a quota as the catalog has it.
func (d *desk) take(quota string, units int64) (granted int64) {
	d.t.Helper()
	admin := try(catalog.NewAdmin(d.dsn))(d.t)
	defer admin.Close()
	q := try(admin.Snapshot(d.t.Context()))(d.t).Quotas[quota]
	reply, err := d.engine().Take(d.t.Context(), []delivery.Ask{{
		Campaign: &delivery.Campaign{ID: "c", Revision: 1, Rate: delivery.PerSecond(1000), PriorityWeight: 1, Quotas: []*delivery.Quota{q}},
		Want:     units, Horizon: 1_000_000, Quantum: 100_000, LateTolerance: 100_000,
	}})
	if err != nil {
		d.t.Fatal(err)
	}
	return reply.Items[0].Units
}
