package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// TestPageOfAQuota: what each campaign asks for and gets.
func TestPageOfAQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.snapshot.Campaigns["spring"].PriorityWeight = 3
		s := newServer()
		s.Site = newSite(prometheus.NewRegistry(), w)
		h := s.routes()
		s.Site.watcher.Renew(t.Context())
		time.Sleep(5 * time.Second)
		s.Site.watcher.Renew(t.Context()) // rates are known then
		_, body, _ := get(h, "/quota?id=provider&last=30d").parts()
		for what, says := range map[string]string{
			"the campaigns": "8 of 8 campaigns have something to send. They may send 800/s by their schedules",
			"a share":       `<td class="n" data-label="Weight">3</td><td class="n" data-label="Share">30.0 %</td><td class="n" data-label="Asks for/s">100</td><td class="n" data-label="Gets/s">100</td></tr>`,
		} {
			if !strings.Contains(body, says) {
				t.Errorf("the page does not tell %s (%s): %s", what, says, body)
			}
		}
		get(h, "/quota?id="+url.QueryEscape(hostile[1])).want(t, 200, "0 of 0 campaigns have something to send")
	})
}

// TestPageOfAKeyedQuota: which keys keep jobs waiting, and how to hold one.
func TestPageOfAKeyedQuota(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := guarded()
		chat := &delivery.Quota{ID: "chat", Per: "recipient", Windows: []delivery.Window{{Span: time.Second, Limit: 1}}}
		w.snapshot.Quotas["chat"], w.snapshot.Campaigns["spring"].Keyed = chat, []*delivery.Quota{chat}
		s := newServer()
		s.Site = newSite(prometheus.NewRegistry(), w)
		h := s.routes()
		s.Site.watcher.Renew(t.Context())
		const form = "application/x-www-form-urlencoded"
		body := ask(h, "GET", "/quota?id=chat", "operator", "").Body.String()
		for _, says := range []string{
			"<p>234 jobs wait for the turns of their keys", `&lt;script&gt;alert(1)&lt;/script&gt;</th><td class="n" data-label="Jobs">56</td>`,
			`action="key-hold"`, "1 of 1 campaigns",
		} {
			if !strings.Contains(body, says) {
				t.Errorf("the page lacks %q: %s", says, body)
			}
		}
		for _, says := range []string{"0 used", " left", "<svg"} {
			if strings.Contains(body, says) {
				t.Errorf("the page of a quota of each recipient says %q: %s", says, body)
			}
		}
		ask(h, "GET", "/quota?id=chat", "viewer", "").want(t, 200).lacks(t, "key-hold", "&lt;script&gt;")
		for action, want := range map[string]int{"/key-hold": http.StatusSeeOther, "/key-release": http.StatusSeeOther} {
			ask(h, "POST", action, "operator", "id=chat&key=a%2Fb", "Content-Type", form).want(t, want)
		}
		if answer := ask(h, "POST", "/key-hold", "operator", "id=chat&key=a&until=never", "Content-Type", form); answer.Code < 400 || !strings.Contains(answer.Body.String(), "until") {
			t.Errorf("until never: %d %s", answer.Code, answer.Body)
		}
		if got := strings.Join(w.changes, "\n"); strings.Count(got, "key a/b of chat, held true") != 2 {
			t.Error(got)
		}
		ask(h, "GET", "/api/v1/campaigns/spring", "viewer", "").want(t, 200, `"keys":[{"quota":"chat","waiting":234}]`)
		ask(h, "GET", "/api/v1/quotas/chat/keys", "operator", "").want(t, 200, `"jobs":56`)
		ask(h, "GET", "/api/v1/quotas/chat/keys", "viewer", "").want(t, 403)
	})
}
