package command

import (
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/testservices"
)

// gated is a desk with two sinks. Gates of the default one are closed.
func gated(t *testing.T) *desk {
	t.Helper()
	d := newDesk(t, testservices.FreshRedis(t).Addr)
	d.file("pacer.yaml", "sinks: {shops: {type: discard}, other: {type: log}}\ndefault_sink: shops\n")
	d.run("campaign create spring --rate 10")
	return d
}

// list returns both sinks: the other one, and the shops.
func (d *desk) list() (other, shops view.Sink) {
	d.t.Helper()
	views := read[[]view.Sink](d, "sink list")
	if len(views) != 2 || views[0].Name != "other" || views[1].Name != "shops" {
		d.t.Fatalf("%+v", views)
	}
	return views[0], views[1]
}

// opens checks what an opened gate is told with, and that the log says who opened it.
func (d *desk) opens(line, says string) {
	d.t.Helper()
	code, out, said := d.types(line)
	if code != 0 || !strings.HasPrefix(out, says) {
		d.t.Errorf("%s: code %d, %s", line, code, out)
	}
	contains(d.t, said, "gate opened by hand", operator())
}

// TestGatesOfSinks: a closed gate is listed, explained and opened by hand.
func TestGatesOfSinks(t *testing.T) {
	d := gated(t)
	engine := d.engine()
	shut := func(sink string, cause delivery.GateCause, d time.Duration) {
		t.Helper()
		try(engine.MoveGates(t.Context(), []delivery.Gate{{Sink: sink, Cause: cause, Until: time.Now().Add(d)}}))(t)
	}
	if other, shops := d.list(); len(other.Gates)+len(shops.Gates) > 0 {
		t.Errorf("%+v, %+v", other, shops)
	}
	d.prints("sink open shops", "the gate of sink shops was open\n")
	shut("shops", delivery.GateThrottled, time.Hour)
	_, v := d.list()
	if g := gate(&v); v.MaxInFlight < 1 || g.Cause != "throttled" || g.Since == nil || g.Until == nil || g.Until.Sub(*g.Since).Round(time.Minute) != time.Hour {
		t.Errorf("%+v", v)
	}
	d.shows("sink list", "SINK ", "closed  throttled  20")
	shut("other", delivery.GateFailing, 0)
	time.Sleep(time.Second) // until the end of the second in which the next job is tried
	d.shows("sink list", "half-open  failing ")
	d.tell()
	d.shows("explain spring", "shops", "is closed until 20", "since    20")
	d.opens("sink open shops", "opened the gate of sink shops\n")
	if _, v := d.list(); len(v.Gates) > 0 {
		t.Errorf("%+v", v)
	}
	d.refuses(1, "sink open shosp", "the configuration has no sink shosp; it has ")
}

// TestClosedDestinations: they are counted, listed up to a limit, and opened by hand.
func TestClosedDestinations(t *testing.T) {
	d := gated(t)
	gate := func(name string, cause delivery.GateCause, d time.Duration) delivery.Gate {
		return delivery.Gate{Sink: "shops", Cause: cause, Until: time.Now().Add(d), Destination: name}
	}
	gates := []delivery.Gate{gate("https://a:443", delivery.GateThrottled, time.Hour), gate("shop-7", delivery.GateRefused, time.Microsecond)}
	try(d.engine().MoveGates(t.Context(), gates))(t)
	time.Sleep(time.Second) // until the end of the second in which shop-7 is tried
	list := read[[]view.ClosedDestination](d, "sink destinations shops")
	if len(list) != 2 || list[0].Destination != "shop-7" || list[0].Cause != "refused" || list[1].Until == nil {
		t.Errorf("%+v", list)
	}
	if table := d.run("sink destinations shops"); strings.Count(table, "  half-open  refused ") != 1 || strings.Count(table, "  closed ") != 1 {
		t.Error(table)
	}
	d.fields(d.run("explain spring"), "closed gates 2 destinations of its sink, of any campaign: pacer sink destinations shops")
	if other, shops := d.list(); other.Closed() != 0 || shops.Closed() != 2 {
		t.Errorf("%+v, %+v", other, shops)
	}
	if _, out, said := d.types("sink destinations shops --limit 1"); strings.Contains(out, "https://a") ||
		!strings.Contains(said, "2 destinations of sink shops are closed; 1 are listed") {
		t.Errorf("%s%s", out, said)
	}
	d.opens("sink open shops --destination https://a:443", "opened destination https://a:443 of sink shops\n")
	d.shows("sink open shops --destination https://a:443", "was open")
	for _, wrong := range []string{"sink destinations shop", "sink destinations shops --limit 0", "sink open shops --destination="} {
		d.refuses(2, wrong, "")
	}
}
