package http

import (
	"bytes"
	"context"
	"encoding/pem"
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

// newSink makes a sink with the address, after the changes that are not nil.
func newSink(t testing.TB, url string, changes ...func(*Config)) *Sink {
	t.Helper()
	c := Default()
	c.URL = url
	for _, change := range changes {
		if change != nil {
			change(c)
		}
	}
	s, err := New(c, base.Host{Version: "1.2.3", Logger: slog.New(slog.DiscardHandler)})
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

// request is what a destination got.
type request struct {
	line, body string
	header     http.Header
	length     int64
}

// got serves 200, and returns the last request.
func got(t testing.TB) (url string, last *request) {
	last = &request{}
	return serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*last = request{r.Method + " " + r.RequestURI, string(body), r.Header.Clone(), r.ContentLength}
	}), last
}

// TestAnswers: what a status means, and how long an answer asks to wait.
func TestAnswers(t *testing.T) {
	date := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	of := func(s ...int) []int { return s }
	for _, tt := range []struct {
		statuses   []int
		retryAfter string
		class      delivery.ResultClass
		wait       time.Duration
	}{
		{of(200, 201, 204), "5", delivery.Delivered, 0},
		{of(300, 307, 401, 403, 407), "7", delivery.Misconfigured, 0},
		{of(400, 404, 410), "7", delivery.Permanent, 0},
		{of(408, 425, 500, 502, 503, 599, 999), "", delivery.Temporary, 0},
		{of(408, 425, 500), "30", delivery.Temporary, 30 * time.Second},
		{of(503), "never", delivery.Temporary, 0},
		{of(503), "-1", delivery.Temporary, 0},
		{of(503, 429), "30", delivery.Throttled, 30 * time.Second},
		{of(429), "", delivery.Throttled, 0},
		{of(429), "soon", delivery.Throttled, 0},
		{of(429), "1.5", delivery.Throttled, 0},
		{of(429), "0", delivery.Throttled, time.Second},
		{of(429), "999999999999999999999999", delivery.Throttled, 24 * time.Hour},
		{of(429), date.Add(time.Minute).Format(http.TimeFormat), delivery.Throttled, time.Minute},
		{of(429), date.Add(-time.Minute).Format(http.TimeFormat), delivery.Throttled, time.Second},
		{of(429), date.AddDate(1, 0, 0).Format(http.TimeFormat), delivery.Throttled, 24 * time.Hour},
	} {
		for _, status := range tt.statuses {
			url := says(t, status, "", "Date", date.Format(http.TimeFormat), "Retry-After", tt.retryAfter)
			want := delivery.Result{Class: tt.class, Status: status, RetryAfter: tt.wait}
			if tt.class == delivery.Temporary {
				if want.By = delivery.ByDestination; status >= 502 && status <= 504 {
					want.By = delivery.ByNobody
				}
			}
			r := newSink(t, url).Deliver(t.Context(), job(), nil)
			detail := r.Detail
			if r.Detail = ""; r != want || (detail == "") != (tt.class == delivery.Delivered) {
				t.Errorf("%d, %q: %+v, %q, want %+v", status, tt.retryAfter, r, detail, want)
			}
		}
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
		if r := newSink(t, address).Deliver(ctx, job(), nil); r.Class != want.class || !strings.Contains(r.Detail, want.detail) {
			t.Errorf("%s: %+v", address, r)
		}
		cancel()
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
		s := newSink(t, srv.URL, func(c *Config) {
			c.CAFile, c.Headers = file, map[string]string{"a": "{{ .Payload }}", "b": "{{ .Payload }}"}
		})
		for _, size := range []int{10, 8 << 10, 20} { // the destination says it with its first answer
			want := delivery.Delivered
			if size > 4<<10 {
				want = delivery.Permanent
			}
			j := job()
			j.Payload = bytes.Repeat([]byte{'x'}, size)
			if r := s.Deliver(t.Context(), j, nil); r.Class != want {
				t.Errorf("HTTP/2: %t, %d bytes: %+v, want %s", h2, size, r, want)
			}
		}
	}
}

func BenchmarkDeliver(b *testing.B) {
	url := serve(b, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
	for name, change := range map[string]func(*Config){
		"plain": nil, "judged": judging, "templates": func(c *Config) { c.Body = `{"to":"{{ .JSON.a }}","id":"{{ .ID }}"}` },
		"signed": func(c *Config) { c.Sign.Secrets = []string{secretOf("a"), secretOf("b")} },
	} {
		b.Run(name, func(b *testing.B) {
			s := newSink(b, url, change)
			b.ReportAllocs()
			b.SetParallelism(64)
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					sinktest.Deliver(b, s, job(), delivery.Delivered)
				}
			})
		})
	}
}
