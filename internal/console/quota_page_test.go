package console

import (
	"net/url"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// TestForesee: what a window will have at the present pace.
func TestForesee(t *testing.T) {
	now := time.Date(2026, 3, 2, 12, 0, 0, 0, time.UTC)
	reset := now.Add(30 * time.Minute)
	burst := []catalog.Usage{{Start: now.Add(-time.Hour), End: now.Add(-59 * time.Minute), Units: 600}} // leaves within the next minute
	for _, tt := range []struct {
		name      string
		algorithm string
		left      int64
		fullAt    *time.Time
		counted   []catalog.Usage
		pace      float64
		in        time.Duration // 0: never
		reset     bool
	}{
		{name: "fixed, in time", algorithm: "fixed", left: 600, fullAt: &reset, pace: 1, in: 10 * time.Minute},
		{name: "fixed, not in time", algorithm: "fixed", left: 600, fullAt: &reset, pace: 0.3, reset: true},
		{name: "fixed, unused", algorithm: "fixed", left: 600, fullAt: &reset, reset: true},
		{name: "fixed, not begun", algorithm: "fixed", left: 600, pace: 0.5, in: 20 * time.Minute},
		{name: "sliding, nothing counted", algorithm: "sliding", left: 600, pace: 1, counted: steps(now, 0), in: 10 * time.Minute},
		{name: "sliding, what is used comes back as fast", algorithm: "sliding", left: 600, pace: 1, counted: steps(now, 60)},
		{name: "sliding, half as fast", algorithm: "sliding", left: 600, pace: 1, counted: steps(now, 30), in: 20 * time.Minute},
		{name: "sliding, unused", algorithm: "sliding", left: 600, counted: steps(now, 60)},
		{name: "sliding, a burst comes back", algorithm: "sliding", left: 10, pace: 1, counted: append(burst, steps(now, 0)[1:]...), in: 610 * time.Second},
		{name: "log", algorithm: "log", left: 600, pace: 1, counted: steps(now, 30), in: 20 * time.Minute},
	} {
		w := &view.Window{Span: "1h", Seconds: 3600, Limit: 3600, Algorithm: tt.algorithm, Remaining: &tt.left, FullAt: tt.fullAt}
		got := view.Foresee(w, time.Hour, tt.counted, tt.pace, now)
		if got.Reset != tt.reset || (got.ExhaustedAt == nil) != (tt.in == 0) || got.ExhaustedAt != nil && got.ExhaustedAt.Sub(now).Round(time.Second) != tt.in {
			t.Errorf("%s: %v, %t", tt.name, got.ExhaustedAt, got.Reset)
		}
	}
	none := int64(0)
	if got := view.Foresee(&view.Window{Remaining: &none, Algorithm: "sliding"}, time.Hour, nil, 1, now); got.ExhaustedAt == nil || !got.ExhaustedAt.Equal(now) {
		t.Errorf("of one that is used up: %v", got.ExhaustedAt)
	}
}

// steps are an hour of minutes, each with that many used units.
func steps(now time.Time, units int64) (list []catalog.Usage) {
	for at := now.Add(-time.Hour); at.Before(now); at = at.Add(time.Minute) {
		list = append(list, catalog.Usage{Start: at, End: at.Add(time.Minute), Units: units})
	}
	return list
}

// TestPageOfAQuota: when it will be used up, how it would be used evenly, and what each campaign asks for, gets and waits for.
func TestPageOfAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		daily := []delivery.Window{
			{Span: time.Hour, Limit: 1000, Algorithm: delivery.AlgorithmSliding},
			{Span: 24 * time.Hour, Limit: 1000, Algorithm: delivery.AlgorithmFixed, Anchor: "day@Europe/Moscow"},
		}
		w.snapshot.Quotas["provider"].Windows = daily
		w.snapshot.Campaigns["spring"].PriorityWeight = 3
		s := newServer()
		s.Site = newSite(prometheus.NewRegistry(), w)
		h := s.routes()
		s.Site.watcher.Renew(t.Context())
		time.Sleep(5 * time.Second)
		s.Site.watcher.Renew(t.Context()) // rates are known then
		_, body, _ := get(t, h, "/quota?id=provider&last=30d")
		for what, says := range map[string]string{
			"the pace": "units per second were used; it is used up as foreseen", "when": `data-label="Used up">not before it begins anew<`,
			"the campaigns":         "8 of 8 campaigns have something to send. They may send 800/s by their schedules",
			"a share":               `<td class="n" data-label="Weight">3</td><td class="n" data-label="Share">30.0 %</td><td class="n" data-label="Asks for/s">100</td><td class="n" data-label="Gets/s">100</td></tr>`,
			"how it is used evenly": "in dashes, if it were used evenly",
		} {
			if !strings.Contains(body, says) {
				t.Errorf("the page does not tell %s (%s): %s", what, says, body)
			}
		}
		dashes := regexp.MustCompile(`class="second" d="([^"]*)"`).FindAllStringSubmatch(body, -1)
		if len(dashes) != 1 || strings.Count(dashes[0][1], "M") < 1 {
			t.Errorf("the dashes of a window of a day: %v", dashes)
		}
		w.fail = errAway
		time.Sleep(time.Minute)
		if _, body, _ = get(t, h, "/quota?id=provider"); !strings.Contains(body, `data-label="Used up">–<`) {
			t.Errorf("without the ledger: %s", body)
		}
		if _, body, _ = get(t, h, "/quota?id="+url.QueryEscape(hostile[1])); !strings.Contains(body, "0 of 0 campaigns have something to send") {
			t.Errorf("of a quota without campaigns: %s", body)
		}
	})
}
