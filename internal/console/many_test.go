package console

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/catalog"
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
		for path, has := range map[string]string{
			"/live?page=campaigns": "campaign-00006", "/live?page=campaigns&q=00007": "campaign-00007", "/live?page=&last=7d": `data: <div id="live">`,
			"/api/v1/live?of=campaigns": `data: {"campaigns":[{"id":`,
		} {
			events, leave := watch(t, h, path)
			first := events()
			if !strings.HasPrefix(first, "id: ") || !strings.Contains(first, has) || strings.Contains(path, "q=") && strings.Contains(first, "campaign-00006") {
				t.Errorf("%s: the first event is %.200q", path, first)
			}
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

// slowly is a database that takes a second to list all campaigns.
type slowly struct {
	view.Catalog
	asked *int
}

func (s slowly) ListCampaigns(ctx context.Context) ([]catalog.CampaignRow, error) {
	*s.asked++
	time.Sleep(time.Second)
	return s.Catalog.ListCampaigns(ctx)
}

// TestLookingCostsTheDatabaseLittle: what takes a second to read is not read each five, however many look.
func TestLookingCostsTheDatabaseLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		h, site := serveOf(newWorld(), func(s *view.Sources) { s.Catalog = slowly{s.Catalog, &asked} })
		looking(t, site)
		asked = 0
		for range 120 {
			get(h, "/campaigns")
			time.Sleep(time.Second)
		}
		if asked < 3 || asked > 7 {
			t.Errorf("in two minutes it was asked %d times", asked)
		}
	})
}

// hearer notes how much memory is in use when the first bytes of an answer are written.
type hearer struct {
	http.ResponseWriter
	used int64
}

func (h *hearer) Write(b []byte) (int, error) {
	if h.used == 0 {
		h.used = heap()
	}
	return len(b), nil
}

func heap() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// TestAFileIsWrittenAsItIsRead: clients that read slowly, which need no token, must not have a daemon hold a file for each of them.
func TestAFileIsWrittenAsItIsRead(t *testing.T) {
	w := newWorld()
	w.crowd(20_000)
	h := serve(w)
	get(h, "/campaigns").want(t, http.StatusOK)
	before, slow := heap(), &hearer{ResponseWriter: httptest.NewRecorder()}
	r := httptest.NewRequest(http.MethodGet, here+"/campaigns.csv", nil)
	h.ServeHTTP(slow, r)
	if more := slow.used - before; slow.used == 0 || more > 1<<20 {
		t.Errorf("at the first bytes of %d campaigns %d KiB more are in use", len(w.snapshot.Campaigns), more>>10)
	}
}
