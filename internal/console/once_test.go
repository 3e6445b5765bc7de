package console

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
)

// TestProblemsHaveTypes: clients tell problems apart by their types, where several have one status as well.
func TestProblemsHaveTypes(t *testing.T) {
	w := guarded()
	h := serve(w)
	const spring = "/api/v1/campaigns/spring"
	for _, tt := range []struct {
		method, path, role, body, match, kind string
		code                                  int
	}{
		{"GET", "/api/v1/campaigns/nobody", "viewer", "", "", "not-found", 404}, {"GET", "/api/v1/nothing", "viewer", "", "", "not-found", 404},
		{"PUT", "/api/v1/status", "viewer", "", "", "method-not-allowed", 405}, {"GET", spring, "", "", "", "token-required", 401},
		{"GET", spring, "guess", "", "", "token-unknown", 401}, {"POST", spring + "/cancel", "viewer", "", `"7"`, "role-required", 403},
		{"PATCH", spring, "operator", `{"rate":"5"}`, "", "revision-required", 428}, {"PATCH", spring, "operator", `{"rate":"5"}`, `"6"`, "stale-revision", 412},
		{"PATCH", spring, "operator", `{"rate":"x"}`, `"7"`, "invalid", 422}, {"PATCH", spring, "operator", `{"rate`, `"7"`, "malformed", 400},
		{"POST", "/api/v1/campaigns", "admin", `{"id":"spring"}`, "", "exists", 409}, {"DELETE", "/api/v1/campaigns/paused", "admin", "", `"7"`, "in-use", 409},
		{"POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","filter":{"q":"spring"},"expect":9}`, "", "count-changed", 409},
		{"POST", spring + "/pause", "operator", `{"until":"` + strings.Repeat("x", 70<<10) + `"}`, "", "too-large", 413},
	} {
		answer := ask(h, tt.method, tt.path, tt.role, tt.body, "If-Match", tt.match)
		var problem struct {
			Type   string
			Status int
		}
		if err := json.Unmarshal(answer.Body.Bytes(), &problem); err != nil || answer.Code != tt.code || problem.Status != tt.code || problem.Type != "urn:pacer:problem:"+tt.kind {
			t.Errorf("%s %s: %d %s, want %s (%v)", tt.method, tt.path, answer.Code, answer.Body, tt.kind, err)
		}
	}
	foreign := ask(h, "POST", spring+"/pause", "operator", "", "Origin", "https://evil.example", "Sec-Fetch-Site", "cross-site")
	if foreign.Code != http.StatusForbidden || !strings.Contains(foreign.Body.String(), `"urn:pacer:problem:foreign-origin"`) {
		t.Errorf("from another site: %d %s", foreign.Code, foreign.Body)
	}
	w.fail = view.Fault(catalog.ErrForbidden, "the role may only read")
	ask(h, "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","filter":{"q":"spring"},"expect":1}`).want(t, 409,
		`"urn:pacer:problem:partly-done"`)
}

// TestPut: something is created or replaced whole, as the condition says, and what is left out gets its default.
func TestPut(t *testing.T) {
	w := guarded()
	h := serve(w)
	const all = `"quotas":[],"priority_weight":1,"burst":0,"max_in_flight":0,"overflow":"lane","starts_at":"","ends_at":"","finish_by":"","active_hours":"","time_zone":"UTC","time_zone_missing":"","avoid_minutes":"","ramp":"","job_ttl":"","expected_total":0}`
	for _, tt := range []struct {
		path, body, match, none string
		code                    int
		asked                   string
	}{
		{"/campaigns/autumn", `{"rate":"5","reason":"why"}`, "", "*", 201, `new autumn {"rate":"5","sink":"",` + all + ` by the-admin@127.0.0.1: why`},
		{"/campaigns/spring", `{}`, `"7"`, "", 200, `spring {"rate":"0","sink":"",` + all + ` by the-admin@127.0.0.1: `},
		{"/campaigns/spring", `{}`, `*`, "", 200, `spring {"rate":"0","sink":"",` + all + ` by the-admin@127.0.0.1: `},
		{"/campaigns/spring", `{}`, "", "*", 412, ""}, {"/campaigns/spring", `{}`, `"6"`, "", 412, ""}, {"/campaigns/autumn", `{}`, `*`, "", 412, ""},
		{"/campaigns/spring", `{}`, "", "", 428, ""}, {"/campaigns/spring", `{}`, `"7"`, "*", 422, ""}, {"/campaigns/spring", `{}`, "", `"7"`, 422, ""},
		{"/campaigns/spring", `{"status":"paused"}`, `"7"`, "", 422, ""},
		{"/quotas/fresh", `{"windows":["5/1s"]}`, "", "*", 201, `quota fresh {"windows":["5/1s"],"mode":"strict","spend":"greedy","on_store_failure":"closed","rollout":100,"unit":"units"} by the-admin@127.0.0.1: `},
		{"/quotas/provider", `{}`, `"7"`, "", 200, `quota provider {"windows":[],"mode":"strict","spend":"greedy","on_store_failure":"closed","rollout":100,"unit":"units"} by the-admin@127.0.0.1: `},
		{"/quotas/provider", `{}`, "", "*", 412, ""}, {"/quotas/fresh", `{}`, `*`, "", 412, ""}, {"/quotas/provider", `{}`, "", "", 428, ""},
	} {
		w.changes = nil
		answer := ask(h, "PUT", "/api/v1"+tt.path, "admin", tt.body, "If-Match", tt.match, "If-None-Match", tt.none)
		if asked := strings.Join(w.changes, ";"); answer.Code != tt.code || asked != tt.asked || tt.code < 300 && answer.Header().Get("ETag") != `"8"` ||
			(tt.code == 201) != (answer.Header().Get("Location") != "") {
			t.Errorf("%s %s %s%s: %d %s; asked %s", tt.path, tt.body, tt.match, tt.none, answer.Code, answer.Body, asked)
		}
	}
}

// ledgerOfReplays is a replay.Book that two processes share.
type ledgerOfReplays struct {
	mu   sync.Mutex
	jobs map[string]json.RawMessage
	stop map[string]bool
}

func (l *ledgerOfReplays) SaveReplay(_ context.Context, id string, job json.RawMessage, _ bool) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.jobs[id] = job
	return l.stop[id], nil
}

func (l *ledgerOfReplays) Replays(context.Context) (list []catalog.ReplayRow, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, job := range l.jobs {
		list = append(list, catalog.ReplayRow{Job: job})
	}
	return list, nil
}

func (l *ledgerOfReplays) StopReplay(_ context.Context, id string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop[id] = true
	return true, nil
}

// TestReplaysOfOthers: what one process replays is shown by another, and stopped there.
func TestReplaysOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		w.book = &ledgerOfReplays{jobs: map[string]json.RawMessage{}, stop: map[string]bool{}}
		w.replay = func(ctx context.Context, _ replay.Request, progress func(int)) (deadletter.ReplayReport, error) {
			progress(3)
			<-ctx.Done()
			return deadletter.ReplayReport{Replayed: 4}, ctx.Err()
		}
		s := newServer()
		s.Site = newSite(prometheus.NewRegistry(), w)
		runs, shows := s.routes(), serve(w)
		begun := ask(runs, "POST", "/api/v1/replays", "operator", `{"limit":7}`)
		var out struct{ Job replay.Job }
		if err := json.Unmarshal(begun.Body.Bytes(), &out); err != nil || begun.Code != http.StatusAccepted {
			t.Fatalf("%d %s", begun.Code, begun.Body)
		}
		time.Sleep(3 * time.Second)
		ask(shows, "GET", "/api/v1/replays/"+out.Job.ID, "viewer", "").want(t, 200, `"state":"running"`, `"replayed":3`)
		ask(shows, "POST", "/api/v1/replays/"+out.Job.ID+"/stop", "operator", "").want(t, 200, `"stopped":true`)
		time.Sleep(3 * time.Second)
		for name, h := range map[string]http.Handler{"its own": runs, "the other": shows} {
			if answer := ask(h, "GET", "/api/v1/replays", "viewer", ""); strings.Count(answer.Body.String(), `"state":"stopped"`) != 1 || !strings.Contains(answer.Body.String(), `"replayed":4`) {
				t.Errorf("%s shows %s", name, answer.Body)
			}
		}
		s.Site.Close()
	})
}
