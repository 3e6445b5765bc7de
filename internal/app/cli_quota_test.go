package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/harness"
	"github.com/pacer/pacer/internal/limits"
)

// desk is where a person types commands about one deployment.
type desk struct {
	t        *testing.T
	dsn      string
	in       Invocation
	out, err bytes.Buffer
}

// newDesk makes a database with the schema in it; redis is what PACER_REDIS_ADDRS says.
func newDesk(t *testing.T, redis string) *desk {
	t.Helper()
	t.Chdir(t.TempDir())
	d := &desk{t: t, dsn: harness.Database(t)}
	m, err := catalog.NewMigrator(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.in = Invocation{
		Environ: []string{"PACER_POSTGRES_DSN=" + d.dsn, "PACER_REDIS_ADDRS=" + redis}, Stdout: &d.out, Stderr: &d.err,
	}
	return d
}

// run runs one command and returns what it printed.
func (d *desk) run(command func(Invocation) error) string {
	d.t.Helper()
	d.out.Reset()
	if err := command(d.in); err != nil {
		d.t.Fatalf("%v (%s)", err, d.err.String())
	}
	return d.out.String()
}

func (d *desk) set(id string, flags QuotaFlags) string {
	d.t.Helper()
	return d.run(func(in Invocation) error { return QuotaSet(d.t.Context(), in, id, &flags) })
}

func (d *desk) show(id string) string {
	d.t.Helper()
	return d.run(func(in Invocation) error { return QuotaShow(d.t.Context(), in, id) })
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

// TestQuotaShowSaysWhatIsLeft: the counts are those of the store, and the campaigns are named with what they may do.
func TestQuotaShowSaysWhatIsLeft(t *testing.T) {
	store := harness.FreshRedis(t)
	d, ctx := newDesk(t, store.Addr), t.Context()
	printed := d.set("provider", QuotaFlags{
		Windows: &[]string{"300/1m,7/1h:log", "300000/1d:fixed:day@Europe/Moscow"}, Rollout: new(int64(100)),
		OnStoreFailure: new("local-share"), Spend: new("greedy"),
	})
	d.fields(printed, "windows 300/1m,7/1h:log,300000/1d:fixed:day@Europe/Moscow")
	d.fields(printed, "on store failure local-share")
	d.set("trial", QuotaFlags{Mode: new("shadow"), Rollout: new(int64(25))})
	d.set("volume", QuotaFlags{Mode: new("eventual"), Unit: new("bytes")})
	d.set("calm", QuotaFlags{Spend: new("even")})
	for _, id := range []string{"spring", "autumn"} {
		d.run(func(in Invocation) error {
			return CampaignCreate(ctx, in, id, &CampaignFlags{
				Rate: new("150/m"), Quotas: &[]string{"provider"}, PriorityWeight: new(int64(3)), Status: new("paused"),
			})
		})
	}
	list := d.run(func(in Invocation) error { return QuotaList(ctx, in) })
	d.fields(list, "provider 300/1m,7/1h:log,300000/1d:fixed:day@Europe/Moscow strict local-share autumn,spring")
	d.fields(list, "trial - shadow,25% closed -")
	d.fields(list, "volume - eventual,bytes closed -")
	d.fields(list, "calm - strict,even closed -")

	spend(t, store.Addr, d.dsn, "provider", 5)
	before := time.Now().Truncate(time.Millisecond)
	shown := d.show("provider")
	for _, want := range []string{
		"shard 0", "rollout 100%", "unit units", "mode strict", "autumn 150/1m paused 3", "spring 150/1m paused 3",
	} {
		d.fields(shown, want)
	}
	d.in.JSON = true
	var view quotaView
	if err := json.Unmarshal([]byte(d.show("provider")), &view); err != nil {
		t.Fatal(err)
	}
	if view.Note != "" || view.QuotaRow.Shard != 0 || len(view.UsedBy) != 2 || view.UsedBy[0].ID != "autumn" {
		t.Errorf("%+v", view)
	}
	for i, want := range []struct{ remaining, within string }{{"295", "1m"}, {"2", "1h"}, {"299995", "25h"}} {
		w := view.State[i]
		within, err := catalog.ParseSpan(want.within)
		if err != nil {
			t.Fatal(err)
		}
		if fmt.Sprint(*w.Remaining) != want.remaining || w.ResetAt.Before(before) || w.ResetAt.After(time.Now().Add(within+within/16+time.Second)) {
			t.Errorf("%s: %d of %d remain until %s", w.Span, *w.Remaining, w.Limit, w.ResetAt)
		}
		d.fields(shown, fmt.Sprintf("%s %d %s %s", w.Span, w.Limit, want.remaining, w.ResetAt.Format(preciseTime)))
	}
}

// spend takes units of a quota as a daemon would.
func spend(t *testing.T, redis, dsn, quota string, units int64) {
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
	shards, err := limits.Connect(limits.TopologyOptions{Addrs: []string{redis}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = shards.Close() }()
	cfg, _, err := Load("", false, []string{"PACER_POSTGRES_DSN=" + dsn})
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
	if err != nil || reply.Items[0].Units != units {
		t.Fatalf("%+v, %v", reply, err)
	}
}

// TestQuotaShowWithoutTheStore: what the catalog says is shown within seconds, with one line about what is missing.
func TestQuotaShowWithoutTheStore(t *testing.T) {
	frozen := harness.FreshRedis(t)
	frozen.Freeze()
	t.Cleanup(frozen.Thaw)
	for redis, want := range map[string]string{
		frozen.Addr:   "what remains is not known: redis.addrs: the quota store does not answer",
		"127.0.0.1:1": "what remains is not known: redis.addrs: the quota store does not answer",
		"":            "what remains is not known: redis.addrs is not set",
	} {
		d := newDesk(t, redis)
		d.set("provider", QuotaFlags{Windows: &[]string{"300/1m"}})
		started := time.Now()
		shown := d.show("provider")
		if took := time.Since(started); took > 5*time.Second {
			t.Errorf("after %s", took)
		}
		d.fields(shown, "1m 300 - -")
		if strings.Count(shown, want) != 1 {
			t.Errorf("no %q in\n%s", want, shown)
		}
		d.in.JSON = true
		var view quotaView
		if err := json.Unmarshal([]byte(d.show("provider")), &view); err != nil {
			t.Fatal(err)
		}
		if len(view.State) != 1 || view.State[0].Remaining != nil || view.State[0].ResetAt != nil || !strings.Contains(view.Note, "redis.addrs") {
			t.Errorf("%+v", view)
		}
	}
}

func TestQuotaUsageShowsTheLedger(t *testing.T) {
	d, ctx := newDesk(t, "127.0.0.1:1"), t.Context()
	d.set("provider", QuotaFlags{Windows: &[]string{"9/1s,300/1h"}})
	c, err := catalog.NewPostgres(catalog.Options{DSN: d.dsn})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	minute := time.Now().Unix()/60 - 60
	if err := c.WriteUsage(ctx, "n", []delivery.Usage{{Quota: "provider", Minute: minute, Units: 120}}, nil); err != nil {
		t.Fatal(err)
	}
	usage := func() string {
		return d.run(func(in Invocation) error {
			return QuotaUsage(ctx, in, "provider", &QuotaUsageFlags{Last: "3h", Step: "30m"})
		})
	}
	at := time.Unix(60*minute, 0).UTC().Truncate(30 * time.Minute).Format(time.RFC3339)
	table := usage()
	d.fields(table, "FROM UNITS LEFT OF 9/1s LEFT OF 300/1h")
	d.fields(table, at+" 120 - 180")
	d.fields(table, "the last two minutes may hold units that are reserved and not sent")
	d.in.JSON = true
	var answer quotaUsage
	if err := json.Unmarshal([]byte(usage()), &answer); err != nil {
		t.Fatal(err)
	}
	var units int64
	for _, s := range answer.Steps {
		units += s.Units
	}
	if units != 120 || answer.Quota != "provider" || answer.Step != "30m" || len(answer.Steps) < 6 || len(answer.Steps) > 8 {
		t.Errorf("%+v", answer)
	}
}

// TestQuotaUsageSaysWhatItDoesNotKnow: a quota whose use is not kept must not look like one that nobody used.
func TestQuotaUsageSaysWhatItDoesNotKnow(t *testing.T) {
	window := func(span string) []catalog.WindowRow { return []catalog.WindowRow{{Span: "1s"}, {Span: span}} }
	for _, c := range []struct {
		quota catalog.QuotaRow
		want  string
	}{
		{catalog.QuotaRow{Mode: delivery.ModeStrict, Rollout: 100, Windows: window("1h")}, "last two minutes"},
		{catalog.QuotaRow{Mode: delivery.ModeShadow, Rollout: 1, Windows: window("121s")}, "last two minutes"},
		{catalog.QuotaRow{Mode: delivery.ModeStrict, Rollout: 100, Windows: window("2m")}, "longer than 2 minutes"},
		{catalog.QuotaRow{Mode: delivery.ModeStrict, Rollout: 100}, "longer than 2 minutes"},
		{catalog.QuotaRow{Mode: delivery.ModeStrict, Windows: window("1h")}, "rollout of 0"},
		{catalog.QuotaRow{Mode: delivery.ModeEventual, Rollout: 100, Windows: window("1h")}, "mode eventual"},
	} {
		if got := usageNote(&c.quota); !strings.Contains(got, c.want) {
			t.Errorf("%+v: %q, want %q", c.quota, got, c.want)
		}
	}
}
