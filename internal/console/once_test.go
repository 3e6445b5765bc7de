package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
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
	w.fail = view.Fault(view.ErrForbidden, "the role may only read")
	if answer := ask(h, "POST", "/api/v1/bulk-changes", "operator", `{"action":"pause","filter":{"q":"spring"},"expect":1}`); answer.Code != http.StatusConflict ||
		!strings.Contains(answer.Body.String(), `"urn:pacer:problem:partly-done"`) {
		t.Errorf("a part of a change: %d %s", answer.Code, answer.Body)
	}
}

// shelf is a view.Keys that two processes share.
type shelf struct {
	mu   sync.Mutex
	kept map[string]*kept
}

type kept struct {
	shelf       *shelf
	name        string
	fingerprint string
	answer      *view.KeptAnswer
	left        bool
}

func (s *shelf) Claim(_ context.Context, r view.KeyedRequest) (view.KeyClaim, *view.KeptAnswer, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := r.Actor + " " + r.Key
	k := s.kept[name]
	switch {
	case k == nil:
		s.kept[name] = &kept{s, name, string(r.Fingerprint), nil, false}
		return s.kept[name], nil, nil
	case k.fingerprint != string(r.Fingerprint):
		return nil, nil, view.Fault(view.ErrKeyReused, "reused")
	case k.left:
		return nil, nil, view.Fault(view.ErrKeyUnfinished, "not known")
	case k.answer == nil:
		return nil, nil, view.Fault(view.ErrKeyInUse, "in use")
	}
	return nil, k.answer, nil
}

func (k *kept) Keep(_ context.Context, answer view.KeptAnswer) error {
	k.shelf.mu.Lock()
	defer k.shelf.mu.Unlock()
	k.answer = &answer
	return nil
}

func (k *kept) Leave(context.Context) error {
	k.shelf.mu.Lock()
	defer k.shelf.mu.Unlock()
	k.left = true
	return nil
}

func (k *kept) Drop(context.Context) error {
	k.shelf.mu.Lock()
	defer k.shelf.mu.Unlock()
	delete(k.shelf.kept, k.name)
	return nil
}

// TestRequestsAreDoneOnce: what is sent again with its key, to whichever process, is not done again and answered as before.
func TestRequestsAreDoneOnce(t *testing.T) {
	w := guarded()
	w.keys = &shelf{kept: map[string]*kept{}}
	a, b := serve(w), serve(w)
	described := documented(t)
	const campaigns, rates = "/campaigns", "/bulk-changes"
	const percent = `{"action":"percent","percent":50,"filter":{"q":"spring"},"expect":1}`
	var first *httptest.ResponseRecorder
	for i, tt := range []struct {
		h                     http.Handler
		path, role, key, body string
		code, done            int
		kind                  string
	}{
		{a, campaigns, "admin", "k1", `{"id":"autumn","rate":"5"}`, 201, 1, ""}, {b, campaigns, "admin", "k1", `{"id":"autumn","rate":"5"}`, 201, 1, ""},
		{b, campaigns, "admin", "k1", `{"id":"autumn","rate":"6"}`, 422, 1, "key-reused"}, {b, rates, "admin", "k1", percent, 422, 1, "key-reused"},
		{a, rates, "operator", "k1", percent, 200, 2, ""}, {a, rates, "operator", "k1", percent, 200, 2, ""}, {a, rates, "operator", "k2", percent, 200, 3, ""},
		{a, campaigns, "viewer", "k3", `{"id":"autumn"}`, 403, 3, "role-required"}, {a, campaigns, "admin", "k4", `{"id":"spring"}`, 409, 3, "exists"},
		{a, campaigns, "admin", "k4", `{"id":"winter"}`, 201, 4, ""}, // nothing was done with this key before
		{a, campaigns, "admin", strings.Repeat("k", 129), `{"id":"winter"}`, 422, 4, "invalid"}, {a, campaigns, "admin", "ключ", `{"id":"winter"}`, 422, 4, "invalid"},
		{a, campaigns, "admin", "k5", `{"id":"` + strings.Repeat("x", 70<<10) + `"}`, 413, 4, "too-large"},
		{a, campaigns, "admin", "", `{"id":"winter"}`, 201, 5, ""}, {a, campaigns, "admin", "", `{"id":"winter"}`, 201, 6, ""},
	} {
		answer := ask(tt.h, "POST", "/api/v1"+tt.path, tt.role, tt.body, "Idempotency-Key", tt.key)
		if why := described(tt.path, "post", answer); answer.Code != tt.code || len(w.changes) != tt.done || why != "" ||
			tt.kind != "" && !strings.Contains(answer.Body.String(), `"urn:pacer:problem:`+tt.kind+`"`) {
			t.Errorf("%d: %d %s; %d were done, want %d (%s)", i, answer.Code, answer.Body, len(w.changes), tt.done, why)
		}
		switch again := answer.Header().Get("Idempotency-Replayed"); i {
		case 0:
			first = answer
		case 1:
			for _, name := range []string{"ETag", "Location", "Content-Type"} {
				if first.Header().Get(name) == "" || first.Header().Get(name) != answer.Header().Get(name) {
					t.Errorf("%s was %q and is %q", name, first.Header().Get(name), answer.Header().Get(name))
				}
			}
			if again != "true" || answer.Body.String() != first.Body.String() {
				t.Errorf("answered again with %s (%s)", answer.Body, again)
			}
		}
	}
	w.fail = errAway // of some campaigns: how many are not to be halved again
	for range 2 {
		if answer := ask(a, "POST", "/api/v1"+rates, "operator", percent, "Idempotency-Key", "k6"); answer.Code != http.StatusConflict || len(w.changes) != 7 {
			t.Errorf("a part: %d %s; %d were done", answer.Code, answer.Body, len(w.changes))
		}
	}
	for _, tt := range []struct {
		fail        error
		first, then string
	}{
		{view.Fault(view.ErrInDoubt, "the database was lost"), "in-doubt", "key-unfinished"}, // it may have been done, and is not done again
		{errAway, "unavailable", "unavailable"},                                              // nothing was done, and it is tried again
	} {
		w.fail = tt.fail
		for i, kind := range []string{tt.first, tt.then, tt.then} {
			answer := ask(a, "POST", "/api/v1/campaigns/spring/pause", "operator", "", "Idempotency-Key", "k8"+tt.first)
			if why := described("/campaigns/{id}/pause", "post", answer); !strings.Contains(answer.Body.String(), ":"+kind+`"`) || why != "" {
				t.Errorf("%d, %s: %d %s (%s)", i, tt.first, answer.Code, answer.Body, why)
			}
		}
	}
	w.keys.kept["the-admin k7"] = &kept{fingerprint: "of another"}
	if answer := ask(a, "POST", "/api/v1"+campaigns, "admin", `{"id":"x"}`, "Idempotency-Key", "k7"); answer.Code != http.StatusUnprocessableEntity {
		t.Errorf("of another request: %d %s", answer.Code, answer.Body)
	}
}

// TestOneOfTwoAtATime: while a request is being done, the same one is refused.
func TestOneOfTwoAtATime(t *testing.T) {
	w := guarded()
	w.keys = &shelf{kept: map[string]*kept{}}
	inside, release := make(chan struct{}), make(chan struct{})
	w.replay = func(ctx context.Context, r replay.Request, progress func(int)) (replay.Outcome, error) {
		close(inside)
		<-release
		return counted(ctx, r, progress)
	}
	s := newServer()
	s.Site = newSite(prometheus.NewRegistry(), w)
	h := s.routes()
	ended := make(chan *httptest.ResponseRecorder, 1)
	go func() {
		ended <- ask(h, "POST", "/api/v1/replays", "operator", `{"dry_run":true}`, "Idempotency-Key", "k")
	}()
	<-inside
	if answer := ask(h, "POST", "/api/v1/replays", "operator", `{"dry_run":true}`, "Idempotency-Key", "k"); answer.Code != http.StatusConflict || !strings.Contains(answer.Body.String(), ":key-in-use") {
		t.Errorf("the second one: %d %s", answer.Code, answer.Body)
	}
	close(release)
	if answer := <-ended; answer.Code != http.StatusOK {
		t.Errorf("the first one: %d %s", answer.Code, answer.Body)
	}
}

// TestPut: something is created or replaced whole, as the condition says, and what is left out gets its default.
func TestPut(t *testing.T) {
	w := guarded()
	h := serve(w)
	const all = `"quotas":[],"priority_weight":1,"burst":0,"max_in_flight":0,"overflow":"lane","starts_at":"","ends_at":"","active_hours":"","time_zone":"UTC","ramp":"","job_ttl":"","expected_total":0}`
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
		{"/quotas/fresh", `{"windows":["5/1s"]}`, "", "*", 201, `quota fresh {"windows":["5/1s"],"mode":"strict","spend":"greedy","on_store_failure":"closed","rollout":100,"unit":"units"}[][] by the-admin@127.0.0.1: `},
		{"/quotas/provider", `{}`, `"7"`, "", 200, `quota provider {"windows":[],"mode":"strict","spend":"greedy","on_store_failure":"closed","rollout":100,"unit":"units"}[][] by the-admin@127.0.0.1: `},
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
	jobs []replay.Job
	stop map[string]bool
}

func (l *ledgerOfReplays) Save(_ context.Context, job *replay.Job) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := range l.jobs {
		if l.jobs[i].ID == job.ID {
			l.jobs[i] = *job
			return l.stop[job.ID], nil
		}
	}
	l.jobs = append(l.jobs, *job)
	return false, nil
}

func (l *ledgerOfReplays) List(context.Context) ([]replay.Job, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]replay.Job{}, l.jobs...), nil
}

func (l *ledgerOfReplays) Stop(_ context.Context, id string) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop[id] = true
	return true, nil
}

// TestReplaysOfOthers: what one process replays is shown by another, and stopped there.
func TestReplaysOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		w.book = &ledgerOfReplays{stop: map[string]bool{}}
		w.replay = func(ctx context.Context, _ replay.Request, progress func(int)) (replay.Outcome, error) {
			progress(3)
			<-ctx.Done()
			return replay.Outcome{Replayed: 4}, ctx.Err()
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
		if answer := ask(shows, "GET", "/api/v1/replays/"+out.Job.ID, "viewer", ""); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), `"state":"running"`) || !strings.Contains(answer.Body.String(), `"replayed":3`) {
			t.Errorf("the other shows %d %s", answer.Code, answer.Body)
		}
		if answer := ask(shows, "POST", "/api/v1/replays/"+out.Job.ID+"/stop", "operator", ""); answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), `"stopped":true`) {
			t.Errorf("the other stops it: %d %s", answer.Code, answer.Body)
		}
		time.Sleep(3 * time.Second)
		for name, h := range map[string]http.Handler{"its own": runs, "the other": shows} {
			if answer := ask(h, "GET", "/api/v1/replays", "viewer", ""); strings.Count(answer.Body.String(), `"state":"stopped"`) != 1 || !strings.Contains(answer.Body.String(), `"replayed":4`) {
				t.Errorf("%s shows %s", name, answer.Body)
			}
		}
		s.Site.Close()
	})
}
