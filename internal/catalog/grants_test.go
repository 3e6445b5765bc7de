package catalog

import (
	"context"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// role makes a role that can log in. It has no rights, and is dropped when the test ends.
func role(t *testing.T, conn *pgx.Conn, dsn, name string) (quoted, itsDSN string) {
	t.Helper()
	name = testservices.Unique(name)
	quoted = pgx.Identifier{name}.Sanitize()
	run(t, conn, `CREATE ROLE `+quoted+` LOGIN`)
	t.Cleanup(func() {
		run(t, conn, `DROP OWNED BY `+quoted)
		run(t, conn, `DROP ROLE `+quoted)
	})
	as := parsed(t, dsn)
	as.User = url.User(name)
	return quoted, as.String()
}

// TestMigrationsGrantWhatIsLacking: roles that have some rights of a daemon or an operator, as before a migration that adds tables, have
// all of them after it. A role that owns the schema and nothing else makes it. Others get nothing.
func TestMigrationsGrantWhatIsLacking(t *testing.T) {
	t.Parallel()
	dsn, ctx := testservices.Database(t), t.Context()
	conn := connected(t, dsn)
	owner, ownerDSN := role(t, conn, dsn, "owner")
	daemon, daemonDSN := role(t, conn, dsn, "daemon")
	ops, opsDSN := role(t, conn, dsn, "ops")
	reader, readerDSN := role(t, conn, dsn, "reader")
	run(t, conn, `CREATE SCHEMA pacer AUTHORIZATION `+owner)
	run(t, conn, `GRANT USAGE ON SCHEMA pacer TO `+daemon+`, `+ops+`, `+reader)
	m := migrator(t, ownerDSN)
	if _, err := m.Up(ctx); err != nil {
		t.Fatal(err)
	}
	run(t, conn, `GRANT SELECT ON ALL TABLES IN SCHEMA pacer TO `+daemon+`, `+ops)
	run(t, conn, `GRANT INSERT, UPDATE, DELETE ON pacer.positions TO `+daemon)
	run(t, conn, `GRANT INSERT, UPDATE, DELETE ON pacer.campaigns TO `+ops)
	run(t, conn, `GRANT SELECT ON pacer.campaigns TO `+reader)
	for range 2 { // again, it changes nothing
		if _, err := m.Up(ctx); err != nil {
			t.Fatal(err)
		}
	}
	a, err := NewAdmin(opsDSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(a.Close)
	if _, err := a.SetQuota(ctx, "q", QuotaChange{Windows: &[]delivery.Window{{Span: time.Minute, Limit: 5}}}); err != nil {
		t.Error(err)
	}
	if _, err := a.CreateCampaign(ctx, "c", CampaignChange{Quotas: &[]string{"q"}}); err != nil {
		t.Error(err)
	}
	if err := a.AddSettled(ctx, []delivery.Progress{{Campaign: "c", Settled: delivery.Settled{delivery.OutcomeDelivered: 1}}}); err != nil {
		t.Error(err)
	}
	everyWrite(t, started(t, Options{DSN: daemonDSN}))
	if got, err := lacking(ctx, t, daemonDSN); err != nil || got != "" {
		t.Errorf("a daemon lacks %q, %v", got, err)
	}
	got, err := lacking(ctx, t, readerDSN)
	if err != nil || !strings.Contains(got, "GRANT SELECT ON pacer.campaign_changes, ") || !strings.Contains(got, "GRANT INSERT ON ") {
		t.Errorf("a reader lacks %q, %v", got, err)
	}
	if _, err := connected(t, daemonDSN).Exec(ctx, `UPDATE pacer.campaigns SET burst = 1`); err == nil {
		t.Error("a daemon may change campaigns")
	}
}

// TestCheckOfACatalog: what an operator is told of a database, without changing it.
func TestCheckOfACatalog(t *testing.T) {
	t.Parallel()
	dsn, ctx := testservices.Database(t), t.Context()
	conn := connected(t, dsn)
	found, err := Check(ctx, dsn, Renewal{})
	if err != nil || found.Schema != 0 || found.Newest != newestVersion() {
		t.Errorf("of an empty database: %+v, %v", found, err)
	}
	run(t, conn, `CREATE SCHEMA pacer`)
	if _, err := migrator(t, dsn).Up(ctx); err != nil {
		t.Fatal(err)
	}
	found, err = Check(ctx, dsn, Renewal{})
	if err != nil || found.Schema != found.Newest || found.Missing != "" || found.Encrypted {
		t.Errorf("of a complete one: %+v, %v", found, err)
	}
	_, elseDSN := role(t, conn, dsn, "nobody")
	if _, err = Check(ctx, elseDSN, Renewal{}); err == nil || !strings.Contains(err.Error(), "may not use the schema pacer") {
		t.Errorf("of a user without rights: %v", err)
	}
	quoted, readerDSN := role(t, conn, dsn, "reader")
	run(t, conn, `GRANT USAGE ON SCHEMA pacer TO `+quoted)
	run(t, conn, `GRANT SELECT ON ALL TABLES IN SCHEMA pacer TO `+quoted)
	found, err = Check(ctx, readerDSN, Renewal{})
	if err != nil || !strings.Contains(found.Missing, "GRANT INSERT ON pacer.campaign_history, pacer.positions") {
		t.Errorf("of a reader: %+v, %v", found, err)
	}
	run(t, conn, `ALTER ROLE `+quoted+` SET default_transaction_read_only = on`)
	for _, r := range daemonRights {
		run(t, conn, `GRANT `+strings.Join(r.operations, ", ")+` ON pacer.`+strings.Join(r.tables, ", pacer.")+` TO `+quoted)
	}
	if _, err = Check(ctx, readerDSN, Renewal{}); err == nil || !strings.Contains(err.Error(), "read-only") {
		t.Errorf("of a server that takes no writes: %v", err)
	}
}

func lacking(ctx context.Context, t *testing.T, dsn string) (missing string, err error) {
	t.Helper()
	err = pgx.BeginFunc(ctx, connected(t, dsn), func(tx pgx.Tx) (err error) {
		missing, err = missingRights(ctx, tx)
		return err
	})
	return missing, err
}

// everyWrite writes all that daemons write, for campaign c and quota q.
func everyWrite(t *testing.T, p *Postgres) {
	t.Helper()
	ctx := t.Context()
	check := func(what string, err error) {
		t.Helper()
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for range 2 {
		check("save positions", p.SavePositions(ctx, "g", []delivery.Position{{Topic: "t", Partition: 1, Committed: 5}}))
		check("save progress", p.SaveProgress(ctx, []delivery.Progress{{Campaign: "c", Settled: delivery.Settled{delivery.OutcomeDelivered: 1}}}))
	}
	check("spread campaigns", p.SpreadCampaigns(ctx, map[string]int64{"c": 1_000_000}))
	_, err := p.LoadPositions(ctx, "g")
	check("load positions", err)
	check("prune usage", p.PruneUsage(ctx, 9, 9))
	for old := range int64(2) {
		_, err = p.ReplaceEpoch(ctx, 0, old, delivery.Incarnation{Epoch: old + 1}, "test")
		check("replace the epoch", err)
		for range 2 {
			_, err = p.Join(ctx, "n", []delivery.Taker{{Epoch: old + 1, At: old}})
			check("join", err)
			_, err = p.WriteTaken(ctx, 0, old+1, 0, 1+old, []delivery.Taken{{Quota: "q", Born: 1, Units: 1, Held: 1}}, []delivery.Anchor{{Quota: "q", Span: day, ResetAt: 1}})
			check("write what was taken", err)
		}
	}
	_, err = p.LoadSettled(ctx, nil)
	check("load settled", err)
}

// TestDocumentedGrantsAreThoseOfTheMigration: what the document grants at first is what later versions extend.
func TestDocumentedGrantsAreThoseOfTheMigration(t *testing.T) {
	text, err := os.ReadFile("../../docs/operations/deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string][]string{}
	for _, g := range regexp.MustCompile(`GRANT ([A-Z, ]+) ON (pacer\.[a-z_., \n]+?) TO (pacer_\w+);`).FindAllStringSubmatch(string(text), -1) {
		for operation := range strings.SplitSeq(g[1], ", ") {
			for table := range strings.SplitSeq(g[2], ",") {
				documented[g[3]] = append(documented[g[3]], operation+" "+strings.TrimPrefix(strings.TrimSpace(table), "pacer."))
			}
		}
	}
	for role, rights := range map[string][]right{"pacer_daemon": daemonRights, "pacer_ops": opsRights} {
		var want []string
		for _, r := range rights {
			for _, operation := range r.operations {
				for _, table := range r.tables {
					want = append(want, operation+" "+table)
				}
			}
		}
		got := documented[role]
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: the document grants %q, a migration %q", role, got, want)
		}
	}
}
