package command

import (
	"bytes"
	"encoding/gob"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// sinks writes a configuration with one sink.
func (d *desk) sinks() {
	d.t.Helper()
	if err := os.WriteFile("pacer.yaml", []byte("sinks: {receiver: {type: discard}}\n"), 0o600); err != nil {
		d.t.Fatal(err)
	}
}

// warned runs one command line and returns what it printed on standard error.
func (d *desk) warned(line string) string {
	d.t.Helper()
	var out, errs bytes.Buffer
	if code := Run(d.t.Context(), strings.Fields(line), World{strings.NewReader(""), &out, &errs, d.environ}); code != 0 {
		d.t.Fatalf("%s: exit code %d, %s", line, code, errs.String())
	}
	return errs.String()
}

// engine takes from a store as a daemon does.
func (d *desk) engine(addr string) *limits.Engine {
	d.t.Helper()
	set, err := shards.Connect(shards.Options{Addrs: []string{addr}, Mode: shards.ModeSingle})
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = set.Close() })
	engine, err := limits.New(limits.Options{Shards: set, KeyPrefix: "pacer.", Registerer: prometheus.NewRegistry()})
	if err != nil {
		d.t.Fatal(err)
	}
	return engine
}

// useUp lets a campaign take from its quotas until they refuse it.
func (d *desk) useUp(engine *limits.Engine, id string, q *delivery.Quota) {
	d.t.Helper()
	c := &delivery.Campaign{ID: id, Revision: 1, Status: delivery.StatusActive, Rate: delivery.PerSecond(1000), PriorityWeight: 1, Quotas: []*delivery.Quota{q}}
	for range 50 {
		reply, err := engine.Take(d.t.Context(), []delivery.Ask{{
			Campaign: c, Want: 100, Horizon: 100_000, Quantum: 100_000, LateTolerance: 20_000,
		}})
		if err != nil {
			d.t.Fatal(err)
		}
		if g := reply.Items[0]; g.Bound == delivery.BindQuota && g.Units == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	d.t.Fatal("the quota is not used up")
}

// tell tells what a daemon tells that has a job of each of the campaigns in memory.
func (d *desk) tell(addr string, campaigns ...string) {
	d.t.Helper()
	type memory struct {
		Campaign            uint64
		Direct, Jobs, Units int64
	}
	part := struct {
		Format int
		Memory []memory
	}{Format: 1}
	for _, id := range campaigns {
		part.Memory = append(part.Memory, memory{delivery.CampaignHash(id), 1, 1, 1})
	}
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(part); err != nil {
		d.t.Fatal(err)
	}
	exchange := progress.NewRedisExchange(redis.NewClient(&redis.Options{Addr: addr}), "pacer.")
	if _, err := exchange.Swap(d.t.Context(), "a", b.Bytes(), func([]progress.Left) []byte { return nil }); err != nil {
		d.t.Fatal(err)
	}
}

// TestWhyItSendsNothing: explain, show and list say it, in the same words.
func TestWhyItSendsNothing(t *testing.T) {
	store := testservices.FreshRedis(t)
	d := newDesk(t, store.Addr)
	d.sinks()
	d.run("quota set provider --window 5/1h")
	for _, line := range []string{
		"paused --rate 10 --status paused", "unset", "typo --rate 10 --sink typo", "ended --rate 10 --ends-at 2026-01-01T00:00:00Z",
		"later --rate 10 --starts-at 2096-01-01T00:00:00Z", "used --rate 10 --quota provider", "fine --rate 10",
	} {
		d.run("campaign create " + line)
	}
	d.useUp(d.engine(store.Addr), "user", &delivery.Quota{ID: "provider", Revision: 1, Windows: []delivery.Window{{Span: time.Hour, Limit: 5}}})
	list := d.run("campaign list")
	for id, want := range map[string]struct{ cause, why, remedy string }{
		"paused": {"paused", "it is paused", "pacer campaign resume paused"},
		"unset":  {"rate", "its rate is 0", "pacer campaign set unset --rate 100"},
		"typo":   {"sink", "its sink typo is not configured", "--sink NAME"},
		"ended":  {"ended", "it ended at 2026-01-01T00:00:00Z", "--ends-at none"},
		"fine":   {"daemons", "no daemon runs", "start pacer run"},
	} {
		var got explanation
		if err := json.Unmarshal([]byte(d.run("explain "+id+" --json")), &got); err != nil || got.Held == nil {
			t.Fatal(id, err)
		}
		if got.Held.Cause != want.cause || !strings.HasPrefix(got.Held.Why, want.why) || !strings.Contains(got.Held.Remedy, want.remedy) || got.Backlog == nil {
			t.Errorf("%s: %+v", id, got.Held)
		}
		text := d.run("explain " + id)
		if first, _, _ := strings.Cut(text, "\n"); first != got.Sentence || !strings.Contains(first, want.why) || !strings.Contains(first, want.remedy) {
			t.Errorf("%s: %q", id, text)
		}
		shown := d.run("campaign show " + id)
		d.fields(shown, "active now no: "+got.Held.Why)
		d.fields(shown, "to do "+got.Held.Remedy)
		if !strings.Contains(list, got.Held.Why) {
			t.Errorf("%s is listed without %q\n%s", id, got.Held.Why, list)
		}
	}
	d.tell(store.Addr)
	for _, id := range []string{"fine", "used"} {
		if text := d.run("explain " + id); !strings.HasPrefix(text, "Nothing holds campaign "+id+".\n") {
			t.Error(text)
		}
	}
	d.tell(store.Addr, "used")
	if text := d.run("explain used"); !strings.HasPrefix(text, "Campaign used sends nothing because its quota provider is used up until 20") || !strings.Contains(text, "(in ") {
		t.Error(text)
	}
	if code, _, stderr := d.fails("explain nothing"); code != 1 || !strings.Contains(stderr, "pacer campaign create nothing") {
		t.Errorf("of a campaign that is not there: code %d, %s", code, stderr)
	}
}

// fails runs one command line that may fail.
func (d *desk) fails(line string) (code int, stdout, stderr string) {
	var out, errs bytes.Buffer
	code = Run(d.t.Context(), strings.Fields(line), World{strings.NewReader(""), &out, &errs, d.environ})
	return code, out.String(), errs.String()
}

// TestWhatIsCreatedAndSendsNothing: a warning names the remedy, and the campaign is created all the same.
func TestWhatIsCreatedAndSendsNothing(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.sinks()
	for line, says := range map[string]string{
		"campaign create a":                                            "its rate is 0; to do: pacer campaign set a --rate 100",
		"campaign create b --rate 10 --sink typo":                      "its sink typo is not configured; to do: add it under sinks",
		"campaign create c --rate 10 --ends-at 2026-01-01T00:00:00Z":   "pacer campaign set c --ends-at none",
		"campaign create d --rate 10":                                  "",
		"campaign create e --rate 10 --status paused":                  "",
		"campaign create f --rate 10 --starts-at 2096-01-01T00:00:00Z": "",
		"campaign create g --rate 100 --ramp start=500,add=5,every=1m": "the ramp of campaign g does nothing: it starts at 500, and the rate is 100",
		"campaign create h --rate 100 --ramp start=99,add=5,every=1m":  "",
		"quota set q --window 100/1m,50/1h":                            "the window 100/1m of quota q never decides: 50/1h lets through no more",
		"quota set r --window 100/1m,500/1h,0/10s":                     "",
	} {
		d.expectWarning(line, says)
	}
	d.expectWarning("campaign set a --rate 10 --sink elsewhere", "its sink elsewhere is not configured")
	d.expectWarning("quota set r --window 100/1m,20/1d", "never decides: 20/1d lets through no more")
}

func (d *desk) expectWarning(line, says string) {
	d.t.Helper()
	got := d.warned(line)
	if says == "" && got != "" || says != "" && (strings.Count(got, "\n") != 1 || !strings.HasPrefix(got, "pacer: warning: ") || !strings.Contains(got, says)) {
		d.t.Errorf("pacer %s says %q, want %q", line, got, says)
	}
}

// TestAnETAOfWhatStandsStill: there is none, though the daemons once stored one.
func TestAnETAOfWhatStandsStill(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.sinks()
	d.run("campaign create spring --rate 10 --status paused")
	conn, err := pgx.Connect(t.Context(), d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), `INSERT INTO pacer.campaign_progress (campaign_id, backlog, done_at) VALUES ('spring', 10, now() + '1 s')`); err != nil {
		t.Fatal(err)
	}
	d.fields(d.run("campaign show spring"), "eta held: paused")
	if list := d.run("campaign list"); !strings.Contains(list, "held: paused") || !strings.Contains(list, "it is paused") {
		t.Error(list)
	}
	if list := d.run("campaign list --json"); strings.Contains(list, "eta_seconds") || !strings.Contains(list, `"cause": "paused"`) {
		t.Error(list)
	}
}

// TestJobsOfNoCampaign: the one who publishes them hears of it; where the catalog cannot be asked, nothing is said.
func TestJobsOfNoCampaign(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.run("campaign create there --rate 10")
	d.hooks()
	d.environ = append(d.environ, "PACER_SINKS_OUT_TYPE=log", "PACER_DEFAULT_SINK=hooks")
	d.run("campaign create logged --rate 10 --sink out")
	d.run("destination create shop --url https://shop.example/x")
	d.run("destination create other --url https://shop.example/x --sink hooks2")
	for _, tc := range []struct{ dsn, id, header, as, says string }{
		{d.dsn, "typo", "", "", "pacer: warning: campaign typo does not exist; create it with: pacer campaign create typo"},
		{d.dsn, "logged", "", "", ""},
		{d.dsn, "there", "", "", "pacer: warning: these jobs name no destination, and their sink hooks needs one; give --header pacer-destination=ID"},
		{d.dsn, "there", "pacer-destination=shop", "", ""},
		{d.dsn, "there", "pacer-destination=shpo", "", "pacer: warning: destination shpo does not exist; create it with: pacer destination create shpo"},
		{d.dsn, "there", "pacer-destination=other", "", "pacer: warning: destination other belongs to the sink hooks2, and the campaign's is hooks;"},
		{d.dsn, "there", "", "destination=shop", ""},
		{"", "typo", "", "", ""},
		{"postgres://pacer@127.0.0.1:1/pacer", "typo", "", "", ""},
	} {
		var errs bytes.Buffer
		cfg, _, err := config.Load("pacer.yaml", false, append(slices.Clone(d.environ), "PACER_POSTGRES_DSN="+tc.dsn))
		if err != nil {
			t.Fatal(err)
		}
		flags := publishFlags{Campaign: tc.id}
		if tc.header != "" {
			flags.Headers = []string{tc.header}
		}
		if tc.as != "" {
			flags.Map = []string{tc.as}
		}
		source, err := flags.source(cfg)
		if err != nil {
			t.Fatal(err)
		}
		(&cli{World: World{Stderr: &errs}}).warnAstray(t.Context(), cfg, source)
		if got := errs.String(); tc.says == "" && got != "" || !strings.HasPrefix(got, tc.says) || strings.Count(got, "\n") > 1 {
			t.Errorf("%s: %q, want %q", tc.id, got, tc.says)
		}
	}
}
