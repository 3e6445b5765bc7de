package console

import (
	"context"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/progress"
)

// row returns the row of a table that has this.
func row(body, has string) string {
	for _, one := range strings.Split(body, "<tr") {
		if one, _, _ = strings.Cut(one, "</tr>"); strings.Contains(one, has) {
			return strings.Join(strings.Fields(one), " ")
		}
	}
	return ""
}

// shows reports what of a row is missing.
func shows(t *testing.T, row string, want ...string) {
	t.Helper()
	for _, says := range want {
		if !strings.Contains(row, says) {
			t.Errorf("it does not say %q: %s", says, row)
		}
	}
}

// TestDaemonsTellTheirFigures, each its own.
func TestDaemonsTellTheirFigures(t *testing.T) {
	h := serve(newWorld())
	body := get(h, "/daemons").Body.String()
	shows(t, row(body, "&lt;script"), "4 ingress, 32 lanes, 8 timers", `stalled</span> <small>1`, "receiver 12 of 256",
		"&lt;script&gt;alert(1)&lt;/script&gt; 1 of 5", "100 MiB<br><small>of 256 MiB", `data-label="Late p50, p99">0.4 ms, 12 ms<`,
		`data-label="Forfeited/s">0.5<`, `data-label="Quantum">25 ms<`)
	shows(t, row(body, ">idle "), "0 ingress, 7 lanes, 0 timers<", `data-label="In flight">3<`, `data-label="Late p50, p99">–, –<`)
	daemons := read[struct{ Daemons []progress.Daemon }](t, get(h, "/api/v1/daemons")).Daemons
	if daemons[0].Figures == nil || *daemons[0].Figures.LatenessP99 != 0.012 || daemons[1].Figures.LatenessP99 != nil {
		t.Errorf("%+v", daemons)
	}
}

// TestSinksTellTheirFigures: of all daemons, which of their gates are closed and until when, and an operator may open these.
func TestSinksTellTheirFigures(t *testing.T) {
	w := guarded()
	sources := w.sources()
	state := view.NewWatcher(sources).Look(t.Context())
	if len(state.Sinks) != 2 || state.Sinks[1].Name != hostile[0] || state.Sinks[1].Type != "" {
		t.Errorf("%d sinks", len(state.Sinks))
	}
	h := serve(w)
	body := visit(h, "/sinks", "operator").Body.String()
	shows(t, row(body, ">receiver <small>default"), `throttled</span>, next probe <time`, "12 <small>of 256, told by 1 of 2 daemons",
		`120 <span class="state good">delivered`, `0.25 <span class="state bad">temporary`, `data-label="p50, p99">42 ms, 2.5 s<`,
		`action="sink-open"><input type="hidden" name="id" value="receiver">`+
			`<label>Reason <input name="reason" maxlength="500"></label> <button aria-label="Open receiver">Open`)
	shows(t, row(body, "not configured here"), "&lt;script&gt;", `data-label="p50, p99">–, –<`, `data-label="Answers/s">none<`)
	shows(t, body, "Destinations of receiver whose own gates are closed: 25, of which those that were changed last are listed", "next probe <time")
	if listed, reasons := strings.Count(body, `name="destination"`), strings.Count(body, `name="reason"`); listed != 20 || reasons != listed+1 {
		t.Errorf("%d destinations are listed, and %d forms ask for a reason", listed, reasons)
	}
	visit(h, "/sinks", "viewer").want(t, 200).lacks(t, "sink-open")
	const by = " open by the-operator@127.0.0.1: "
	press(h, "/sink-open", "operator", typed("id=receiver&reason=+mended+")).leads(t, "sinks?done=opened")
	press(h, "/sink-open", "operator", typed("id=receiver&destination=open")).leads(t, "sinks?done=open")
	w.did(t, "sink receiver "+by+"mended", "sink receiver open"+by)
	press(h, "/sink-open", "operator", typed("id=nowhere")).want(t, 404)
	press(h, "/sink-open", "operator", typed("id=receiver&reason=two%0Alines")).want(t, 422)
	w.did(t)
}

// TestCampaignsThatASinkDoesNotTake are listed with it, and what is not known is not 0.
func TestCampaignsThatASinkDoesNotTake(t *testing.T) {
	w := newWorld()
	sources := w.sources()
	fleet := sources.Fleet
	sources.Gates = nil
	sources.Fleet = func(ctx context.Context) (*view.Fleet, error) {
		f, err := fleet(ctx)
		f.Of = func(c *delivery.Campaign) *hold.Board {
			b := &hold.Board{Daemons: 2, Backlog: delivery.Backlog{Waiting: 5}, LanesRead: true}
			if strings.HasPrefix(c.ID, "campaign-") {
				b.Stuck = hold.Failing
			}
			return b
		}
		f.Sinks = nil
		return f, err
	}
	w.crowd(30)
	watcher := view.NewWatcher(sources)
	sinks := watcher.Sinks(t.Context(), watcher.Look(t.Context()), view.ListedOfSink)
	if len(sinks) != 1 || len(sinks[0].HeldCampaigns) != 20 || sinks[0].HeldCampaigns[0].Cause != "failing" || sinks[0].Held != 30 || sinks[0].Figures != nil {
		t.Errorf("%+v", sinks[0])
	}
	w.fail = errAway
	get(serve(w), "/api/v1/sinks").want(t, 200).lacks(t, "closed_destinations", "figures") // without Redis
}
