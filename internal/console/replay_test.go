package console

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
)

// replaying is a console whose replays are told to the test.
func replaying(run replay.Run) (w *world, h http.Handler, s *Site, asked chan deadletter.ReplayOptions) {
	w, asked = guarded(), make(chan deadletter.ReplayOptions, 2)
	w.replay = func(ctx context.Context, o deadletter.ReplayOptions) (deadletter.ReplayReport, error) {
		asked <- o
		return run(ctx, o)
	}
	h, s = serveOf(w)
	return w, h, s, asked
}

// replays asks for a replay by the API.
func replays(h http.Handler, body string) response {
	return ask(h, "POST", "/api/v1/replays", "operator", body)
}

// TestReplays: dead letters are counted, then replayed in the background as often as was seen, one replay at a time, until it is stopped.
func TestReplays(t *testing.T) {
	w, h, s, asked := replaying(func(ctx context.Context, o deadletter.ReplayOptions) (deadletter.ReplayReport, error) {
		if o.DryRun {
			return counted(ctx, o)
		}
		o.Progress(3)
		<-ctx.Done()
		return deadletter.ReplayReport{Replayed: 4, Doubtful: 2}, errors.New("stopped")
	})
	form := fieldsOf(visit(h, "/replay?campaign=spring&last=7d", "operator").want(t, 200, "9 match; left out are 2"))
	<-asked
	form.Set("rate", "20")
	form.Set("why", "fixed")
	for key, wrong := range map[string]string{"rate": "0", "limit": "0", "until": "", "since": "now", "why": "a\rdata: b"} {
		bad := maps.Clone(form)
		bad.Set(key, wrong)
		press(h, "/replay", "operator", bad).want(t, 422)
	}
	press(h, "/replay", "viewer", form).want(t, 403)
	w.elsewhere = true
	press(h, "/replay", "operator", form).want(t, 412)
	replays(h, `{"limit":7}`).want(t, 409, "another process")
	w.elsewhere = false
	press(h, "/replay", "operator", form).leads(t, "replays?done=replay")
	if r := <-asked; r.Limit != 7 || r.Rate != delivery.PerSecond(20) || r.Campaign != "spring" || r.Until.Sub(r.Since) != 7*24*time.Hour {
		t.Errorf("asked for %+v", r)
	}
	press(h, "/replay", "operator", form).want(t, 412, "wait for it, or stop it.") // a second one at once
	visit(h, "/replays", "viewer").want(t, 200, "one runs at a time")
	replays(h, `{"limit":7}`).want(t, 409)
	only := func() replay.Job {
		all := read[struct{ Replays []replay.Job }](t, visit(h, "/api/v1/replays", "viewer")).Replays
		if len(all) != 1 {
			t.Fatalf("%+v", all)
		}
		return all[0]
	}
	job := only()
	if job.State != "running" || job.By != "the-operator@127.0.0.1" || job.Why != "fixed" || job.Expected != 7 {
		t.Errorf("it is %+v", job)
	}
	press(h, "/stop-replay", "operator", url.Values{"id": {job.ID}}).want(t, 303)
	s.Close()
	ask(h, "POST", "/api/v1/replays/"+job.ID+"/stop", "operator", "").want(t, 200, `"stopped":false`) // it is already
	visit(h, "/api/v1/replays/"+job.ID, "viewer").want(t, 200, `"state":"stopped"`)
	if job = only(); job.State != "stopped" || job.Error != "stopped" || w.leases.Load() != 0 || job.Outcome.Doubtful != 2 ||
		job.Outcome.Replayed != 4 || job.Ended == nil {
		t.Errorf("then it is %+v", job)
	}
	replays(h, `{"limit":7}`).want(t, 503) // while the process ends
	replays(h, `{"dry_run":true}`).want(t, 200)
	for _, body := range []string{
		`{"limit":7,"rate":"fast"}`, `{"limit":100001}`, `{"limit":7,"why":"a\rb"}`, `{"reason":"banana","dry_run":true}`, `{}`,
	} {
		replays(h, body).want(t, 422)
	}
}

// TestReplayOfWhatHasExpired: letters that have expired are replayed if the form or the request says so, and counted then.
func TestReplayOfWhatHasExpired(t *testing.T) {
	_, h, s, asked := replaying(func(context.Context, deadletter.ReplayOptions) (deadletter.ReplayReport, error) {
		return deadletter.ReplayReport{Matched: 9, Replayed: 2, Expired: 5}, nil
	})
	visit(h, "/replay?campaign=spring&last=7d", "operator").want(t, 200, "Replay the 5 that have expired, too")
	if r := <-asked; r.DropExpiry {
		t.Errorf("counted %+v", r)
	}
	form := typed("rate=20&campaign=spring&until=2026-11-25T00:00:00Z&limit=2&expired=5&drop-expiry=on")
	press(h, "/replay", "operator", form).want(t, 303)
	if r := <-asked; !r.DropExpiry || r.Limit != 7 {
		t.Errorf("replayed %+v", r)
	}
	s.replays.Wait()
	form.Set("expired", "-1")
	press(h, "/replay", "operator", form).want(t, 422)
	for body, code := range map[string]int{`{"drop_expiry":true,"dry_run":true}`: 200, `{"drop_expiry":true,"limit":7}`: 202} {
		replays(h, body).want(t, code)
		if r := <-asked; !r.DropExpiry {
			t.Errorf("%s: %+v", body, r)
		}
		s.replays.Wait()
	}
	if list := visit(h, "/api/v1/replays", "viewer").Body.String(); strings.Count(list, `"drop_expiry":true`) != 2 {
		t.Errorf("the list says %s", list)
	}
}

// TestReplayOfNamedLetters: the API counts and replays letters by their places, and a page those of a time.
func TestReplayOfNamedLetters(t *testing.T) {
	_, h, s, asked := replaying(counted)
	named := []deadletter.Place{{Offset: 5}, {Partition: 3, Offset: 17}}
	visit(h, "/dead?since=2026-11-23+09:00&until=2026-11-24", "operator").want(t, 200,
		"dead letters from 2026-11-23 09:00 until 2026-11-24 were looked at",
		`<a class="button" href="replay?since=2026-11-23&#43;09%3A00&amp;until=2026-11-24">`)
	replays(h, `{"places":["3/17","0/5","3/17"],"dry_run":true}`).want(t, 200)
	if count := <-asked; !count.DryRun || !reflect.DeepEqual(count.Filter, deadletter.Filter{Places: named}) {
		t.Errorf("counted %+v", count)
	}
	s.replays.Wait()
	replays(h, `{"places":["3/17","0/5","3/17"],"limit":2}`).want(t, 202, `"chosen":2`)
	s.replays.Wait()
	if begun := <-asked; begun.DryRun || !slices.Equal(begun.Places, named) {
		t.Errorf("asked for %+v", begun)
	}
	replays(h, `{"places":[],"dry_run":true}`).want(t, 422, "places")
	replays(h, `{"places":["nowhere"],"dry_run":true}`).want(t, 422, "no place of a dead letter")
	replays(h, `{"places":["3/17"],"campaign":"spring","dry_run":true}`).want(t, 422, "not both")
	s.Close()
	visit(h, "/replays", "operator").want(t, 200, "2 that were named")
	for query, says := range map[string]string{
		"since=yesterday": "&#34;yesterday&#34; is not a time", "until=x": "until: ",
		"since=2026-11-24T10:00&until=2026-11-24T10:00": "since: must lie before until",
	} {
		visit(h, "/dead?"+query, "operator").want(t, 422, says)
		visit(h, "/replay?"+query, "operator").want(t, 422, says)
	}
}
