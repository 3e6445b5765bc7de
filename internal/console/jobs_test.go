package console

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
)

// TestJobsAreCancelled by operators, by ids that can be some, and not without a ledger.
func TestJobsAreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		h := serve(w)
		many := `"` + strings.Join(strings.Fields(strings.Repeat("u ", 1001)), `","`) + `"`
		for i, tc := range []struct {
			role, body string
			code       int
			says       string
		}{
			{"viewer", `{"ids":["u-1"]}`, http.StatusForbidden, "operator"},
			{"operator", `{"ids":["u-1","u-2"],"reason":"ticket"}`, http.StatusOK, `{"jobs":[{"id":"u-1","campaign":"spring","state":"cancelled"}],"unread":[]}`},
			{"operator", `{"ids":["u-1"],"campaign":"spring"}`, http.StatusOK, `"state":"cancelled"`},
			{"operator", `{"ids":["u-1"],"campaign":"winter"}`, http.StatusNotFound, "campaign winter does not exist; create it with"},
			{"operator", `{"ids":["a b"]}`, http.StatusUnprocessableEntity, `ids: \"a b\" is no id of a job: it must be 1 to 256 printable ASCII characters`},
			{"operator", `{"ids":[]}`, http.StatusUnprocessableEntity, "ids"},
			{"operator", `{"ids":[` + many + `]}`, http.StatusUnprocessableEntity, "ids"},
			{"operator", `{"ids":["` + strings.Repeat("u", 257) + `"]}`, http.StatusUnprocessableEntity, "is no id of a job"},
		} {
			answer := ask(h, "POST", "/api/v1/jobs/cancel", tc.role, tc.body)
			if answer.Code != tc.code || !strings.Contains(answer.Body.String(), tc.says) {
				t.Errorf("%d: %d %s", i, answer.Code, answer.Body)
			}
		}
		if got := fmt.Sprint(w.changes); strings.Count(got, "jobs [") != 2 || !strings.Contains(got, `jobs [u-1 u-2] of ""`) || !strings.Contains(got, `jobs [u-1] of "spring"`) || !strings.Contains(got, "the-operator") {
			t.Error(got)
		}
		cookie, form := login(t, h, "operator"), url.Values{"id": {"u-7"}, "last": {"1d"}}
		ask(h, "GET", "/job?id=u-7&last=1d", "", "", "Cookie", cookie) // it is looked for first
		synctest.Wait()
		const button = `action="job-cancel"><input type="hidden" name="id" value="u-7"><input type="hidden" name="last" value="1d">`
		if page := ask(h, "GET", "/job?id=u-7&last=1d", "", "", "Cookie", cookie).Body.String(); !strings.Contains(page, button) {
			t.Error(page)
		}
		done := submit(h, "/job-cancel", cookie, form)
		if to := done.Header().Get("Location"); to != "job?done=job-cancelled&id=u-7&last=1d" || !strings.Contains(fmt.Sprint(w.changes), "jobs [u-7]") {
			t.Errorf("%d %s %v", done.Code, to, w.changes)
		} else if page := ask(h, "GET", "/"+to, "", "", "Cookie", cookie).Body.String(); !strings.Contains(page, "The job is cancelled") {
			t.Error(page)
		}
		w.noLedger = true
		if answer := submit(h, "/job-cancel", cookie, form); answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "set dedupe.ttl and restart the daemons") {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
		if answer := ask(h, "POST", "/api/v1/jobs/cancel", "operator", `{"ids":["u-1"]}`); answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), "set dedupe.ttl and restart the daemons") {
			t.Errorf("%d %s", answer.Code, answer.Body)
		}
	})
}

// TestAnswersAreForOperators: viewers see why jobs died, and not what destinations answered, which may be private.
func TestAnswersAreForOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(guarded())
		for _, path := range []string{"/api/v1/dead-letters", "/dead.csv", "/dead"} {
			for role, want := range map[string]bool{"viewer": false, "operator": true} {
				ask(h, "GET", path, role, "") // a page looks for them first
				synctest.Wait()
				body := ask(h, "GET", path, role, "").Body.String()
				if strings.Contains(body, "answer ..") != want || !strings.Contains(body, "refused") {
					t.Errorf("%s for a %s: %s", path, role, body)
				}
			}
		}
	})
}
