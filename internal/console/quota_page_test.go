package console

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
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
		_, body, _ := get(t, h, "/quota?id=provider&last=30d")
		for what, says := range map[string]string{
			"the campaigns": "8 of 8 campaigns have something to send. They may send 800/s by their schedules",
			"a share":       `<td class="n" data-label="Weight">3</td><td class="n" data-label="Share">30.0 %</td><td class="n" data-label="Asks for/s">100</td><td class="n" data-label="Gets/s">100</td></tr>`,
		} {
			if !strings.Contains(body, says) {
				t.Errorf("the page does not tell %s (%s): %s", what, says, body)
			}
		}
		if _, body, _ = get(t, h, "/quota?id="+url.QueryEscape(hostile[1])); !strings.Contains(body, "0 of 0 campaigns have something to send") {
			t.Errorf("of a quota without campaigns: %s", body)
		}
	})
}
