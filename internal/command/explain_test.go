package command

import (
	"bytes"
	"encoding/gob"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/testservices"
)

// sinks writes a configuration with one sink.
func (d *desk) sinks() {
	d.t.Helper()
	d.file("pacer.yaml", "sinks: {receiver: {type: discard}}\n")
}

// useUp lets a campaign take from its quotas until they refuse it.
func (d *desk) useUp(id string, q *delivery.Quota) {
	d.t.Helper()
	engine := d.engine()
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
func (d *desk) tell(campaigns ...string) {
	d.t.Helper()
	type memory struct{ Direct, Jobs, Units int64 }
	part := struct {
		Format int
		Memory map[uint64]memory
	}{1, map[uint64]memory{}}
	for _, id := range campaigns {
		part.Memory[delivery.CampaignHash(id)] = memory{1, 1, 1}
	}
	var b bytes.Buffer
	must(d.t, gob.NewEncoder(&b).Encode(part))
	exchange := progress.NewRedisExchange(redis.NewClient(&redis.Options{Addr: d.redis}), "pacer.")
	try(exchange.Swap(d.t.Context(), "a", b.Bytes(), func([]progress.Left) []byte { return nil }))(d.t)
}

// TestWhyItSendsNothing: explain, show and list say it, in the same words.
func TestWhyItSendsNothing(t *testing.T) {
	d := newDesk(t, testservices.FreshRedis(t).Addr)
	d.sinks()
	d.run("quota set provider --window 5/1h")
	for _, line := range []string{
		"paused --rate 10 --status paused", "unset", "typo --rate 10 --sink typo", "ended --rate 10 --ends-at 2026-01-01T00:00:00Z",
		"later --rate 10 --starts-at 2096-01-01T00:00:00Z", "used --rate 10 --quota provider", "fine --rate 10",
	} {
		d.run("campaign create " + line)
	}
	d.useUp("user", &delivery.Quota{ID: "provider", Revision: 1, Windows: []delivery.Window{{Span: time.Hour, Limit: 5}}})
	list := d.run("campaign list")
	for id, want := range map[string]struct{ cause, why, remedy string }{
		"paused": {"paused", "it is paused", "pacer campaign resume paused"},
		"unset":  {"rate", "its rate is 0", "pacer campaign set unset --rate 100"},
		"typo":   {"sink", "its sink typo is not configured", "--sink NAME"},
		"ended":  {"ended", "it ended at 2026-01-01T00:00:00Z", "--ends-at none"},
		"fine":   {"daemons", "no daemon runs", "start pacer run"},
	} {
		got := read[explanation](d, "explain "+id)
		held := got.Held
		if held == nil || held.Cause != want.cause || !strings.HasPrefix(held.Why, want.why) || !strings.Contains(held.Remedy, want.remedy) || got.Backlog == nil {
			t.Fatalf("%s: %+v", id, held)
		}
		first, _, _ := strings.Cut(d.run("explain "+id), "\n")
		if first != got.Sentence {
			t.Errorf("%s: %q", id, first)
		}
		contains(t, first, want.why, want.remedy)
		d.fields(d.run("campaign show "+id), "active now no: "+held.Why, "to do "+held.Remedy)
		contains(t, list, held.Why)
	}
	d.tell()
	for _, id := range []string{"fine", "used"} {
		if text := d.run("explain " + id); !strings.HasPrefix(text, "Nothing holds campaign "+id+".\n") {
			t.Error(text)
		}
	}
	d.tell("used")
	d.shows("explain used", "Campaign used sends nothing because its quota provider is used up until 20", "(in ")
	d.refuses(1, "explain nothing", "pacer campaign create nothing")
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
		d.warns(line, says)
	}
	d.warns("campaign set a --rate 10 --sink elsewhere", "its sink elsewhere is not configured")
	d.warns("quota set r --window 100/1m,20/1d", "never decides: 20/1d lets through no more")
}

// TestAnETAOfWhatStandsStill: there is none, though the daemons once stored one.
func TestAnETAOfWhatStandsStill(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.sinks()
	d.run("campaign create spring --rate 10 --status paused")
	d.exec(`INSERT INTO pacer.campaign_progress (campaign_id, backlog, done_at) VALUES ('spring', 10, now() + '1 s')`)
	d.fields(d.run("campaign show spring"), "eta held: paused")
	d.shows("campaign list", "held: paused", "it is paused")
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
	for _, tt := range []struct {
		dsn, id     string
		headers, as []string
		says        string
	}{
		{d.dsn, "typo", nil, nil, "campaign typo does not exist; create it with: pacer campaign create typo"},
		{d.dsn, "logged", nil, nil, ""},
		{d.dsn, "there", nil, nil, "these jobs name no destination, and their sink hooks needs one; give --header pacer-destination=ID"},
		{d.dsn, "there", []string{"pacer-destination=shop"}, nil, ""},
		{d.dsn, "there", []string{"pacer-destination=shpo"}, nil, "destination shpo does not exist; create it with: pacer destination create shpo"},
		{d.dsn, "there", []string{"pacer-destination=other"}, nil, "destination other belongs to the sink hooks2, and the campaign's is hooks;"},
		{d.dsn, "there", nil, []string{"destination=shop"}, ""},
		{"", "typo", nil, nil, ""},
		{"postgres://pacer@127.0.0.1:1/pacer", "typo", nil, nil, ""},
	} {
		var errs bytes.Buffer
		cfg, _, err := config.LoadFor(config.Source{Environ: append(slices.Clone(d.environ), "PACER_POSTGRES_DSN="+tt.dsn)})
		if err != nil {
			t.Fatal(err)
		}
		flags := publishFlags{Campaign: tt.id, Headers: tt.headers, Map: tt.as}
		source := try(flags.source(cfg))(t)
		(&cli{World: World{Stderr: &errs}}).warnAstray(t.Context(), cfg, source)
		got, found := strings.CutPrefix(errs.String(), "pacer: warning: "+tt.says)
		if tt.says == "" && errs.Len() > 0 || tt.says != "" && (!found || strings.Count(got, "\n") != 1) {
			t.Errorf("%s: %q, want %q", tt.id, errs.String(), tt.says)
		}
	}
}

// TestEveryOutcomeIsShown: jobs that ended in any way are not to be missed.
func TestEveryOutcomeIsShown(t *testing.T) {
	d := newDesk(t, "127.0.0.1:1")
	d.sinks()
	d.run("campaign create spring --rate 10")
	var shown []string
	for _, o := range delivery.SettledOutcomes {
		d.exec(`INSERT INTO pacer.campaign_progress (campaign_id, ` + o.String() + `) VALUES ('spring', 7) ON CONFLICT (campaign_id) DO UPDATE SET ` + o.String() + ` = 7`)
		shown = append(shown, o.String()+" 7")
	}
	d.fields(d.run("campaign show spring"), shown...)
}
