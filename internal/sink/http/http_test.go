package http

import (
	"bufio"
	"bytes"
	"context"
	"encoding/pem"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
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

func job() *delivery.Job {
	return &delivery.Job{ID: "u-42", Campaign: "spring", Weight: 1, Meta: delivery.Meta{ContentType: "application/json"}, Payload: []byte(`{"a":1}`)}
}

func TestRequestCarriesPayloadAndMetadata(t *testing.T) {
	var got *http.Request
	var payload []byte
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		got = r
		payload, _ = io.ReadAll(r.Body)
	})
	s := newSink(t, Config{URL: strings.Replace(url, "http://", "http://me:secret@", 1) + "/deliver?k=v"},
		func(c *Config) { c.Headers = map[string]string{"x-tenant": "blue"} })
	j := job()
	j.Attempt = 2 // before this one
	j.TraceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	j.Headers = []delivery.Header{{Key: "x-private", Value: []byte("no")}, {Key: "tracestate", Value: []byte("a=1")}}
	if r := s.Deliver(t.Context(), j); r.Class != delivery.Delivered || r.Status != 200 || r.Detail != "" {
		t.Fatalf("result %+v", r)
	}
	if got.Method != http.MethodPost || got.URL.String() != "/deliver?k=v" || !bytes.Equal(payload, j.Payload) {
		t.Errorf("%s %s %q", got.Method, got.URL, payload)
	}
	want := map[string]string{
		"webhook-id": "u-42", "Idempotency-Key": "u-42", "pacer-campaign": "spring", "pacer-attempt": "3",
		"content-type": "application/json", "traceparent": j.TraceParent, "tracestate": "a=1", "User-Agent": "pacer/1.2.3", "X-Tenant": "blue",
		"Content-Length": "7", "X-Private": "", "Accept-Encoding": "",
	}
	for name, value := range want {
		if v := got.Header.Get(name); v != value {
			t.Errorf("header %s = %q, want %q", name, v, value)
		}
	}
	if u, p, _ := got.BasicAuth(); u != "me" || p != "secret" {
		t.Errorf("basic auth %q %q", u, p)
	}
}

func TestEmptyPayloadAndDefaultContentType(t *testing.T) {
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		n, _ := io.Copy(io.Discard, r.Body)
		if n != 0 || r.ContentLength != 0 || r.Header.Get("Content-Type") != "application/octet-stream" || r.Header["Traceparent"] != nil {
			w.WriteHeader(http.StatusTeapot)
		}
	})
	j := job()
	j.Payload, j.ContentType = nil, ""
	if r := newSink(t, Config{URL: url}).Deliver(t.Context(), j); r.Class != delivery.Delivered {
		t.Fatalf("result %+v", r)
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
		{301, "", delivery.Misconfigured, 0},
		{304, "", delivery.Misconfigured, 0},
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
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Date", date.Format(http.TimeFormat))
				if tt.retryAfter != "" {
					w.Header().Set("Retry-After", tt.retryAfter)
				}
				w.WriteHeader(tt.status)
			})
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

func TestRedirectIsNotFollowedAndNamesTheRemedy(t *testing.T) {
	var calls atomic.Int32
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		calls.Add(1)
		w.Header().Set("Location", "https://u:hunter22@new.example/x?token=hunter22")
		w.WriteHeader(http.StatusPermanentRedirect)
	})
	r := newSink(t, Config{URL: url}).Deliver(t.Context(), job())
	if calls.Load() != 1 || r.Class != delivery.Misconfigured {
		t.Fatalf("%d calls, %+v", calls.Load(), r)
	}
	if !strings.HasSuffix(r.Detail, "set the sink's url to where it moved: https://new.example/x") {
		t.Errorf("detail %q", r.Detail)
	}
}

func TestNoAnswer(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := "http://" + closed.Addr().String()
	closed.Close()
	hijack := func(answer string, reset bool) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			c, _, _ := w.(http.Hijacker).Hijack()
			_, _ = io.WriteString(c, answer)
			if reset {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
			_ = c.Close()
		}
	}
	huge := "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 128<<10) + "\r\n\r\n"
	tests := []struct {
		name, url string
		class     delivery.ResultClass
		detail    string
	}{
		{"refused", refused, delivery.Unreachable, "connection refused"},
		{"no such host", "http://nowhere.invalid/", delivery.Unreachable, "no such host"},
		{"closed", serve(t, hijack("", false)), delivery.Temporary, "closed the connection before it answered; the request may"},
		{"reset", serve(t, hijack("", true)), delivery.Temporary, "connection reset"},
		{"half an answer", serve(t, hijack("HTTP/1.1 200 O", false)), delivery.Temporary, "closed the connection before it answered"},
		{"not http", serve(t, hijack("220 smtp ready\r\n\r\n", false)), delivery.Temporary, "something that is not HTTP"},
		{"endless header", serve(t, hijack(huge, false)), delivery.Temporary, "header"},
		{"no TLS", strings.Replace(serve(t, hijack("", false)), "http:", "https:", 1), delivery.Misconfigured, "TLS"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newSink(t, Config{URL: tt.url}).Deliver(t.Context(), job())
			if r.Class != tt.class || !strings.Contains(r.Detail, tt.detail) || strings.Contains(r.Detail, "smtp") {
				t.Errorf("%+v, want %s with %q", r, tt.class, tt.detail)
			}
			if (r.By == delivery.ByNobody) != (r.Class == delivery.Temporary) {
				t.Errorf("answered by %d", r.By)
			}
		})
	}
}

// TestTimeoutAndCancellationDiffer: the sink's own timeout speaks of the destination, and the end of the caller's context of pacer.
func TestTimeoutAndCancellationDiffer(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	arrived := make(chan struct{}, 3)
	url := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		arrived <- struct{}{}
		<-release
	})
	defer close(release)

	s := newSink(t, Config{URL: url}, func(c *Config) { c.Timeout = 2 * time.Second })
	r := s.Deliver(t.Context(), job())
	<-arrived
	if r.Class != delivery.Temporary || r.By != delivery.ByNobody || !strings.Contains(r.Detail, "within 2s") {
		t.Errorf("own timeout: %+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-arrived; cancel() }()
	if r := newSink(t, Config{URL: url}).Deliver(ctx, job()); r.Class != delivery.Interrupted {
		t.Errorf("cancelled: %+v", r)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if r := newSink(t, Config{URL: url}).Deliver(ctx, job()); r.Class != delivery.Temporary {
		t.Errorf("a deadline of all calls for the job: %+v", r)
	}
}

// TestSlowBodyDoesNotChangeTheAnswer: once the status is known, cancelling or timing out cannot make it unknown.
func TestSlowBodyDoesNotChangeTheAnswer(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-release
	})
	defer close(release)
	s := newSink(t, Config{URL: url}, func(c *Config) { c.Timeout = 2 * time.Second })
	if r := s.Deliver(t.Context(), job()); r.Class != delivery.Delivered {
		t.Errorf("%+v", r)
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
				if r := s.Deliver(t.Context(), job()); r.Class != delivery.Delivered {
					t.Fatalf("%+v", r)
				}
			}
			if len(conns) != 1 {
				t.Errorf("%d connections for 5 deliveries in a row", len(conns))
			}
		})
	}
}

func TestEndlessBodyIsCutOff(t *testing.T) {
	done := make(chan int64, 1)
	url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
		var n int64
		for chunk := make([]byte, 32<<10); ; {
			m, err := w.Write(chunk)
			if n += int64(m); err != nil {
				done <- n
				return
			}
		}
	})
	s := newSink(t, Config{URL: url})
	if r := s.Deliver(t.Context(), job()); r.Class != delivery.Delivered {
		t.Fatalf("%+v", r)
	}
	if n := <-done; n > 64<<20 {
		t.Errorf("the destination wrote %d bytes", n)
	}
}

// TestBrokenConnectionNeverSendsTwice: net/http would repeat a POST with an Idempotency-Key on a fresh connection when
// a kept-alive one breaks after the request was written. The server counts what it read.
func TestBrokenConnectionNeverSendsTwice(t *testing.T) {
	for name, payload := range map[string][]byte{"payload": []byte("x"), "no payload": nil} {
		t.Run(name, func(t *testing.T) {
			var requests atomic.Int32
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			var wg sync.WaitGroup
			wg.Go(func() {
				for {
					c, err := l.Accept()
					if err != nil {
						return
					}
					wg.Go(func() { answerOnce(c, &requests) })
				}
			})
			s := newSink(t, Config{URL: "http://" + l.Addr().String()},
				func(c *Config) { c.Headers = map[string]string{"X-Idempotency-Key": "for net/http the same"} })
			j := job()
			j.Payload = payload
			if r := s.Deliver(t.Context(), j); r.Class != delivery.Delivered {
				t.Fatalf("first: %+v", r)
			}
			if r := s.Deliver(t.Context(), j); r.Class != delivery.Temporary {
				t.Errorf("second: %+v", r)
			}
			if n := requests.Load(); n != 2 {
				t.Errorf("two deliveries reached the server as %d requests", n)
			}
			_ = s.Close()
			_ = l.Close()
			wg.Wait()
		})
	}
}

// answerOnce answers the first request on a connection, reads the second in full and hangs up.
func answerOnce(c net.Conn, requests *atomic.Int32) {
	defer c.Close()
	in := bufio.NewReader(c)
	for i := range 2 {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, r.Body)
		requests.Add(1)
		if i == 0 {
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		}
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

func TestDetailsHoldNoSecrets(t *testing.T) {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	addr := l.Addr().String()
	l.Close()
	echo := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Location", "/"+r.Header.Get("X-Key")+"/"+r.URL.RawQuery)
		w.WriteHeader(http.StatusFound)
	})
	for _, host := range []string{addr, strings.TrimPrefix(echo, "http://")} {
		s := newSink(t, Config{URL: "http://me:hunter22@" + host + "/p?token=swordfish"},
			func(c *Config) { c.Headers = map[string]string{"X-Key": "opensesame"} })
		r := s.Deliver(t.Context(), job())
		for _, secret := range []string{"hunter22", "swordfish", "opensesame"} {
			if strings.Contains(r.Detail, secret) {
				t.Errorf("detail %q", r.Detail)
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
