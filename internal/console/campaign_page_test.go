package console

import (
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// TestPageOfACampaign: its last hour, its days to come, its dead letters by reason and its last changes are on the page itself.
func TestPageOfACampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		spring := w.snapshot.Campaigns["spring"]
		spring.StartsAt = time.Now().Add(26 * time.Hour)
		w.look = func() { time.Sleep(time.Second) }
		h, site := serveOf(w)
		get(h, "/campaign?id=spring").want(t, 200, "<p>They are being counted.</p>") // before anything is known
		defer running(t, site.Run)()
		time.Sleep(90 * time.Second)
		synctest.Wait()
		get(h, "/campaign?id="+url.QueryEscape(hostile[0])).want(t, 200, `<path class="c1" d="M`, `<path class="cf" d="M`, `<path class="dashes" d="M`,
			`reason=refused">refused</a></th><td data-label="Answers">404 × 1</td><td class="n" data-label="Letters">1<`,
			`<strong>ops</strong> changed the rate of <a href="campaign?`, `<del>&lt;script&gt;alert(1)&lt;/script&gt;</del> → <ins>`,
			`waiting <b>5</b>`, "delivered <b>1\u202f800</b>", `&amp;last=24h">24h</a>`,
			`<th scope="row" data-label="Daemon">&lt;script&gt;alert(1)&lt;/script&gt;</th>`,
		).lacks(t, "The next seven days") // of a schedule that is always the same
		get(h, "/").want(t, 200, `<path class="c1" d="M`, `<span class="key c0"></span> others <b>`)
		ahead := get(h, "/campaign?id=spring").want(t, 200, "The next seven days", "<h2>Dead letters of the last hour</h2>\n<p>None.</p>")
		if strings.Count(ahead.Body.String(), `data-label="Units/s"`) != 2 {
			t.Errorf("the days to come: %s", ahead.Body)
		}
	})
}

// TestPreviewOfASchedule: hours, ramp, start and end, for any status.
func TestPreviewOfASchedule(t *testing.T) {
	now := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC) // a Monday
	hours, err := delivery.NewActiveHours([]delivery.HoursSpan{{From: 9 * 60, To: 18 * 60}}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	always := campaign("always")
	always.Status = delivery.StatusPaused
	daily := campaign("daily")
	daily.Hours, daily.EndsAt = hours, now.Add(30*time.Hour)
	ramp := func(every time.Duration) *delivery.Campaign {
		c := campaign("ramp")
		c.Rate = delivery.Rate{N: 20_000, Per: 1_000_000}
		c.Ramp = &delivery.Ramp{Start: 10e6, Add: 10e6, Per: time.Second, Every: every, Since: now}
		return c
	}
	for _, tt := range []struct {
		of            *delivery.Campaign
		phases        int
		first, last   float64
		second, ended time.Time
		cut           bool
	}{
		{of: always, phases: 1, first: 100, last: 100, ended: now.Add(view.PreviewOf)},
		{of: daily, phases: 5, last: 0, second: now.Add(time.Hour), ended: now.Add(view.PreviewOf)},
		{of: ramp(24 * time.Hour), phases: 7, first: 10, last: 70, second: now.Add(24 * time.Hour), ended: now.Add(view.PreviewOf)},
		{of: ramp(time.Minute), phases: 400, first: 10, last: 4000, second: now.Add(time.Minute), ended: now.Add(400 * time.Minute), cut: true},
	} {
		phases, cut := view.Preview(tt.of, now)
		if len(phases) != tt.phases || cut != tt.cut {
			t.Errorf("%s: %d phases, %t: %v", tt.of.ID, len(phases), cut, phases)
			continue
		}
		last := phases[len(phases)-1]
		if phases[0].Start != now || phases[0].Allowed != tt.first || last.Allowed != tt.last || last.End != tt.ended || len(phases) > 1 && phases[1].Start != tt.second {
			t.Errorf("%s: %v", tt.of.ID, phases)
		}
	}
}

// TestDeadLettersAreCountedOnceAMinute: only while a page is open.
func TestDeadLettersAreCountedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, counts := newWorld(), atomic.Int32{}
		w.look = func() { counts.Add(1) }
		watcher := view.NewWatcher(w.sources())
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := counts.Load(); n != 0 {
			t.Errorf("counted %d times for nobody", n)
		}
		for range 150 {
			watcher.Dead(t.Context())
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if dead := watcher.Dead(t.Context()); counts.Load() != 3 || dead.Letters != 1 || dead.Err != nil || len(dead.Of(hostile[0])) != 1 || len(dead.Of("spring")) != 0 {
			t.Errorf("counted %d times: %+v", counts.Load(), dead)
		}
		w.fail = errAway
		time.Sleep(2 * time.Minute)
		watcher.Dead(t.Context())
		synctest.Wait()
		if dead := watcher.Dead(t.Context()); dead.Err == nil {
			t.Errorf("without Kafka: %+v", dead)
		}
	})
}

// TestATrialIsNotDrawnAsDelivered: a campaign whose destination takes nothing sends some jobs to see whether it does again. The minute that is not
// over shows only what others send.
func TestATrialIsNotDrawnAsDelivered(t *testing.T) {
	sent := 1.0
	state := &view.State{Campaigns: []*view.Campaign{{ID: "autumn", Sent: &sent}, {ID: "spring", Sent: &sent, Held: &view.Held{Cause: "gate"}}}}
	if paces := state.Paces(""); len(paces) != 1 || paces["autumn"].Sent != 1 {
		t.Errorf("%v", paces)
	}
}
