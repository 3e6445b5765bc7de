package console

import (
	"context"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// TestWhereNothingIsKnown: before any source has answered, and after the end, lists are not empty but unavailable.
func TestWhereNothingIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, hang := guarded(), make(chan struct{})
		h, _ := serveOf(w, fleetAfter(func() error { <-hang; return nil }))
		unknown := func() {
			t.Helper()
			for _, path := range []string{"/campaigns", "/campaigns?sink=nosuch", "/quotas", "/destinations?sink=nosuch"} {
				visit(h, "/api/v1"+path, "viewer").want(t, 503, "the catalog is not loaded")
			}
			visit(h, "/api/v1/status", "viewer").want(t, 200, `"campaigns":{}`, "no source has answered this process yet")
		}
		unknown()
		close(hang)
		synctest.Wait()
		visit(h, "/api/v1/campaigns?q=spring", "viewer").want(t, 200, `"total":1`)
		var site *Site
		h, site = serveOf(w)
		ended, end := context.WithCancel(t.Context())
		end()
		site.Run(ended)
		unknown()
		press(h, "/bulk", "operator", typed("q=spring&expect=1&action=pause")).want(t, 503, "the catalog is not loaded")
		w.did(t)
		for _, path := range []string{"/campaigns/spring", "/quotas/provider"} { // which the database has
			visit(h, "/api/v1"+path, "viewer").want(t, 503, "this process has not read it from the database yet")
		}
	})
}

// TestWhatAProcessLacks is named, and so is that nothing is wrong. Before the catalog is loaded, no campaign or quota is said not to exist.
func TestWhatAProcessLacks(t *testing.T) {
	readOnly := func(w *world, _ *view.Sources) { w.readOnly = "the database role <reader> may not change campaigns" }
	notLoaded := func(_ *world, sources *view.Sources) { sources.Snapshot = func() *delivery.Snapshot { return nil } }
	noRedis := func(_ *world, sources *view.Sources) { sources.Adjust, sources.Key, sources.SetKey = nil, nil, nil }
	noHistory := func(_ *world, sources *view.Sources) { sources.History = nil }
	nothing := func(_ *world, sources *view.Sources) {
		sources.Gates, sources.Closed, sources.Letters = nil, nil, nil
		sources.Sink = func(string) (string, string) { return "receiver", "" }
	}
	const loading, both = "the catalog is not loaded", "Redis and the database must be known"
	for _, tt := range []struct {
		lack       func(*world, *view.Sources)
		path, form string
		code       int
		says       string
	}{
		{readOnly, "campaigns", "", 200, "<strong>Read-only:</strong> the database role &lt;reader&gt; may not"},
		{readOnly, "api/v1/status", "", 200, `"read_only":"the database role`},
		{notLoaded, "campaign?id=spring", "", 503, loading}, {notLoaded, "quota?id=provider", "", 503, loading},
		{notLoaded, "quota-adjust?id=provider", "", 503, loading}, {notLoaded, "campaigns.csv", "", 503, loading},
		{notLoaded, "usage.csv?id=provider", "", 503, loading},
		{noRedis, "quota-adjust", "id=provider&span=1h&used=5&reason=credit", 503, both}, {noRedis, "key-hold", "id=provider&key=anna&until=2h", 503, both},
		{noHistory, "", "", 200, "there is no database here, and so no history"}, {nothing, "", "", 200, `<p class="fine">Nothing is wrong.</p>`},
	} {
		w := guarded()
		h, _ := serveOf(w, func(sources *view.Sources) { tt.lack(w, sources) })
		if tt.form != "" {
			press(h, "/"+tt.path, "admin", typed(tt.form)).want(t, tt.code, tt.says)
		} else {
			visit(h, "/"+tt.path, "admin").want(t, tt.code, tt.says)
		}
	}
}

// TestTheAPIKnowsWhatIsCommitted: where the database is ahead of the last state, its word counts.
func TestTheAPIKnowsWhatIsCommitted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		quota := func(revision, limit int64) *delivery.Quota {
			return &delivery.Quota{ID: "provider", Revision: revision, Windows: []delivery.Window{{Span: time.Hour, Limit: limit}}}
		}
		before := &delivery.Snapshot{
			Revision: 6, Campaigns: map[string]*delivery.Campaign{"gone": campaign("gone")},
			Quotas: map[string]*delivery.Quota{"provider": quota(6, 500), "gone": {ID: "gone"}},
		}
		w.snapshot.Quotas["provider"] = quota(7, 1000)
		w.snapshot.Campaigns["autumn"] = campaign("autumn")
		var known atomic.Pointer[delivery.Snapshot]
		h, site := serveOf(w, func(sources *view.Sources) {
			sources.Snapshot = known.Load
			sources.Refresh = func(context.Context) { known.Store(w.snapshot) }
		})
		known.Store(before)
		looking(t, site)
		for path, want := range map[string]struct {
			code int
			says string
		}{
			"campaigns/gone": {404, "not-found"}, "quotas/gone": {404, "not-found"}, "quotas/provider": {200, `"limit":1000`},
			"campaigns/autumn": {200, `"id":"autumn"`}, "campaigns/autumn/plan": {200, `"jobs":5`}, "campaigns/autumn/history": {200, "points"},
		} {
			known.Store(before)
			time.Sleep(3 * time.Second)
			answer := visit(h, "/api/v1/"+path, "viewer").want(t, want.code, want.says)
			if etag := answer.Header().Get("ETag"); path == "quotas/provider" && etag != `"7"` {
				t.Errorf("ETag %s", etag)
			}
		}
		known.Store(before)
		time.Sleep(3 * time.Second)
		ask(h, "POST", "/api/v1/jobs/cancel", "operator", `{"ids":["u-1"],"campaign":"autumn"}`).want(t, 200)
	})
}

// TestProblemsOfDeadLetters: what is offered for letters without a campaign is about these alone, and what was replayed is no problem.
func TestProblemsOfDeadLetters(t *testing.T) {
	var counts []view.LetterCount
	for _, reason := range strings.Fields("expired rejected deadline too_large missing_key") {
		counts = append(counts, view.LetterCount{Campaign: "spring", Reason: reason, Letters: 9, Replayed: 9})
	}
	counts = append(counts, view.LetterCount{Reason: "invalid_header", Letters: 3}, view.LetterCount{Campaign: "spring", Reason: "refused", Letters: 2, Replayed: 1})
	h, _ := serveOf(guarded(), func(sources *view.Sources) {
		sources.Letters = func(context.Context, view.LetterFilter) (view.Letters, error) {
			return view.Letters{Counts: counts}, nil
		}
	})
	const selected = "campaign=%28unknown%29&amp;last=1h&amp;reason=invalid_header"
	visit(h, "/", "operator").want(t, 200, `href="replay?`+selected+`"`, `<a href="dead?`+selected+`"><strong>3 dead letters</strong>`,
		"<strong>1 dead letter</strong></a> of spring in the last hour: refused").lacks(t, "kinds of dead letters")
}

// manyFields is a record of changes of twenty columns each.
type manyFields struct{ view.Catalog }

func (manyFields) Changes(_ context.Context, of catalog.ChangesOf) ([]catalog.Change, error) {
	list := make([]catalog.Change, of.Limit)
	for i := range list {
		list[i] = catalog.Change{Number: int64(1_000_000 - i), Fields: make([]catalog.Field, 20)}
	}
	return list, nil
}

// TestRowsOfAFileOfChanges: however many columns were changed at once, they are at most 10,000.
func TestRowsOfAFileOfChanges(t *testing.T) {
	h, _ := serveOf(guarded(), func(sources *view.Sources) { sources.Catalog = manyFields{sources.Catalog} })
	body := visit(h, "/changes.csv?"+url.Values{"campaign": {"spring"}}.Encode(), "viewer").want(t, 200).Body.String()
	if rows := strings.Count(body, "\n") - 1; rows != 10_000 {
		t.Errorf("%d rows", rows)
	}
}
