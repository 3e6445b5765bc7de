package metric

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
)

// scraped is what a scrape gets that accepts these formats first.
func scraped(reg prometheus.Gatherer, accept string) (body, format string) {
	r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
	r.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true, DisableCompression: true}).ServeHTTP(w, r)
	return w.Body.String(), w.Header().Get("Content-Type")
}

// TestLatenciesAreScraped: OpenMetrics has buckets with their exemplars, the older text the buckets alone, and protobuf everything.
func TestLatenciesAreScraped(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	h := prometheus.NewHistogram(Latency("x_seconds", "Help.", .01, .1))
	reg.MustRegister(h)
	Observe(h, 5*time.Millisecond, "")
	Observe(h, 50*time.Millisecond, "4bf92f3577b34da6a3ce929d0e0e4736")
	open, _ := scraped(reg, "application/openmetrics-text; version=1.0.0")
	if !strings.Contains(open, `x_seconds_bucket{le="0.1"} 2 # {trace_id="4bf92f3577b34da6a3ce929d0e0e4736"} 0.05 `) || strings.Count(open, "trace_id") != 1 {
		t.Errorf("OpenMetrics has\n%s", open)
	}
	text, _ := scraped(reg, "text/plain")
	if !strings.Contains(text, `x_seconds_bucket{le="0.1"} 2`+"\n") || strings.Contains(text, "trace_id") {
		t.Errorf("text has\n%s", text)
	}
	body, format := scraped(reg, "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited")
	var family dto.MetricFamily
	if err := expfmt.NewDecoder(strings.NewReader(body), expfmt.Format(format)).Decode(&family); err != nil {
		t.Fatal(err)
	}
	got := family.GetMetric()[0].GetHistogram()
	if got.GetSchema() != 3 || len(got.GetPositiveDelta()) != 2 || len(got.GetBucket()) < 2 || len(got.GetExemplars()) != 1 {
		t.Errorf("protobuf has %v", got)
	}
}

// TestNativeHistogramsAreBounded: latencies of any size have a bounded number of cells.
func TestNativeHistogramsAreBounded(t *testing.T) {
	h := prometheus.NewHistogram(Latency("x_seconds", "Help.", .01, .1))
	for took := time.Microsecond; took < 24*time.Hour; took += took/50 + 1 {
		Observe(h, took, "")
	}
	if n := len(written(h).GetHistogram().GetPositiveDelta()); n == 0 || n > nativeCells {
		t.Errorf("%d cells, want at most %d", n, nativeCells)
	}
}
