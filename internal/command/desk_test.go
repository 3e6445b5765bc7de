package command

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// desk is where a person types commands about one deployment.
type desk struct {
	t       *testing.T
	dsn     string
	environ []string
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
	d := &desk{t: t, dsn: schema.Database(t)}
	d.environ = []string{"PACER_POSTGRES_DSN=" + d.dsn, "PACER_REDIS_ADDRS=" + redis}
	return d
}

// run runs one command line and returns what it printed; the arguments after the first one are not split.
func (d *desk) run(line string, args ...string) string {
	d.t.Helper()
	var out, errs bytes.Buffer
	if code := Run(d.t.Context(), append(strings.Fields(line), args...), World{strings.NewReader(""), &out, &errs, d.environ}); code != 0 {
		d.t.Fatalf("%s %q: exit code %d, %s", line, args, code, errs.String())
	}
	return out.String()
}

// fields checks that a table has a line with these cells.
func (d *desk) fields(table, want string) {
	d.t.Helper()
	for line := range strings.Lines(table) {
		if strings.Join(strings.Fields(line), " ") == want {
			return
		}
	}
	d.t.Errorf("no line %q in\n%s", want, table)
}

// refuses checks that a command line fails and says why.
func (d *desk) refuses(line, why string) {
	d.t.Helper()
	var out, errs bytes.Buffer
	if code := Run(d.t.Context(), strings.Fields(line), World{strings.NewReader(""), &out, &errs, d.environ}); code == 0 || !strings.Contains(errs.String(), why) {
		d.t.Errorf("%s: exit code %d, %s; want %q", line, code, errs.String(), why)
	}
}

// spend takes units of a quota as a daemon would.
func spend(t *testing.T, redis, dsn, quota string, units int64) {
	t.Helper()
	if granted := takeUnits(t, redis, dsn, quota, units); granted != units {
		t.Fatalf("%d of %d units granted", granted, units)
	}
}

// takeUnits takes units of a quota as the catalog has it.
func takeUnits(t *testing.T, redis, dsn, quota string, units int64) (granted int64) {
	t.Helper()
	admin, err := catalog.NewAdmin(dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	row, err := admin.GetQuota(t.Context(), quota)
	if err != nil {
		t.Fatal(err)
	}
	q, err := row.Quota()
	if err != nil {
		t.Fatal(err)
	}
	shards, err := shards.Connect(shards.Options{Addrs: []string{redis}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shards.Close() }()
	cfg, _, err := config.Load("", false, []string{"PACER_POSTGRES_DSN=" + dsn})
	if err != nil {
		t.Fatal(err)
	}
	engine, err := limits.New(limits.Options{Shards: shards, KeyPrefix: cfg.Redis.KeyPrefix, Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	reply, err := engine.Take(t.Context(), []delivery.Ask{{
		Campaign: &delivery.Campaign{ID: "c", Revision: 1, Rate: delivery.PerSecond(1000), PriorityWeight: 1, Quotas: []*delivery.Quota{q}},
		Want:     units, Horizon: 1_000_000, Quantum: 100_000, LateTolerance: 100_000,
	}})
	if err != nil {
		t.Fatal(err)
	}
	return reply.Items[0].Units
}
