package catalog

import (
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
	try(m.Up(ctx))(t)
	run(t, conn, `GRANT SELECT ON ALL TABLES IN SCHEMA pacer TO `+daemon+`, `+ops)
	run(t, conn, `GRANT INSERT, UPDATE, DELETE ON pacer.positions TO `+daemon)
	run(t, conn, `GRANT INSERT, UPDATE, DELETE ON pacer.campaigns TO `+ops)
	run(t, conn, `GRANT SELECT ON pacer.campaigns TO `+reader)
	for range 2 { // again, it changes nothing
		try(m.Up(ctx))(t)
	}
	a := adminOf(t, opsDSN)
	try(a.quota(ctx, "q", QuotaChange{Windows: &[]string{"5/1m"}}))(t)
	try(a.created(ctx, "c", CampaignChange{Quotas: &[]string{"q"}}))(t)
	must(t, a.AddSettled(ctx, []delivery.Progress{{Campaign: "c", Settled: delivery.Settled{delivery.OutcomeDelivered: 1}}}))
	everyWrite(t, started(t, Options{DSN: daemonDSN}))
	lacking := func(dsn string) (missing string) {
		must(t, pgx.BeginFunc(ctx, connected(t, dsn), func(tx pgx.Tx) (err error) {
			missing, err = missingRights(ctx, tx)
			return err
		}))
		return missing
	}
	equal(t, "a daemon lacks", lacking(daemonDSN), "")
	if got := lacking(readerDSN); !strings.Contains(got, "GRANT SELECT ON pacer.campaign_changes, ") || !strings.Contains(got, "GRANT INSERT ON ") {
		t.Errorf("a reader lacks %q", got)
	}
	asDaemon := adminOf(t, daemonDSN)
	refused(t, ErrForbidden, "may not change campaigns")(asDaemon.edited(ctx, "c", CampaignChange{Burst: new(int64(1))}))
	refused(t, ErrForbidden, "may not change campaigns")(asDaemon.quota(ctx, "q", QuotaChange{Mode: new("shadow")}))
	if why := try(asDaemon.ReadOnly(ctx))(t); !strings.Contains(why, "of this process may not change") {
		t.Errorf("why nothing can be changed: %q", why)
	}
}

// TestCheckOfACatalog: what an operator is told of a database, without changing it.
func TestCheckOfACatalog(t *testing.T) {
	t.Parallel()
	dsn, ctx := testservices.Database(t), t.Context()
	conn := connected(t, dsn)
	check := func(dsn string) Condition { return try(Check(ctx, dsn, Renewal{}))(t) }
	equal(t, "versions of an empty database", []int64{check(dsn).Schema, check(dsn).Newest}, []int64{0, newestVersion()})
	run(t, conn, `CREATE SCHEMA pacer`)
	try(migrator(t, dsn).Up(ctx))(t)
	if found := check(dsn); found.Schema != found.Newest || found.Missing != "" || found.Encrypted {
		t.Errorf("of a complete one: %+v", found)
	}
	quoted, readerDSN := role(t, conn, dsn, "reader")
	refused(t, nil, "may not use the schema pacer")(Check(ctx, readerDSN, Renewal{}))
	run(t, conn, `GRANT USAGE ON SCHEMA pacer TO `+quoted)
	run(t, conn, `GRANT SELECT ON ALL TABLES IN SCHEMA pacer TO `+quoted)
	if missing := check(readerDSN).Missing; !strings.Contains(missing, "GRANT INSERT ON pacer.campaign_history, pacer.positions") {
		t.Errorf("a reader lacks %q", missing)
	}
	run(t, conn, `ALTER ROLE `+quoted+` SET default_transaction_read_only = on`)
	for _, r := range daemonRights {
		run(t, conn, `GRANT `+strings.Join(r.operations, ", ")+` ON pacer.`+strings.Join(r.tables, ", pacer.")+` TO `+quoted)
	}
	refused(t, nil, "read-only")(Check(ctx, readerDSN, Renewal{}))
}

// everyWrite writes all that daemons write, for campaign c and quota q.
func everyWrite(t *testing.T, p *Postgres) {
	t.Helper()
	ctx := t.Context()
	for range 2 {
		must(t, p.SavePositions(ctx, "g", []delivery.Position{{Topic: "t", Partition: 1, Committed: 5}}))
		must(t, p.SaveProgress(ctx, []delivery.Progress{{Campaign: "c", Settled: delivery.Settled{delivery.OutcomeDelivered: 1}}}))
	}
	must(t, p.SpreadCampaigns(ctx, map[string]int64{"c": 1_000_000}))
	try(p.LoadPositions(ctx, "g"))(t)
	must(t, p.PruneUsage(ctx, time.Now()))
	for epoch := range int64(2) {
		try(p.ReplaceEpoch(ctx, 0, epoch, delivery.Incarnation{Epoch: epoch + 1}, "test"))(t)
		for n := range int64(2) {
			try(p.Join(ctx, "n", []delivery.Taker{{Epoch: epoch + 1, At: epoch}}))(t)
			list, anchors := []delivery.Taken{{Quota: "q", Born: 1, Units: n + 1, Held: n + 1}}, []delivery.Anchor{{Quota: "q", Span: day, ResetAt: n}}
			equal(t, "complete", try(p.WriteTaken(ctx, 0, epoch+1, 0, epoch+n, list, anchors))(t), true)
		}
	}
	must(t, p.Leave(ctx, 0, []string{"n"}, []delivery.Usage{{Quota: "q", Minute: 1, Units: 1}}))
	try(p.LoadSettled(ctx, nil))(t)
}

// TestDocumentedGrantsAreThoseOfTheMigration: what the document grants at first is what later versions extend.
func TestDocumentedGrantsAreThoseOfTheMigration(t *testing.T) {
	text := try(os.ReadFile("../../docs/operations/deploy.md"))(t)
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
		equal(t, "grants in the document to "+role, got, want)
	}
}
