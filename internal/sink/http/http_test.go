package http

import (
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newSink(t testing.TB, cfg Config, change ...func(*Config)) *Sink {
	t.Helper()
	def := Default()
	def.URL = cfg.URL
	for _, f := range change {
		f(def)
	}
	s, err := New(def, base.Host{Version: "1.2.3", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func serve(t testing.TB, h http.HandlerFunc) string {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	return srv.URL
}

// says serves an answer, with headers, names and values in turn.
func says(t testing.TB, status int, body string, header ...string) (url string) {
	t.Helper()
	return serve(t, func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			if header[i+1] != "" {
				w.Header().Set(header[i], header[i+1])
			}
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	})
}

func job() *delivery.Job {
	return &delivery.Job{ID: "u-42", Campaign: "spring", Weight: 1, Meta: delivery.Meta{ContentType: "application/json"}, Payload: []byte(`{"a":1}`)}
}

func TestRequestCarriesPayloadAndMetadata(t *testing.T) {
	url, last := got(t)
	s := newSink(t, Config{URL: strings.Replace(url, "http://", "http://me:secret@", 1) + "/deliver?k=v"},
		func(c *Config) { c.Headers = map[string]string{"x-tenant": "blue"} })
	j := job()
	j.Attempt = 2 // before this one
	j.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	j.Headers = []delivery.Header{{Key: "x-private", Value: []byte("no")}, {Key: "tracestate", Value: []byte("a=1")}}
	if r := s.Deliver(t.Context(), j); r.Class != delivery.Delivered || r.Status != 200 || r.Detail != "" {
		t.Fatalf("result %+v", r)
	}
	if last.line != "POST /deliver?k=v" || last.body != string(j.Payload) {
		t.Errorf("%s %q", last.line, last.body)
	}
	want := map[string]string{
		"webhook-id": "u-42", "Idempotency-Key": "u-42", "pacer-campaign": "spring", "pacer-attempt": "3",
		"content-type": "application/json", "traceparent": j.TraceParent, "tracestate": "a=1", "User-Agent": "pacer/1.2.3", "X-Tenant": "blue",
		"Content-Length": "7", "X-Private": "", "Accept-Encoding": "", "Authorization": "Basic bWU6c2VjcmV0",
	}
	for name, value := range want {
		if v := last.header.Get(name); v != value {
			t.Errorf("header %s = %q, want %q", name, v, value)
		}
	}
	j = job()
	j.Payload, j.ContentType = nil, ""
	sinktest.Deliver(t, s, j, delivery.Delivered)
	if last.body != "" || last.length != 0 || last.header.Get("Content-Type") != "application/octet-stream" || last.header["Traceparent"] != nil {
		t.Errorf("without a payload and its type: %+v", last)
	}
}

func TestAnswers(t *testing.T) {
	date := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	tests := []struct {
		status     int
		retryAfter string
		class      delivery.ResultClass
		wait       time.Duration
	}{
		{200, "", delivery.Delivered, 0},
		{201, "5", delivery.Delivered, 0},
		{204, "", delivery.Delivered, 0},
		{300, "", delivery.Misconfigured, 0},
		{307, "", delivery.Misconfigured, 0},
		{400, "", delivery.Permanent, 0},
		{401, "", delivery.Misconfigured, 0},
		{403, "7", delivery.Misconfigured, 0},
		{404, "7", delivery.Permanent, 0},
		{407, "", delivery.Misconfigured, 0},
		{408, "", delivery.Temporary, 0},
		{410, "", delivery.Permanent, 0},
		{425, "", delivery.Temporary, 0},
		{425, "4", delivery.Temporary, 4 * time.Second},
		{429, "", delivery.Throttled, 0},
		{429, "soon", delivery.Throttled, 0},
		{429, "0", delivery.Throttled, time.Second},
		{429, "90", delivery.Throttled, 90 * time.Second},
		{429, "999999999999999999999999", delivery.Throttled, 24 * time.Hour},
		{429, date.Add(time.Minute).Format(http.TimeFormat), delivery.Throttled, time.Minute},
		{429, date.Add(-time.Minute).Format(http.TimeFormat), delivery.Throttled, time.Second},
		{429, date.AddDate(1, 0, 0).Format(http.TimeFormat), delivery.Throttled, 24 * time.Hour},
		{500, "30", delivery.Temporary, 30 * time.Second},
		{502, "", delivery.Temporary, 0},
		{503, "", delivery.Temporary, 0},
		{503, "never", delivery.Temporary, 0},
		{503, "30", delivery.Throttled, 30 * time.Second},
		{599, "", delivery.Temporary, 0},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprintf("%d %s", tt.status, tt.retryAfter), func(t *testing.T) {
			url := says(t, tt.status, "", "Date", date.Format(http.TimeFormat), "Retry-After", tt.retryAfter)
			r := newSink(t, Config{URL: url}).Deliver(t.Context(), job())
			if r.Class != tt.class || r.RetryAfter != tt.wait || r.Status != tt.status {
				t.Errorf("%+v, want class %s, retry after %s", r, tt.class, tt.wait)
			}
			if (r.Detail == "") != (tt.class == delivery.Delivered) {
				t.Errorf("detail %q", r.Detail)
			}
			by := delivery.ByUnknown
			switch {
			case tt.class != delivery.Temporary:
			case tt.status >= 502 && tt.status <= 504:
				by = delivery.ByNobody
			default:
				by = delivery.ByDestination
			}
			if r.By != by {
				t.Errorf("answered by %d, want %d", r.By, by)
			}
		})
	}
}

// TestNoAnswer: what misbehaving destinations do not show.
func TestNoAnswer(t *testing.T) {
	hangs := make(chan struct{})
	url := serve(t, func(http.ResponseWriter, *http.Request) { <-hangs })
	defer close(hangs)
	for address, want := range map[string]struct {
		class  delivery.ResultClass
		detail string
	}{
		"http://nowhere.invalid/":                    {delivery.Unreachable, "no such host"},
		strings.Replace(url, "http:", "https:", 1):   {delivery.Misconfigured, "TLS"},
		url + "/until-the-end-of-all-calls-of-a-job": {delivery.Temporary, "within"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		if r := newSink(t, Config{URL: address}).Deliver(ctx, job()); r.Class != want.class || !strings.Contains(r.Detail, want.detail) {
			t.Errorf("%s: %+v", address, r)
		}
		cancel()
	}
}

func TestConnectionsAreReused(t *testing.T) {
	for name, size := range map[string]int{"empty": 0, "small": 100, "at the bound": 64 << 10} {
		t.Run(name, func(t *testing.T) {
			conns := map[string]bool{}
			url := serve(t, func(w http.ResponseWriter, r *http.Request) {
				conns[r.RemoteAddr] = true
				_, _ = w.Write(make([]byte, size))
			})
			s := newSink(t, Config{URL: url})
			for range 5 {
				sinktest.Deliver(t, s, job(), delivery.Delivered)
			}
			if len(conns) != 1 {
				t.Errorf("%d connections for 5 deliveries in a row", len(conns))
			}
		})
	}
}

func TestMetadataThatIsNoHeaderIsPermanent(t *testing.T) {
	url := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("was sent") })
	for _, contentType := range []string{"a\r\nX-Evil: 1", "a\x00b", strings.Repeat("x", (8<<10)+1)} {
		j := job()
		j.ContentType = contentType
		r := newSink(t, Config{URL: url}).Deliver(t.Context(), j)
		if r.Class != delivery.Permanent || !strings.HasPrefix(r.Detail, "content-type cannot be sent") {
			t.Errorf("%+v", r)
		}
	}
}

// TestHeadersThatTheDestinationDoesNotTake: in HTTP/2 it says beforehand how much it takes, and no other job is to blame for what is more.
func TestHeadersThatTheDestinationDoesNotTake(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		srv.EnableHTTP2, srv.Config.MaxHeaderBytes = h2, 4<<10
		srv.StartTLS()
		t.Cleanup(srv.Close)
		file := filepath.Join(t.TempDir(), "ca.pem")
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600); err != nil {
			t.Fatal(err)
		}
		s := newSink(t, Config{URL: srv.URL}, func(c *Config) {
			c.CAFile, c.Headers = file, map[string]string{"a": "{{ .Payload }}", "b": "{{ .Payload }}"}
		})
		for _, size := range []int{10, 8 << 10, 20} { // the destination says it with its first answer
			want := delivery.Delivered
			if size > 4<<10 {
				want = delivery.Permanent
			}
			j := job()
			j.Payload = bytes.Repeat([]byte{'x'}, size)
			if r := s.Deliver(t.Context(), j); r.Class != want {
				t.Errorf("HTTP/2: %t, %d bytes: %+v, want %s", h2, size, r, want)
			}
		}
	}
}

func BenchmarkDeliver(b *testing.B) {
	url := serve(b, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	s := newSink(b, Config{URL: url})
	j := job()
	j.Payload = make([]byte, 200)
	b.ReportAllocs()
	b.SetParallelism(64)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if r := s.Deliver(b.Context(), j); r.Class != delivery.Delivered {
				b.Errorf("%+v", r)
				return
			}
		}
	})
}

// BenchmarkRequest is what a delivery costs here, without net/http.
func BenchmarkRequest(b *testing.B) {
	s := newSink(b, Config{URL: "http://127.0.0.1:9"})
	j := job()
	b.ReportAllocs()
	for b.Loop() {
		if _, problem := s.Now().request(j, nil); problem != "" {
			b.Fatal(problem)
		}
	}
}
