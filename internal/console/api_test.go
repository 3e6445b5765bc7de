package console

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/live"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// TestFieldsOfLists: a list has the members that were asked for, and what is no member is refused by name.
func TestFieldsOfLists(t *testing.T) {
	h, described := serve(guarded()), documented(t)
	for path, want := range map[string]string{
		"/campaigns?fields=id,state": "id state", "/campaigns?fields=id&limit=1": "id", "/quotas?fields=windows,id": "id windows",
		"/destinations?fields=id,state": "id state", "/changes?fields=number,fields": "fields number",
	} {
		answer := visit(h, "/api/v1"+path, "viewer")
		list, _, _ := strings.Cut(path, "?")
		if why := described(list, "get", answer); why != "" {
			t.Errorf("%s: %s", path, why)
		}
		rows, _ := read[map[string]any](t, answer)[list[1:]].([]any)
		if len(rows) == 0 {
			t.Errorf("%s: none", path)
		}
		for _, row := range rows {
			if has := strings.Join(slices.Sorted(maps.Keys(row.(map[string]any))), " "); has != want {
				t.Errorf("%s: a row has %s", path, has)
			}
		}
	}
	for _, path := range []string{"/campaigns?fields=id,payload", "/campaigns?fields=", "/quotas?fields=ID"} {
		visit(h, "/api/v1"+path, "viewer").want(t, 422)
	}
}

// TestFiltersThatNothingCanMatch: a value that is none is refused with those that there are, and a quota or a sink that does not exist is named.
func TestFiltersThatNothingCanMatch(t *testing.T) {
	h := serve(guarded())
	states, reasons := []string{view.Sending, view.Ramping, view.Idle, string(delivery.StatusActive)}, []string{}
	for _, cause := range hold.Causes[1:] {
		states = append(states, string(cause))
	}
	for _, reason := range delivery.DeadReasons {
		reasons = append(reasons, string(reason))
	}
	for path, values := range map[string][]string{
		"/campaigns?state=": states, "/live?of=campaigns&state=": states, "/dead-letters?reason=": reasons,
		"/destinations?state=": {"disabled", "failing", "enabled"},
	} {
		name := path[strings.LastIndexAny(path, "?&")+1 : len(path)-1]
		visit(h, "/api/v1"+path+"banana", "viewer").want(t, 422, append(values, `"query.`+name+`"`)...)
	}
	for _, state := range states {
		visit(h, "/api/v1/campaigns?state="+state, "viewer").want(t, 200)
	}
	for path, want := range map[string]string{
		"/campaigns?quota=nosuch": "quota nosuch does not exist", "/live?of=campaigns&quota=nosuch": "quota nosuch does not exist",
		"/campaigns?sink=nosuch": "there is no sink nosuch", "/destinations?sink=nosuch": "there is no sink nosuch",
	} {
		visit(h, "/api/v1"+path, "viewer").want(t, 404, want)
	}
	const bulk = "/api/v1/bulk-changes"
	ask(h, "POST", bulk, "operator", `{"action":"pause","filter":{"state":"banana"},"expect":1}`).want(t, 422, "state")
	ask(h, "POST", bulk, "operator", `{"action":"pause","filter":{"quota":"nosuch"},"expect":1}`).want(t, 404, "nosuch")
}

// TestHistoryOfACampaign: minutes of up to a day, hours of more, and at most eight days.
func TestHistoryOfACampaign(t *testing.T) {
	h := serve(guarded())
	for query, want := range map[string]struct {
		points  int
		seconds float64
	}{"": {60, 60}, "?last=15m": {15, 60}, "?last=7d": {168, 3600}, "?last=60d": {192, 3600}} {
		past := read[view.Past](t, visit(h, "/api/v1/campaigns/spring/history"+query, "viewer"))
		if len(past.Points) != want.points {
			t.Fatalf("%q: %d points", query, len(past.Points))
		}
		if p := past.Points[0]; p.Seconds != want.seconds || p.Delivered != 20 || p.Failed != 1 || p.Allowed != 2 || !p.At.Equal(past.Since) {
			t.Errorf("%q: %+v", query, p)
		}
	}
	visit(h, "/api/v1/campaigns/spring/history?last=ever", "viewer").want(t, 422)
	visit(h, "/api/v1/campaigns/nobody/history", "viewer").want(t, 404)
}

// TestUsageBetween: from and to take the place of last, and what makes no sense is refused.
func TestUsageBetween(t *testing.T) {
	h := serve(guarded())
	const usage = "/api/v1/quotas/provider/usage?"
	from := time.Now().Add(-5 * time.Hour).UTC().Truncate(time.Hour)
	since, until := "from="+from.Format(time.RFC3339), "&to="+from.Add(2*time.Hour).Format(time.RFC3339)
	for query, want := range map[string]int{
		"from=2999-01-01T00:00:00Z": 422, "from=yesterday": 422, "last=11000d&step=366d": 422, "last=100d&step=1d": 200, since: 200,
		"to=2001-01-01T00:00:00Z": 422, "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z": 422,
	} {
		visit(h, usage+query, "viewer").want(t, want)
	}
	out := read[struct{ Usage []catalog.Usage }](t, visit(h, usage+since+until, "viewer"))
	if len(out.Usage) != 2 || !out.Usage[0].Start.Equal(from) {
		t.Errorf("two hours: %+v", out)
	}
}

// TestLiveEvents: a stream of the API has the answers of an operation. Streams count together with those of the pages, are bounded, so that viewers,
// who need no token, do not take the last ones, and end before the server does.
func TestLiveEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		w.guard.Anonymous = auth.Viewer
		h, site := serveOf(w)
		looking(t, site)
		open := func() int { synctest.Wait(); return site.hub.Open() }
		events, leave := watch(t, h, "/api/v1/live?of=campaigns&q=spring&limit=1")
		for range 2 {
			id, data, _ := strings.Cut(events(), "\ndata: ")
			var out struct {
				Campaigns []view.Campaign
				Total     int
			}
			if err := json.Unmarshal([]byte(data), &out); err != nil || !strings.HasPrefix(id, "id: ") || !strings.HasSuffix(data, "\n\n") ||
				len(out.Campaigns) != 1 || out.Campaigns[0].ID != "spring" || out.Total != 1 {
				t.Errorf("%s: %.300q, %v", id, data, err)
			}
			time.Sleep(time.Second)
		}
		if leave(); open() != 0 {
			t.Error("a stream goes on without a reader")
		}
		for _, of := range []string{"", "?of=status", "?of=quotas&limit=2", "?of=sinks", "?of=daemons"} {
			events, leave := watch(t, h, "/api/v1/live"+of)
			if _, data, _ := strings.Cut(events(), "\ndata: "); !json.Valid([]byte(data)) {
				t.Errorf("%s: %.300q", of, data)
			}
			leave()
		}
		events, leave = watch(t, h, "/api/v1/live?of=replays")
		defer leave()
		if first := events(); !strings.HasSuffix(first, "data: {\"replays\":[]}\n\n") {
			t.Errorf("the first event is %q", first)
		}
		time.Sleep(16 * time.Second) // nothing changes
		if beat := events(); beat != ":\n\n" {
			t.Errorf("in 16 seconds there were %q", beat)
		}
		for i := range live.MaxOfViewers - 1 {
			_, leave := watch(t, h, []string{"/live?page=", "/api/v1/live"}[i%2])
			defer leave()
		}
		if n := open(); n != live.MaxOfViewers {
			t.Errorf("%d streams are open", n)
		}
		tooMany := visit(h, "/api/v1/live", "viewer").want(t, 503, ":busy")
		if why := documented(t)("/live", "get", tooMany); why != "" || tooMany.Header().Get("Retry-After") != "10" {
			t.Errorf("one too many: %v (%s)", tooMany.Header(), why)
		}
		if header := get(h, "/live?page=").want(t, 503).Header(); header.Get("Retry-After") == "" {
			t.Errorf("a page too many: %v", header)
		}
		if n := testutil.ToFloat64(site.requests.WithLabelValues("/live", "503")); n != 1 {
			t.Errorf("%v refused streams of pages are counted", n)
		}
		for range live.MaxStreams - live.MaxOfViewers { // which are kept for operators
			_, leave := watch(t, h, "/api/v1/live", "Authorization", "Bearer operatoroperator")
			defer leave()
		}
		if n := open(); n != live.MaxStreams {
			t.Errorf("%d streams are open with those of operators", n)
		}
		visit(h, "/api/v1/live", "operator").want(t, 503)
		if site.Close(); open() != 0 {
			t.Error("streams keep the server from ending")
		}
		for path, want := range map[string]int{
			"/api/v1/live?of=nowhere": 422, "/api/v1/live?limit=0": 422, "/api/v1/live?page=": 422, "/api/v1/live": 503,
			"/live?page=nowhere": 400, "/live?page=changes": 400, "/live?page=": 503,
		} {
			visit(h, path, "viewer").want(t, want)
		}
	})
}
