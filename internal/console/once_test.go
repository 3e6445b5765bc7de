package console

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/deadletter"
)

// TestPut: something is created or replaced whole, as the condition says, and what is left out gets its default.
func TestPut(t *testing.T) {
	w := guarded()
	h := serve(w)
	const (
		campaign = `"sink":"","quotas":[],"priority_weight":1,"burst":0,"max_in_flight":0,"time_zone":"UTC","time_zone_missing":"",` +
			`"avoid_minutes":"","expected_total":0,"note":"","starts_at":"","ends_at":"","finish_by":"","active_hours":"","ramp":"",` +
			`"overflow":"lane","job_ttl":""}`
		quota = `"mode":"strict","spend":"greedy","on_store_failure":"closed","rollout":100,"unit":"units",` +
			`"per":"","max_wait":"","keyless":"","count":"","windows":`
		by = ` by the-admin@127.0.0.1: `
	)
	for _, tt := range []struct {
		path, body, match, none string
		code                    int
		asked                   []string
	}{
		{"/campaigns/autumn", `{"rate":"5","reason":"why"}`, "", "*", 201, []string{`new autumn {"rate":"5",` + campaign + by + "why"}},
		{"/campaigns/spring", `{}`, `"7"`, "", 200, []string{`spring {"rate":"0",` + campaign + by}},
		{"/campaigns/spring", `{}`, `*`, "", 200, []string{`spring {"rate":"0",` + campaign + by}},
		{"/campaigns/spring", `{}`, "", "*", 412, nil}, {"/campaigns/autumn", `{}`, `*`, "", 412, nil},
		{"/campaigns/spring", `{}`, `"7"`, "*", 422, nil}, {"/campaigns/spring", `{}`, "", `"7"`, 422, nil},
		{"/campaigns/spring", `{"status":"paused"}`, `"7"`, "", 422, nil},
		{"/quotas/fresh", `{"windows":["5/1s"]}`, "", "*", 201, []string{`quota fresh {` + quota + `["5/1s"]}` + by}},
		{"/quotas/provider", `{}`, `"7"`, "", 200, []string{`quota provider {` + quota + `[]}` + by}},
		{"/quotas/provider", `{}`, "", "*", 412, nil}, {"/quotas/fresh", `{}`, `*`, "", 412, nil},
	} {
		answer := ask(h, "PUT", "/api/v1"+tt.path, "admin", tt.body, "If-Match", tt.match, "If-None-Match", tt.none).want(t, tt.code)
		w.did(t, tt.asked...)
		header := answer.Header()
		if tt.code < 300 && header.Get("ETag") != `"8"` || (tt.code == 201) != (header.Get("Location") != "") {
			t.Errorf("%s %s %s%s: %v", tt.path, tt.body, tt.match, tt.none, header)
		}
	}
}

// ledgerOfReplays is a replay.Book that two processes share.
type ledgerOfReplays struct {
	jobs, stop sync.Map
	reads      atomic.Int32
}

func (l *ledgerOfReplays) SaveReplay(_ context.Context, id string, job json.RawMessage, _ bool) (bool, error) {
	l.jobs.Store(id, job)
	_, stop := l.stop.Load(id)
	return stop, nil
}

func (l *ledgerOfReplays) Replays(context.Context) (list []catalog.ReplayRow, err error) {
	l.reads.Add(1)
	for _, job := range l.jobs.Range {
		list = append(list, catalog.ReplayRow{Job: job.(json.RawMessage)})
	}
	return list, nil
}

func (l *ledgerOfReplays) StopReplay(_ context.Context, id string) (bool, error) {
	l.stop.Store(id, true)
	return true, nil
}

// TestReplaysOfOthers: what one process replays is shown by another, and stopped there. Pages ask the database together.
func TestReplaysOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		book := &ledgerOfReplays{}
		w.book = book
		w.replay = func(ctx context.Context, o deadletter.ReplayOptions) (deadletter.ReplayReport, error) {
			o.Progress(3)
			<-ctx.Done()
			return deadletter.ReplayReport{Replayed: 4}, ctx.Err()
		}
		runs, site := serveOf(w)
		shows := serve(w)
		var begun struct{ Job replay.Job }
		if err := json.Unmarshal(ask(runs, "POST", "/api/v1/replays", "operator", `{"limit":7}`).want(t, 202).Body.Bytes(), &begun); err != nil {
			t.Fatal(err)
		}
		id := begun.Job.ID
		time.Sleep(3 * time.Second)
		visit(shows, "/api/v1/replays/"+id, "viewer").want(t, 200, `"state":"running"`, `"replayed":3`)
		ask(shows, "POST", "/api/v1/replays/"+id+"/stop", "operator", "").want(t, 200, `"stopped":true`)
		time.Sleep(3 * time.Second)
		for _, h := range []http.Handler{runs, shows} {
			list := visit(h, "/api/v1/replays", "viewer").want(t, 200, `"replayed":4`).Body.String()
			if strings.Count(list, `"state":"stopped"`) != 1 {
				t.Errorf("one of them shows %s", list)
			}
		}
		before := book.reads.Load()
		for range 100 {
			visit(shows, "/replays", "viewer").want(t, 200, "stopped")
			time.Sleep(100 * time.Millisecond)
		}
		if reads := book.reads.Load() - before; reads > 6 {
			t.Errorf("within ten seconds pages have read them %d times", reads)
		}
		site.Close()
	})
}
