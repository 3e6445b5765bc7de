package console

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/jobs"
)

// TestJobsAreCancelled by operators, by ids that can be some, and not without a ledger.
func TestJobsAreCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		h := serve(w)
		const without = "set dedupe.ttl and restart the daemons"
		for _, tt := range []struct {
			role, body string
			code       int
			says       string
			asked      []string
		}{
			{"viewer", `{"ids":["u-1"]}`, 403, "operator", nil},
			{
				"operator", `{"ids":["u-1","u-2"],"reason":"ticket"}`, 200, `{"jobs":[{"id":"u-1","campaign":"spring","state":"cancelled"}],"unread":[]}`,
				[]string{`jobs [u-1 u-2] of "" by the-operator@127.0.0.1: ticket`},
			},
			{
				"operator", `{"ids":["u-1"],"campaign":"spring"}`, 200, `"state":"cancelled"`,
				[]string{`jobs [u-1] of "spring" by the-operator@127.0.0.1: `},
			},
			{"operator", `{"ids":["u-1"],"campaign":"winter"}`, 404, "campaign winter does not exist; create it with", nil},
			{"operator", `{"ids":["a b"]}`, 422, `ids: \"a b\" is no id of a job: it must be 1 to 256 printable ASCII characters`, nil},
			{"operator", `{"ids":[]}`, 422, "ids", nil},
			{"operator", `{"ids":["u"` + strings.Repeat(`,"u"`, 1000) + `]}`, 422, "ids", nil},
			{"operator", `{"ids":["` + strings.Repeat("u", 257) + `"]}`, 422, "is no id of a job", nil},
		} {
			ask(h, "POST", "/api/v1/jobs/cancel", tt.role, tt.body).want(t, tt.code, tt.says)
			w.did(t, tt.asked...)
		}
		form := url.Values{"id": {"u-7"}, "last": {"1d"}}
		visit(h, "/job?id=u-7&last=1d", "operator") // it is looked for first
		synctest.Wait()
		visit(h, "/job?id=u-7&last=1d", "operator").want(t, 200,
			`action="job-cancel"><input type="hidden" name="id" value="u-7"><input type="hidden" name="last" value="1d">`)
		press(h, "/job-cancel", "operator", form).leads(t, "job?done=job-cancelled&id=u-7&last=1d")
		w.did(t, `jobs [u-7] of "" by the-operator@127.0.0.1: `)
		visit(h, "/job?done=job-cancelled&id=u-7&last=1d", "operator").want(t, 200, "The job is cancelled")
		w.noLedger = true
		press(h, "/job-cancel", "operator", form).want(t, 409, without)
		ask(h, "POST", "/api/v1/jobs/cancel", "operator", `{"ids":["u-1"]}`).want(t, 409, without)
	})
}

// TestAnswersAreForOperators: viewers see why jobs died, and not what destinations answered, which may be private.
func TestAnswersAreForOperators(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serve(guarded())
		for _, path := range []string{"/api/v1/dead-letters", "/dead.csv", "/dead"} {
			visit(h, path, "viewer") // a page looks for them first
			synctest.Wait()
			visit(h, path, "viewer").want(t, 200, "refused").lacks(t, "answer ..")
			visit(h, path, "operator") // what was found for others is not theirs
			synctest.Wait()
			visit(h, path, "operator").want(t, 200, "refused", "answer ..")
		}
	})
}

// TestAnswersAreHiddenWithPayloads: an answer may repeat the payload, wherever it is shown.
func TestAnswersAreHiddenWithPayloads(t *testing.T) {
	for _, hidden := range []bool{false, true} {
		h, _ := serveOf(guarded(), func(sources *view.Sources) {
			sources.Hidden = hidden
			sources.Job = func(context.Context, jobs.Question) (jobs.Found, error) {
				return jobs.Found{Results: []json.RawMessage{json.RawMessage(`{"job_id":"u-1","outcome":"dead","status":404,"answer":"got echo"}`)}}, nil
			}
		})
		for path, rest := range map[string]string{
			"/api/v1/jobs/u-1": `"status":404`, "/api/v1/destinations/shop-7": `"status":410`, "/destination?id=shop-7": "410",
		} {
			if body := visit(h, path, "operator").want(t, 200, rest).Body.String(); strings.Contains(body, "got echo") == hidden {
				t.Errorf("hidden %t: %s: %s", hidden, path, body)
			}
		}
	}
}
