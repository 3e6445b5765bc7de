package console

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/console/view"
)

// TestTenThousandCampaigns: pages stay small, and so does what a stream sends while the figures of all campaigns change.
func TestTenThousandCampaigns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.crowd(10_000)
		h, site := serveOf(w)
		looking(t, site)
		for _, path := range []string{"/", "/?last=7d", "/campaigns", "/api/v1/status", "/api/v1/campaigns"} {
			if n := get(h, path).want(t, 200).Body.Len(); n > 100_000 {
				t.Errorf("%s: %d bytes", path, n)
			}
		}
		for _, path := range []string{"/live?page=campaigns", "/live?page=&last=7d", "/api/v1/live?of=campaigns"} {
			events, leave := watch(t, h, path)
			events()
			w.waiting.Add(1)
			time.Sleep(time.Second)
			event := events()
			leave()
			t.Logf("%s: %d bytes", path, len(event))
			if strings.Count(event, "id: ") != 1 || len(event) > 100_000 {
				t.Errorf("%s: in a second %d events of %d bytes", path, strings.Count(event, "id: "), len(event))
			}
		}
	})
}

// Ten thousand campaigns: what is computed for all who look, once a second, and a page that is shown then. make e2e
// FIGURE=ManyCampaigns measures pages with daemons and services.
func BenchmarkTenThousandCampaigns(b *testing.B) {
	w := newWorld()
	w.crowd(10_000)
	b.Run("state", func(b *testing.B) {
		for b.Loop() {
			view.NewWatcher(w.sources()).Look(b.Context())
		}
	})
	b.Run("page", func(b *testing.B) {
		h := serve(w)
		for b.Loop() {
			if answer := ask(h, "GET", "/campaigns", "", ""); answer.Code != http.StatusOK {
				b.Fatal(answer.Code)
			}
		}
	})
}
