package console

import (
	"context"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/progress"
)

// hurried is a world with an hour for ten hours of jobs of spring.
func hurried() (w *world, spring *delivery.Campaign) {
	w = guarded()
	w.waiting.Store(36_000)
	spring = w.snapshot.Campaigns["spring"]
	spring.FinishBy = time.Now().Add(time.Hour)
	return w, spring
}

// TestPlans: of what is set and of what is not; of anything that makes no sense in one line.
func TestPlans(t *testing.T) {
	w, spring := hurried()
	w.snapshot.Campaigns["rival"] = campaign("rival", spring.Quotas...)
	h := serve(w)
	const path = "/api/v1/campaigns/spring/plan"
	plan := func(query string) progress.Plan { return read[progress.Plan](t, visit(h, path+query, "viewer")) }
	p := plan("")
	if p.Jobs != 36_000 || p.SendRate != 100 || p.Needed == nil || p.Late == nil || p.Late.Limit != "quota provider" ||
		len(p.Quotas) != 1 || p.FinishBy == nil {
		t.Errorf("%+v", p)
	}
	if all, without := p.Quotas[0].PerSecond, plan("?pause=rival&pause=paused").Quotas[0].PerSecond; without <= all {
		t.Errorf("the quota leaves %f, and without a rival %f", all, without)
	}
	if p := plan("?rate=5&finish_by=2100-01-01T00:00"); p.SendRate != 5 || p.Late != nil || p.FinishBy.Year() != 2100 || p.DoneAt == nil {
		t.Errorf("%+v", p)
	}
	visit(h, path+"?rate=fast", "viewer").want(t, 422, "rate: ")
	visit(h, path+"?finish_by=soon", "viewer").want(t, 422, "finish_by: ")
	visit(h, path+"?finish_by=2020-01-01T00:00:00Z", "viewer").want(t, 422, "is not ahead")
	visit(h, path+"?pause=nobody", "viewer").want(t, 404, "campaign nobody does not exist; create it with")
	visit(h, path+"?colour=red", "viewer").want(t, 422, "colour")
	visit(h, "/api/v1/campaigns/nobody/plan", "viewer").want(t, 404)
}

// TestAPlanIsMadeOnce of a state, however many look at its campaign: it costs as much as the state.
func TestAPlanIsMadeOnce(t *testing.T) {
	w, _ := hurried()
	sources := w.sources()
	fleet, asked := sources.Fleet, 0
	sources.Fleet = func(ctx context.Context) (*view.Fleet, error) {
		f, err := fleet(ctx)
		of := f.Of
		f.Of = func(c *delivery.Campaign) *hold.Board { asked++; return of(c) }
		return f, err
	}
	watcher := view.NewWatcher(sources)
	state := watcher.Look(t.Context())
	asked = 0
	for range 5 {
		if c := watcher.Detailed(t.Context(), state, "spring"); c.Late == "" {
			t.Error("it is not late")
		}
	}
	if asked > len(state.Campaigns)+1 {
		t.Errorf("asked %d times of %d campaigns", asked, len(state.Campaigns))
	}
}

// TestLateIsAnswered: a change of a campaign that will be late says so, and so do its page and its answer.
func TestLateIsAnswered(t *testing.T) {
	w, spring := hurried()
	spring.Quotas, spring.Rate = nil, delivery.PerSecond(5)
	h := serve(w)
	const path, late = "/api/v1/campaigns/spring", "after its finish_by: send_rate is in the way"
	ask(h, "PATCH", path, "admin", `{"finish_by":"2100-01-01T18:00"}`, "If-Match", "*").want(t, 200, late)
	visit(h, path, "viewer").want(t, 200, late)
	visit(h, "/campaign?id=spring", "viewer").want(t, 200, late, "Finish by")
	w.did(t, `spring {"finish_by":"2100-01-01T18:00"} by the-admin@127.0.0.1: `)
	ask(h, "PATCH", path, "admin", `{"finish_by":"soon"}`, "If-Match", "*").want(t, 422, "finish_by: ")
}
