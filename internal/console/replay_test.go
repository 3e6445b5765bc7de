package console

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/deadletter"
)

// TestReplays: dead letters are counted, then replayed in the background as often as was seen, one replay at a time, until it is stopped.
func TestReplays(t *testing.T) {
	w := guarded()
	asked, stopped := make(chan replay.Request, 1), errors.New("stopped")
	w.replay = func(ctx context.Context, r replay.Request, progress func(int)) (deadletter.ReplayReport, error) {
		if r.DryRun {
			return counted(ctx, r, progress)
		}
		asked <- r
		progress(3)
		<-ctx.Done()
		return deadletter.ReplayReport{Replayed: 4, Doubtful: 2}, stopped
	}
	s := newServer()
	s.Site = newSite(prometheus.NewRegistry(), w)
	h := s.routes()
	cookie := login(t, h, "operator")
	page := ask(h, "GET", "/replay?campaign=spring&last=7d", "", "", "Cookie", cookie).Body.String()
	form := url.Values{"rate": {"20"}, "why": {"fixed"}}
	for _, match := range regexp.MustCompile(`<input type="hidden" name="(\w+)" value="([^"]*)">`).FindAllStringSubmatch(page, -1) {
		form.Set(match[1], match[2])
	}
	if form.Get("limit") != "7" || !strings.Contains(page, "9 match; left out are 2") {
		t.Fatalf("the page says %s", page)
	}
	for key, wrong := range map[string]string{"rate": "0", "limit": "0", "until": "", "since": "now", "why": "a\rdata: b"} {
		bad := maps.Clone(form)
		bad.Set(key, wrong)
		submit(h, "/replay", cookie, bad).want(t, 422)
	}
	submit(h, "/replay", login(t, h, "viewer"), form).want(t, 403)
	w.elsewhere = true
	submit(h, "/replay", cookie, form).want(t, 412)
	ask(h, "POST", "/api/v1/replays", "operator", `{"limit":7}`).want(t, 409, "another process")
	w.elsewhere = false
	if answer := submit(h, "/replay", cookie, form); answer.Code != http.StatusSeeOther || answer.Header().Get("Location") != "replays?done=replay" {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	r := <-asked
	if r.Limit != 7 || r.Rate != "20" || r.Campaign != "spring" || r.Until.Sub(r.Since) != 7*24*time.Hour {
		t.Errorf("asked for %+v", r)
	}
	submit(h, "/replay", cookie, form).want(t, 412)
	ask(h, "POST", "/api/v1/replays", "operator", `{"limit":7}`).want(t, 409)
	list := func() (all struct{ Replays []replay.Job }) {
		if err := json.Unmarshal(ask(h, "GET", "/api/v1/replays", "viewer", "").Body.Bytes(), &all); err != nil || len(all.Replays) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		return all
	}
	job := list().Replays[0]
	if job.State != "running" || job.By != "the-operator@127.0.0.1" || job.Why != "fixed" || job.Expected != 7 {
		t.Errorf("it is %+v", job)
	}
	submit(h, "/stop-replay", cookie, url.Values{"id": {job.ID}}).want(t, http.StatusSeeOther)
	s.Site.Close()
	ask(h, "POST", "/api/v1/replays/"+job.ID+"/stop", "operator", "").want(t, 200, `"stopped":false`)
	ask(h, "GET", "/api/v1/replays/"+job.ID, "viewer", "").want(t, 200, `"state":"stopped"`)
	if job = list().Replays[0]; job.State != "stopped" || job.Error != "stopped" || w.leases.Load() != 0 || job.Outcome.Doubtful != 2 || job.Outcome.Replayed != 4 || job.Ended == nil {
		t.Errorf("then it is %+v", job)
	}
	ask(h, "POST", "/api/v1/replays", "operator", `{"limit":7}`).want(t, 503)
	for body, want := range map[string]int{`{"dry_run":true}`: 200, `{"limit":7,"rate":"fast"}`: 422, `{"limit":100001}`: 422, `{"limit":7,"why":"a\rb"}`: 422, `{}`: 422} {
		ask(h, "POST", "/api/v1/replays", "operator", body).want(t, want)
	}
}

// TestReplayOfWhatHasExpired: letters that have expired are replayed if the form or the request says so, and counted then.
func TestReplayOfWhatHasExpired(t *testing.T) {
	w := guarded()
	asked := make(chan replay.Request, 2)
	w.replay = func(_ context.Context, r replay.Request, _ func(int)) (deadletter.ReplayReport, error) {
		asked <- r
		return deadletter.ReplayReport{Matched: 9, Replayed: 2, Expired: 5}, nil
	}
	s := newServer()
	s.Site = newSite(prometheus.NewRegistry(), w)
	h := s.routes()
	cookie := login(t, h, "operator")
	page := ask(h, "GET", "/replay?campaign=spring&last=7d", "", "", "Cookie", cookie).Body.String()
	if r := <-asked; r.DropExpiry || !strings.Contains(page, "Replay the 5 that have expired, too") {
		t.Fatalf("counted %+v; the page says %s", r, page)
	}
	form := url.Values{"rate": {"20"}, "campaign": {"spring"}, "until": {"2026-11-25T00:00:00Z"}, "limit": {"2"}, "expired": {"5"}, "drop-expiry": {"on"}}
	if answer := submit(h, "/replay", cookie, form); answer.Code != http.StatusSeeOther {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	if r := <-asked; !r.DropExpiry || r.Limit != 7 {
		t.Errorf("replayed %+v", r)
	}
	s.Site.replays.Wait()
	form.Set("expired", "-1")
	submit(h, "/replay", cookie, form).want(t, 422)
	for body, want := range map[string]int{`{"drop_expiry":true,"dry_run":true}`: http.StatusOK, `{"drop_expiry":true,"limit":7}`: http.StatusAccepted} {
		ask(h, "POST", "/api/v1/replays", "operator", body).want(t, want)
		if r := <-asked; !r.DropExpiry {
			t.Errorf("%s: %+v", body, r)
		}
		s.Site.replays.Wait()
	}
	if list := ask(h, "GET", "/api/v1/replays", "viewer", "").Body.String(); strings.Count(list, `"drop_expiry":true`) != 2 {
		t.Errorf("the list says %s", list)
	}
}

// TestReplayOfNamedLetters: the API counts and replays letters by their places, and a page those of a time.
func TestReplayOfNamedLetters(t *testing.T) {
	w := guarded()
	asked := make(chan replay.Request, 2)
	w.replay = func(ctx context.Context, r replay.Request, progress func(int)) (deadletter.ReplayReport, error) {
		asked <- r
		return counted(ctx, r, progress)
	}
	s := newServer()
	s.Site = newSite(prometheus.NewRegistry(), w)
	h := s.routes()
	cookie := login(t, h, "operator")
	page := ask(h, "GET", "/dead?since=2026-11-23+09:00&until=2026-11-24", "", "", "Cookie", cookie).Body.String()
	if !strings.Contains(page, "dead letters from 2026-11-23 09:00 until 2026-11-24 were looked at") ||
		!strings.Contains(page, `<a class="button" href="replay?since=2026-11-23&#43;09%3A00&amp;until=2026-11-24">`) {
		t.Fatalf("the page of dead letters: %s", page)
	}
	if answer := ask(h, "POST", "/api/v1/replays", "operator", `{"places":["3/17","0/5","3/17"],"dry_run":true}`); answer.Code != http.StatusOK {
		t.Fatalf("%d %s", answer.Code, answer.Body)
	}
	if count := <-asked; !count.DryRun || count.Filter != (replay.Filter{}) || !slices.Equal(count.Places, []string{"0/5", "3/17"}) {
		t.Errorf("counted %+v", count)
	}
	s.Site.replays.Wait()
	ask(h, "POST", "/api/v1/replays", "operator", `{"places":["3/17","0/5","3/17"],"limit":2}`).want(t, http.StatusAccepted, `"chosen":2`)
	s.Site.replays.Wait()
	if begun := <-asked; begun.DryRun || !slices.Equal(begun.Places, []string{"0/5", "3/17"}) {
		t.Errorf("asked for %+v", begun)
	}
	for body, why := range map[string]string{
		`{"places":[],"dry_run":true}`: "places", `{"places":["nowhere"],"dry_run":true}`: "no place of a dead letter", `{"places":["3/17"],"campaign":"spring","dry_run":true}`: "not both",
	} {
		ask(h, "POST", "/api/v1/replays", "operator", body).want(t, 422, why)
	}
	s.Site.Close()
	ask(h, "GET", "/replays", "", "", "Cookie", cookie).want(t, 200, "2 that were named")
	for query, says := range map[string]string{
		"since=yesterday": "&#34;yesterday&#34; is not a time", "until=x": "until: ", "since=2026-11-24T10:00&until=2026-11-24T10:00": "since: must lie before until",
	} {
		for _, page := range []string{"/dead?", "/replay?"} {
			ask(h, "GET", page+query, "", "", "Cookie", cookie).want(t, 422, says)
		}
	}
}
