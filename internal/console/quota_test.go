package console

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/console/view"
)

// TestPreviewOfAQuota: what a change would mean is shown, and nothing is done.
func TestPreviewOfAQuota(t *testing.T) {
	w := guarded()
	h := serve(w)
	cookie := login(t, h, "admin")
	for _, tt := range []struct {
		windows, revision string
		code              int
		want              []string
	}{
		{"2000/1h, 300/1m", "7", http.StatusOK, []string{"Not changed yet", ">room<", ">new<", "the window of 1h would allow 0.56, which is less", `value="2000/1h, 300/1m"`}},
		{"1/1h", "7", http.StatusOK, []string{"used up: nothing is sent until it has room again"}},
		{"1000000/1s", "7", http.StatusOK, []string{">removed<", "the window of 1s would allow 1\u202f000\u202f000."}},
		{"", "7", http.StatusOK, []string{">removed<", "by their schedules now."}},
		{"many/1h", "7", http.StatusUnprocessableEntity, []string{"must be a whole number"}},
		{"2000/1h", "6", http.StatusPreconditionFailed, []string{"provider was changed after this form was opened"}},
	} {
		answer := submit(h, "/quota-edit", cookie, url.Values{
			"id": {"provider"}, "revision": {tt.revision}, "windows": {tt.windows}, "was_windows": {"1000/1h"}, "preview": {"yes"},
		})
		if answer.Code != tt.code || len(w.changes) > 0 {
			t.Errorf("%s: %d, asked %q", tt.windows, answer.Code, w.changes)
		}
		for _, want := range tt.want {
			if !strings.Contains(answer.Body.String(), want) {
				t.Errorf("%s: %q is not in %s", tt.windows, want, answer.Body)
			}
		}
	}
}

// TestConflictOfAQuota: the slower user gets the other change and the typed values, and nothing is written. An existing quota is not
// created.
func TestConflictOfAQuota(t *testing.T) {
	w := guarded()
	h := serve(w)
	cookie := login(t, h, "admin")
	for _, tt := range []struct {
		path     string
		form     url.Values
		code     int
		contains string
	}{
		{"/quota-edit", url.Values{"id": {"provider"}, "revision": {"6"}, "windows": {"5/1s"}, "was_windows": {"900/1h"}}, 412, "now: 1000/1h"},
		{"/quota-edit", url.Values{"id": {"provider"}, "revision": {"6"}, "windows": {"5/1s"}, "was_windows": {"900/1h"}}, 412, "What was changed meanwhile"},
		{"/quota-edit", url.Values{"id": {"provider"}, "revision": {"7"}, "rollout": {"many"}}, 422, `value="many"`},
		{"/quota-edit", url.Values{"id": {"nothing"}, "revision": {"7"}, "rollout": {"5"}}, 404, "does not exist"},
		{"/quota-edit", url.Values{"id": {"provider"}, "rollout": {"5"}}, 422, "has no revision"},
		{"/quota-create", url.Values{"id": {"provider"}, "windows": {"5/1s"}}, 409, `value="5/1s"`},
		{"/create", url.Values{"id": {"spring"}, "rate": {"77"}}, 409, `value="77"`},
		{"/quota-delete", url.Values{"id": {"provider"}, "typed": {"provide"}, "revision": {"7"}}, 422, "nothing was deleted"},
		{"/quota-delete", url.Values{"id": {"provider"}, "typed": {"provider"}, "revision": {"6"}}, 412, "changed meanwhile"},
		{"/quota-adjust", url.Values{"id": {"provider"}, "span": {"1h"}, "used": {"all"}, "reason": {"credit"}}, 422, "not a whole number"},
	} {
		answer := submit(h, tt.path, cookie, tt.form)
		if answer.Code != tt.code || len(w.changes) > 0 || !strings.Contains(answer.Body.String(), tt.contains) {
			t.Errorf("%s %v: %d, asked %v: %s", tt.path, tt.form, answer.Code, w.changes, answer.Body)
		}
	}
}

// TestPagesOfQuotas: the API's list has them all, page by page.
func TestPagesOfQuotas(t *testing.T) {
	w := newWorld()
	h := serve(w)
	seen, after := map[string]bool{}, ""
	for range len(w.snapshot.Quotas) {
		var out struct {
			Quotas []struct{ ID string }
			Total  int
			Next   string
		}
		_, body, _ := get(h, "/api/v1/quotas?limit=3&after="+url.QueryEscape(after)).parts()
		if err := json.Unmarshal([]byte(body), &out); err != nil || len(out.Quotas) == 0 || out.Total != len(w.snapshot.Quotas) {
			t.Fatalf("%s, %v", body, err)
		}
		for _, q := range out.Quotas {
			seen[q.ID] = true
		}
		if after = out.Next; after == "" {
			break
		}
	}
	if len(seen) != len(w.snapshot.Quotas) || after != "" {
		t.Errorf("%d of %d quotas, then %q", len(seen), len(w.snapshot.Quotas), after)
	}
	if _, body, header := get(h, "/api/v1/quotas/provider").parts(); header.Get("ETag") != `"0"` {
		t.Errorf("ETag %s of %s", header.Get("ETag"), body)
	}
}

// TestCountsWithoutRedis: a console that has only the database says that it can neither correct counts nor hold keys.
func TestCountsWithoutRedis(t *testing.T) {
	s := newServer()
	s.Site = newSiteOf(prometheus.NewRegistry(), guarded(), func(sources *view.Sources) { sources.Adjust, sources.Key, sources.SetKey = nil, nil, nil })
	h := s.routes()
	cookie := login(t, h, "admin")
	for path, form := range map[string]url.Values{
		"/quota-adjust": {"id": {"provider"}, "span": {"1h"}, "used": {"5"}, "reason": {"credit"}}, "/key-hold": {"id": {"provider"}, "key": {"anna"}, "until": {"2h"}},
	} {
		submit(h, path, cookie, form).want(t, 503, "Redis and the database must be known")
	}
}
