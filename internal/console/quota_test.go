package console

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestPreviewOfAQuota: what a change would mean is shown, and nothing is done.
func TestPreviewOfAQuota(t *testing.T) {
	w := guarded()
	h := serve(w)
	for _, tt := range []struct {
		windows, revision string
		code              int
		want              []string
	}{
		{
			"2000/1h, 300/1m", "7", 200,
			[]string{"Not changed yet", ">room<", ">new<", "the window of 1h would allow 0.56, which is less", `value="2000/1h, 300/1m"`},
		},
		{"1/1h", "7", 200, []string{"used up: nothing is sent until it has room again"}},
		{"1000000/1s", "7", 200, []string{">removed<", "the window of 1s would allow 1\u202f000\u202f000."}},
		{"", "7", 200, []string{">removed<", "by their schedules now."}},
		{"many/1h", "7", 422, []string{"must be a whole number"}},
		{"2000/1h", "6", 412, []string{"provider was changed after this form was opened"}},
	} {
		press(h, "/quota-edit", "admin", url.Values{
			"id": {"provider"}, "revision": {tt.revision}, "windows": {tt.windows}, "was_windows": {"1000/1h"}, "preview": {"yes"},
		}).want(t, tt.code, tt.want...)
		w.did(t)
	}
}

// TestAShadowQuotaHoldsNothing: neither the preview of a quota nor that of a rate says that campaigns would wait for one that does not bind.
func TestAShadowQuotaHoldsNothing(t *testing.T) {
	for mode, waits := range map[string]int{"strict": 1, "shadow": 0} {
		w := guarded()
		w.quotas, w.snapshot.Quotas["provider"].Mode = []string{"provider"}, mode
		h := serve(w)
		rate := visit(h, "/rate?id=spring&rate=100000", "operator").want(t, 200, "What it means")
		quota := press(h, "/quota-edit", "admin", url.Values{
			"id": {"provider"}, "revision": {"7"}, "mode": {mode}, "windows": {"1/1h"}, "was_windows": {"1000/1h"}, "preview": {"yes"},
		}).want(t, 200, "What it would mean")
		for says, body := range map[string]string{
			"and then waits": rate.Body.String(), "used up": quota.Body.String(), "they would wait for it": quota.Body.String(),
		} {
			if strings.Count(body, says) != waits {
				t.Errorf("%s: %q is not said %d times: %s", mode, says, waits, body)
			}
		}
	}
}

// TestPagesOfQuotas: the API's list has them all, page by page.
func TestPagesOfQuotas(t *testing.T) {
	w := newWorld()
	h := serve(w)
	seen, after := map[string]bool{}, ""
	for range len(w.snapshot.Quotas) {
		out := read[struct {
			Quotas []struct{ ID string }
			Total  int
			Next   string
		}](t, get(h, "/api/v1/quotas?limit=3&after="+url.QueryEscape(after)))
		if len(out.Quotas) == 0 || out.Total != len(w.snapshot.Quotas) {
			t.Fatalf("%+v", out)
		}
		for _, q := range out.Quotas {
			seen[q.ID] = true
		}
		if after = out.Next; after == "" {
			break
		}
	}
	if len(seen) != len(w.snapshot.Quotas) || after != "" {
		t.Errorf("%d of %d quotas, then %q", len(seen), len(w.snapshot.Quotas), after)
	}
	if etag := get(h, "/api/v1/quotas/provider").Header().Get("ETag"); etag != `"0"` {
		t.Errorf("ETag %s", etag)
	}
}

// TestPageOfAQuota: what each campaign asks for and gets.
func TestPageOfAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.snapshot.Campaigns["spring"].PriorityWeight = 3
		h, site := serveOf(w)
		site.watcher.Renew(t.Context())
		time.Sleep(5 * time.Second)
		site.watcher.Renew(t.Context()) // rates are known then
		get(h, "/quota?id=provider&last=30d").want(t, 200,
			"8 of 8 campaigns have something to send. They may send 800/s by their schedules",
			`<td class="n" data-label="Weight">3</td><td class="n" data-label="Share">30.0 %</td>`+
				`<td class="n" data-label="Asks for/s">100</td><td class="n" data-label="Gets/s">100</td></tr>`)
		get(h, "/quota?id="+url.QueryEscape(hostile[1])).want(t, 200, "0 of 0 campaigns have something to send")
	})
}

// TestPageOfAKeyedQuota: which keys keep jobs waiting, and how to hold one; both are for operators. No more wait than there are, though more were given
// turns, and have expired since.
func TestPageOfAKeyedQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		chat := &delivery.Quota{ID: "chat", Per: "recipient", Windows: []delivery.Window{{Span: time.Second, Limit: 1}}}
		w.snapshot.Quotas["chat"], w.snapshot.Campaigns["spring"].Keyed = chat, []*delivery.Quota{chat}
		w.waiting.Store(300)
		h, site := serveOf(w)
		site.watcher.Renew(t.Context())
		visit(h, "/quota?id=chat", "operator").want(t, 200, "<p>234 jobs wait for the turns of their keys", `action="key-hold"`, "1 of 1 campaigns",
			`&lt;script&gt;alert(1)&lt;/script&gt;</th><td class="n" data-label="Jobs">56</td>`).lacks(t, "0 used", " left", "<svg")
		visit(h, "/quota?id=chat", "viewer").want(t, 200).lacks(t, "key-hold", "&lt;script&gt;")
		for _, action := range []string{"/key-hold", "/key-release"} {
			press(h, action, "operator", typed("id=chat&key=a/b")).want(t, 303)
			w.did(t, "key a/b of chat, held true by the-operator@127.0.0.1: ")
		}
		press(h, "/key-hold", "operator", typed("id=chat&key=a&until=never")).want(t, 422, "until")
		w.did(t)
		visit(h, "/api/v1/campaigns/spring", "viewer").want(t, 200, `"keys":[{"quota":"chat","waiting":234}]`)
		w.waiting.Store(5)
		site.watcher.Renew(t.Context())
		visit(h, "/quota?id=chat", "operator").want(t, 200, "<p>5 jobs wait for the turns of their keys")
		visit(h, "/api/v1/campaigns/spring", "viewer").want(t, 200, `"keys":[{"quota":"chat","waiting":5}]`)
		visit(h, "/api/v1/quotas/chat/keys", "operator").want(t, 200, `"jobs":56`)
		visit(h, "/api/v1/quotas/chat/keys", "viewer").want(t, 403)
	})
}
