package console

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

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
		answer := ask(h, "GET", "/api/v1"+path, "viewer", "")
		list, _, _ := strings.Cut(path, "?")
		if why := described(list, "get", answer); answer.Code != http.StatusOK || why != "" {
			t.Errorf("%s: %d %s: %s", path, answer.Code, why, answer.Body)
		}
		var out map[string]any
		if err := json.Unmarshal(answer.Body.Bytes(), &out); err != nil {
			t.Fatal(err)
		}
		rows, _ := out[list[1:]].([]any)
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
		ask(h, "GET", "/api/v1"+path, "viewer", "").want(t, 422)
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
		"/campaigns?state=": states, "/live?of=campaigns&state=": states, "/dead-letters?reason=": reasons, "/destinations?state=": {"disabled", "failing", "enabled"},
	} {
		name := path[strings.LastIndexAny(path, "?&")+1 : len(path)-1]
		answer := ask(h, "GET", "/api/v1"+path+"banana", "viewer", "")
		if answer.Code != http.StatusUnprocessableEntity || !strings.Contains(answer.Body.String(), `"query.`+name+`"`) {
			t.Errorf("%s: %d %s", path, answer.Code, answer.Body)
		}
		for _, value := range values {
			if !strings.Contains(answer.Body.String(), value) {
				t.Errorf("%s names no %s: %s", path, value, answer.Body)
			}
			if strings.HasPrefix(path, "/campaigns") && ask(h, "GET", "/api/v1"+path+value, "viewer", "").Code != http.StatusOK {
				t.Errorf("%s takes no %s", path, value)
			}
		}
	}
	for path, want := range map[string]string{
		"/campaigns?quota=nosuch": "quota nosuch does not exist", "/live?of=campaigns&quota=nosuch": "quota nosuch does not exist",
		"/campaigns?sink=nosuch": "there is no sink nosuch", "/destinations?sink=nosuch": "there is no sink nosuch",
	} {
		ask(h, "GET", "/api/v1"+path, "viewer", "").want(t, 404, want)
	}
	for body, want := range map[string]int{
		`{"action":"pause","filter":{"state":"banana"},"expect":1}`: http.StatusUnprocessableEntity, `{"action":"pause","filter":{"quota":"nosuch"},"expect":1}`: http.StatusNotFound,
	} {
		if answer := ask(h, "POST", "/api/v1/bulk-changes", "operator", body); answer.Code != want || !strings.Contains(answer.Body.String(), "state") && !strings.Contains(answer.Body.String(), "nosuch") {
			t.Errorf("%s: %d %s", body, answer.Code, answer.Body)
		}
	}
	ask(h, "POST", "/api/v1/replays", "operator", `{"reason":"banana","dry_run":true}`).want(t, 422)
}

// TestHistoryOfACampaign: minutes of up to a day, hours of more, and at most eight days.
func TestHistoryOfACampaign(t *testing.T) {
	h := serve(guarded())
	for query, want := range map[string]struct{ points, seconds int }{"": {60, 60}, "?last=15m": {15, 60}, "?last=7d": {168, 3600}, "?last=60d": {192, 3600}} {
		var past view.Past
		answer := ask(h, "GET", "/api/v1/campaigns/spring/history"+query, "viewer", "")
		if err := json.Unmarshal(answer.Body.Bytes(), &past); err != nil || len(past.Points) != want.points {
			t.Fatalf("%q: %d points, %v: %.300s", query, len(past.Points), err, answer.Body)
		}
		if p := past.Points[0]; p.Seconds != float64(want.seconds) || p.Delivered != 20 || p.Failed != 1 || p.Allowed != 2 || !p.At.Equal(past.Since) {
			t.Errorf("%q: %+v", query, p)
		}
	}
	for query, code := range map[string]int{"spring/history?last=ever": 422, "nobody/history": 404} {
		ask(h, "GET", "/api/v1/campaigns/"+query, "viewer", "").want(t, code)
	}
}

// TestUsageBetween: from and to take the place of last, and what makes no sense is refused.
func TestUsageBetween(t *testing.T) {
	h := serve(guarded())
	for query, want := range map[string]int{
		"from=2999-01-01T00:00:00Z": 422, "from=yesterday": 422, "last=11000d&step=366d": 422, "last=100d&step=1d": 200,
		"from=" + time.Now().Add(-3*time.Hour).UTC().Format(time.RFC3339): 200,
		"to=2001-01-01T00:00:00Z": 422, "from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z": 422,
	} {
		ask(h, "GET", "/api/v1/quotas/provider/usage?"+query, "viewer", "").want(t, want)
	}
	from := time.Now().Add(-5 * time.Hour).UTC().Truncate(time.Hour)
	answer := ask(h, "GET", "/api/v1/quotas/provider/usage?from="+from.Format(time.RFC3339)+"&to="+from.Add(2*time.Hour).Format(time.RFC3339), "viewer", "")
	var out struct{ Usage []catalog.Usage }
	if err := json.Unmarshal(answer.Body.Bytes(), &out); err != nil || len(out.Usage) != 2 || !out.Usage[0].Start.Equal(from) {
		t.Errorf("two hours: %+v, %v", out, err)
	}
}

// TestReadOnly: why nothing can be changed is on each page, and in the status.
func TestReadOnly(t *testing.T) {
	w := newWorld()
	w.readOnly = "the database role <reader> may not change campaigns"
	h := serve(w)
	get(h, "/campaigns").want(t, 200, "<strong>Read-only:</strong> the database role &lt;reader&gt; may not")
	get(h, "/api/v1/status").want(t, 200, `"read_only":"the database role`)
}

// TestLiveEvents: a stream of the API has the answers of an operation, counts among those of the pages, and ends with them and with its
// token.
func TestLiveEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		w.guard.Anonymous = auth.Viewer
		s := newServer()
		s.Site = newSite(prometheus.NewRegistry(), w)
		looking(t, s.Site)
		h := s.routes()
		open := func() int { synctest.Wait(); return s.Site.hub.Open() }
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
		answer := ask(h, "GET", "/api/v1/live", "viewer", "")
		if why := documented(t)("/live", "get", answer); answer.Code != http.StatusServiceUnavailable || answer.Header().Get("Retry-After") != "10" ||
			!strings.Contains(answer.Body.String(), ":busy") || why != "" {
			t.Errorf("one too many: %d %s (%s)", answer.Code, answer.Body, why)
		}
		get(h, "/live?page=").want(t, 503)
		if s.Site.Close(); open() != 0 {
			t.Error("streams keep the server from ending")
		}
		for path, want := range map[string]int{"?of=nowhere": 422, "?limit=0": 422, "?page=": 422, "": 503} {
			ask(h, "GET", "/api/v1/live"+path, "viewer", "").want(t, want)
		}
	})
}
