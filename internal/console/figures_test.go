package console

import (
	"context"
	"encoding/json"
	"net/url"
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
	_, body, _ := get(h, "/daemons").parts()
	shows(t, row(body, "&lt;script"), "4 ingress, 32 lanes, 8 timers", `stalled</span> <small>1`, "receiver 12 of 256", "&lt;script&gt;alert(1)&lt;/script&gt; 1 of 5", "100 MiB<br><small>of 256 MiB",
		`data-label="Late p50, p99">0.4 ms, 12 ms<`, `data-label="Forfeited/s">0.5<`, `data-label="Quantum">25 ms<`)
	shows(t, row(body, ">idle "), "0 ingress, 7 lanes, 0 timers<", `data-label="In flight">3<`, `data-label="Late p50, p99">–, –<`)
	_, body, _ = get(h, "/api/v1/daemons").parts()
	var answer struct{ Daemons []progress.Daemon }
	if err := json.Unmarshal([]byte(body), &answer); err != nil || answer.Daemons[0].Figures == nil || *answer.Daemons[0].Figures.LatenessP99 != 0.012 || answer.Daemons[1].Figures.LatenessP99 != nil {
		t.Errorf("%v: %s", err, body)
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
	body := ask(h, "GET", "/sinks", "operator", "").Body.String()
	shows(t, row(body, ">receiver <small>default"), `throttled</span>, next probe <time`, "12 <small>of 256, told by 1 of 2 daemons", `120 <span class="state good">delivered`, `0.25 <span class="state bad">temporary`,
		`data-label="p50, p99">42 ms, 2.5 s<`, `action="sink-open"><input type="hidden" name="id" value="receiver"><label>Reason <input name="reason" maxlength="500"></label> <button aria-label="Open receiver">Open`)
	shows(t, row(body, "not configured here"), "&lt;script&gt;", `data-label="p50, p99">–, –<`, `data-label="Answers/s">none<`)
	shows(t, body, "Destinations of receiver whose own gates are closed: 25, of which those that were changed last are listed", "next probe <time")
	if n := strings.Count(body, `name="destination"`); n != 20 {
		t.Errorf("%d destinations are listed", n)
	}
	if n := strings.Count(body, `name="reason"`); n != 21 {
		t.Errorf("%d of 21 forms ask for a reason", n)
	}
	ask(h, "GET", "/sinks", "viewer", "").want(t, 200).lacks(t, "sink-open")
	for _, tt := range []struct {
		form url.Values
		code int
		to   string
	}{
		{url.Values{"id": {"receiver"}, "reason": {" mended "}}, 303, "sinks?done=opened"}, {url.Values{"id": {"receiver"}, "destination": {"open"}}, 303, "sinks?done=open"},
		{url.Values{"id": {"nowhere"}}, 404, ""}, {url.Values{"id": {"receiver"}, "reason": {"two\nlines"}}, 422, ""},
	} {
		answer := ask(h, "POST", "/sink-open", "operator", tt.form.Encode(), "Content-Type", "application/x-www-form-urlencoded")
		if answer.Code != tt.code || answer.Header().Get("Location") != tt.to {
			t.Errorf("%v: %d %s", tt.form, answer.Code, answer.Header())
		}
	}
	if len(w.changes) != 2 || w.changes[0] != "sink receiver  open by the-operator@127.0.0.1: mended" {
		t.Errorf("asked %q", w.changes)
	}
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
	_, body, _ := get(serve(w), "/api/v1/sinks").parts()
	if strings.Contains(body, "closed_destinations") || strings.Contains(body, "figures") {
		t.Errorf("without Redis: %s", body)
	}
}
