package command

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/testservices"
)

// TestGatesOfSinks: a closed gate is listed, explained and opened by hand.
func TestGatesOfSinks(t *testing.T) {
	store := testservices.FreshRedis(t)
	d := newDesk(t, store.Addr)
	if err := os.WriteFile("pacer.yaml", []byte("sinks: {receiver: {type: discard}, other: {type: log}}\ndefault_sink: receiver\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := shards.Connect(shards.Options{Addrs: []string{store.Addr}, Mode: shards.ModeSingle})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = set.Close() }()
	engine, err := limits.New(limits.Options{Shards: set, KeyPrefix: "pacer.", Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	list := func() (views []view.Sink) {
		t.Helper()
		if err := json.Unmarshal([]byte(d.run("sink list --json")), &views); err != nil || len(views) != 2 {
			t.Fatalf("%+v, %v", views, err)
		}
		return views
	}
	for _, v := range list() {
		if len(v.Gates) > 0 {
			t.Errorf("%+v", v)
		}
	}
	if out := d.run("sink open receiver"); out != "the gate of sink receiver was open\n" {
		t.Error(out)
	}
	closure := delivery.Closure{Cause: delivery.GateThrottled, For: time.Hour}
	if _, err := engine.CloseGate(context.Background(), "receiver", closure); err != nil {
		t.Fatal(err)
	}
	v := list()[1]
	if g := gate(&v); v.Name != "receiver" || v.MaxInFlight < 1 || g.Cause != "throttled" || g.Since == nil || g.Until == nil ||
		g.Until.Sub(*g.Since).Round(time.Minute) != time.Hour {
		t.Errorf("%+v", v)
	}
	if table := d.run("sink list"); !strings.Contains(table, "SINK ") || !strings.Contains(table, "closed  throttled  20") {
		t.Error(table)
	}
	d.run("campaign create spring --rate 10")
	if _, err := engine.CloseGate(context.Background(), "other", delivery.Closure{Cause: delivery.GateFailing}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // until the end of the second in which the next job is tried
	if table := d.run("sink list"); !strings.Contains(table, "half-open  failing ") {
		t.Error(table)
	}
	d.tell(store.Addr)
	if text := d.run("explain spring"); !strings.Contains(text, "receiver") || !strings.Contains(text, "is closed until 20") || !strings.Contains(text, "since    20") {
		t.Error(text)
	}
	code, out, said := d.fails("sink open receiver")
	if code != 0 || !strings.HasPrefix(out, "opened the gate of sink receiver\n") ||
		!strings.Contains(said, "gate opened by hand") || !strings.Contains(said, operator()) {
		t.Errorf("code %d, %s%s", code, out, said)
	}
	if v := list()[1]; len(v.Gates) > 0 {
		t.Errorf("%+v", v)
	}
	if code, _, said := d.fails("sink open recever"); code != 1 || !strings.Contains(said, "the configuration has no sink recever; it has ") {
		t.Errorf("code %d, %s", code, said)
	}
}

// TestClosedDestinations: they are counted, listed up to a limit, and opened by hand.
func TestClosedDestinations(t *testing.T) {
	store := testservices.FreshRedis(t)
	d := newDesk(t, store.Addr)
	if err := os.WriteFile("pacer.yaml", []byte("sinks: {shops: {type: discard}, other: {type: log}}\ndefault_sink: shops\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := shards.Connect(shards.Options{Addrs: []string{store.Addr}, Mode: shards.ModeSingle})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = set.Close() }()
	engine, err := limits.New(limits.Options{Shards: set, KeyPrefix: "pacer.", Registerer: prometheus.NewRegistry()})
	if err != nil {
		t.Fatal(err)
	}
	gate := func(name string, cause delivery.GateCause, d time.Duration) delivery.Gate {
		return delivery.Gate{
			Sink: "shops", Cause: cause, Until: time.Now().Add(d), Destination: name,
		}
	}
	gates := []delivery.Gate{gate("https://a:443", delivery.GateThrottled, time.Hour), gate("shop-7", delivery.GateRefused, time.Microsecond)}
	if err := engine.MoveDestinations(t.Context(), gates); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second) // until the end of the second in which shop-7 is tried
	var list []view.ClosedDestination
	if err := json.Unmarshal([]byte(d.run("sink destinations shops --json")), &list); err != nil || len(list) != 2 {
		t.Fatalf("%+v, %v", list, err)
	}
	if list[0].Destination != "shop-7" || list[0].Cause != "refused" || list[1].Until == nil {
		t.Errorf("%+v", list)
	}
	if table := d.run("sink destinations shops"); strings.Count(table, "  half-open  refused ") != 1 || strings.Count(table, "  closed ") != 1 {
		t.Error(table)
	}
	d.run("campaign create spring --rate 1")
	d.fields(d.run("explain spring"), "closed gates 2 destinations of its sink, of any campaign: pacer sink destinations shops")
	var sinks []view.Sink
	if err := json.Unmarshal([]byte(d.run("sink list --json")), &sinks); err != nil || len(sinks) != 2 || sinks[1].Closed() != 2 || sinks[0].Closed() != 0 {
		t.Errorf("%+v, %v", sinks, err)
	}
	if _, out, said := d.fails("sink destinations shops --limit 1"); strings.Contains(out, "https://a") || !strings.Contains(said, "2 destinations of sink shops are closed; 1 are listed") {
		t.Errorf("%s%s", out, said)
	}
	if _, out, said := d.fails("sink open shops --destination https://a:443"); !strings.HasPrefix(out, "opened destination https://a:443 of sink shops\n") ||
		!strings.Contains(said, operator()) {
		t.Errorf("%s%s", out, said)
	}
	if out := d.run("sink open shops --destination https://a:443"); !strings.Contains(out, "was open") {
		t.Error(out)
	}
	for _, wrong := range []string{"sink destinations shop", "sink destinations shops --limit 0", "sink open shops --destination="} {
		if code, _, _ := d.fails(wrong); code != 2 {
			t.Errorf("%s: code %d", wrong, code)
		}
	}
}
