package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/progress"
)

// TestPlans: of what is set and of what is not; of anything that makes no sense in one line.
func TestPlans(t *testing.T) {
	w := guarded()
	spring := *w.snapshot.Campaigns["spring"]
	spring.FinishBy = time.Now().Add(time.Hour)
	w.snapshot.Campaigns["spring"] = &spring
	w.snapshot.Campaigns["rival"] = campaign("rival", spring.Quotas...)
	w.waiting.Store(36_000)
	h := serve(w)
	const path = "/api/v1/campaigns/spring/plan"
	plan := func(query string) (p progress.Plan) {
		t.Helper()
		answer := ask(h, "GET", path+query, "viewer", "")
		if err := json.Unmarshal(answer.Body.Bytes(), &p); err != nil || answer.Code != http.StatusOK {
			t.Fatalf("%s: %d %s, %v", query, answer.Code, answer.Body, err)
		}
		return p
	}
	if p := plan(""); p.Jobs != 36_000 || p.SendRate != 100 || p.Needed == nil || p.Late == nil || p.Late.Limit != "quota provider" || len(p.Quotas) != 1 || p.FinishBy == nil {
		t.Errorf("%+v", p)
	}
	if all, without := plan("").Quotas[0].PerSecond, plan("?pause=rival&pause=paused").Quotas[0].PerSecond; without <= all {
		t.Errorf("the quota leaves %f, and without a rival %f", all, without)
	}
	if p := plan("?rate=5&finish_by=2100-01-01T00:00"); p.SendRate != 5 || p.Late != nil || p.FinishBy.Year() != 2100 || p.DoneAt == nil {
		t.Errorf("%+v", p)
	}
	for query, says := range map[string]string{
		"?rate=fast":                      "rate: ",
		"?finish_by=soon":                 "finish_by: ",
		"?finish_by=2020-01-01T00:00:00Z": "is not ahead",
		"?pause=nobody":                   "campaign nobody does not exist; create it with",
		"?colour=red":                     "colour",
	} {
		answer := ask(h, "GET", path+query, "viewer", "")
		if answer.Code != http.StatusUnprocessableEntity && answer.Code != http.StatusNotFound || !strings.Contains(answer.Body.String(), says) {
			t.Errorf("%s: %d %s", query, answer.Code, answer.Body)
		}
	}
	if answer := ask(h, "GET", "/api/v1/campaigns/nobody/plan", "viewer", ""); answer.Code != http.StatusNotFound {
		t.Errorf("nobody: %d", answer.Code)
	}
}

// TestLateIsAnswered: a change of a campaign that will be late says so, and so do its page and its answer.
func TestLateIsAnswered(t *testing.T) {
	w := guarded()
	spring := *w.snapshot.Campaigns["spring"]
	w.snapshot.Campaigns["spring"] = &spring
	spring.FinishBy, spring.Quotas = time.Now().Add(time.Hour), nil
	spring.Rate = delivery.PerSecond(5)
	w.waiting.Store(36_000)
	h := serve(w)
	const path, late = "/api/v1/campaigns/spring", "after its finish_by: send_rate is in the way"
	if answer := ask(h, "PATCH", path, "admin", `{"finish_by":"2100-01-01T18:00"}`, "If-Match", "*"); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), late) {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
	if answer := ask(h, "GET", path, "viewer", ""); !strings.Contains(answer.Body.String(), late) {
		t.Errorf("%s", answer.Body)
	}
	if answer := ask(h, "GET", "/campaign?id=spring", "viewer", ""); !strings.Contains(answer.Body.String(), late) || !strings.Contains(answer.Body.String(), "Finish by") {
		t.Errorf("%s", answer.Body)
	}
	if asked := strings.Join(w.changes, "\n"); !strings.Contains(asked, `"finish_by":"2100-01-01T18:00:00Z"`) {
		t.Errorf("%s", asked)
	}
	if answer := ask(h, "PATCH", path, "admin", `{"finish_by":"soon"}`, "If-Match", "*"); answer.Code != http.StatusUnprocessableEntity || !strings.Contains(answer.Body.String(), "finish_by: ") {
		t.Errorf("%d %s", answer.Code, answer.Body)
	}
}
