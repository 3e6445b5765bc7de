package http

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// TestClosedWhileIdle: a connection that the destination closes between two requests, at the worst moment: after the
// second request got it and before anything was written to it.
func TestClosedWhileIdle(t *testing.T) {
	for _, payload := range [][]byte{nil, []byte("x")} {
		closing, closed := make(chan struct{}), make(chan struct{})
		isClosed := sync.OnceFunc(func() { close(closed) })
		srv := sinktest.Start(t, sinktest.Plain, sinktest.Options{}, func(c *sinktest.Call) {
			c.Answer(200)
			if c.N == 1 {
				<-closing
				c.Close()
			}
		})
		s := newSink(t, srv.URL)
		s.Now().Transport.DialContext = sinktest.Watch(s.Now().Transport.DialContext, isClosed)
		j := job()
		j.Payload = payload
		sinktest.Deliver(t, s, j, delivery.Delivered)
		ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
			if info.Reused {
				close(closing)
				<-closed
			}
		}})
		if r := s.Deliver(ctx, j, nil); r.Class != delivery.Delivered {
			t.Errorf("%+v", r)
		}
		if n := len(srv.Seen()); n != 2 || s.Repeats.Load() != 0 {
			t.Errorf("%d requests arrived, %d were written again", n, s.Repeats.Load())
		}
	}
}

// TestConnectionsAreReplaced: connections are used again and again, also after long answers, for max_conn_age at most. No request is lost by that.
func TestConnectionsAreReplaced(t *testing.T) {
	for _, p := range sinktest.Protocols {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			srv := sinktest.Start(t, p, sinktest.Options{}, func(c *sinktest.Call) {
				c.Begin(200)
				for range 4 {
					_ = c.Body(make([]byte, 16<<10))
				}
				c.End()
			})
			s := newSink(t, srv.URL, func(c *Config) { c.CAFile, c.MaxConnAge, c.Timeout = srv.CAFile, time.Hour, 30*time.Second })
			const callers, each = 8, 25
			deliver := func() {
				var all sync.WaitGroup
				for range callers {
					all.Go(func() {
						for range each {
							sinktest.Deliver(t, s, job(), delivery.Delivered)
						}
					})
				}
				all.Wait()
			}
			deliver()
			if n := srv.Connections(); n > 4*callers {
				t.Errorf("%d connections within an hour", n)
			}
			before := srv.Connections()
			s.Now().Options.MaxConnAge = time.Nanosecond // connections are old at once, from now on
			s.Now().Transport.CloseIdleConnections()
			deliver()
			if n := srv.Connections() - before; n < each {
				t.Errorf("%d new connections for %d requests", n, callers*each)
			}
			if n := len(srv.Seen()); n != 2*callers*each {
				t.Errorf("%d requests arrived, of %d", n, 2*callers*each)
			}
		})
	}
}

// TestProxy: what is checked is what a delivery uses.
func TestProxy(t *testing.T) {
	srv := sinktest.Start(t, sinktest.TLS, sinktest.Options{}, func(c *sinktest.Call) { c.Answer(200) })
	to, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	status := http.StatusOK
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || status != http.StatusOK {
			w.WriteHeader(status)
			return
		}
		out, err := net.Dial("tcp", to.Host)
		if err != nil {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		defer out.Close()
		in, _, _ := w.(http.Hijacker).Hijack()
		defer in.Close()
		_, _ = io.WriteString(in, "HTTP/1.1 200 OK\r\n\r\n")
		go func() { _, _ = io.Copy(out, in); _ = out.Close() }()
		_, _ = io.Copy(in, out)
	}))
	defer proxy.Close()
	at, _ := url.Parse(strings.Replace(proxy.URL, "://", "://me:hunter22@", 1))
	for _, tt := range []struct {
		url    string
		status int
		class  delivery.ResultClass
		detail string
	}{
		{"https://destination.invalid:" + to.Port(), http.StatusBadGateway, delivery.Unreachable, "502 Bad Gateway"},
		{"https://destination.invalid:" + to.Port(), http.StatusProxyAuthRequired, delivery.Misconfigured, "check the credentials in HTTP_PROXY"},
		{"http://destination.invalid", http.StatusProxyAuthRequired, delivery.Misconfigured, "check the credentials in HTTP_PROXY"},
		{"http://destination.invalid", http.StatusOK, delivery.Delivered, ""},
		{srv.URL, http.StatusOK, delivery.Delivered, ""},
	} {
		status = tt.status
		s := newSink(t, tt.url, func(c *Config) { c.CAFile = srv.CAFile })
		s.Now().Transport.Proxy = http.ProxyURL(at) // the environment's is read once, and never for 127.0.0.1
		r := s.Deliver(t.Context(), job(), nil)
		if r.Class != tt.class || !strings.Contains(r.Detail, tt.detail) || strings.Contains(r.Detail, "hunter22") {
			t.Errorf("%s, %d: %+v", tt.url, tt.status, r)
		}
		err := s.Check(t.Context())
		if wants := tt.class == delivery.Delivered || strings.HasPrefix(tt.url, "http://"); (err == nil) != wants {
			t.Errorf("%s, %d: check: %v", tt.url, tt.status, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNothingIsSentTwice: net/http would repeat a GET, or a POST with an Idempotency-Key, on a fresh connection when a kept-alive one breaks
// after the request was written.
func TestNothingIsSentTwice(t *testing.T) {
	for _, p := range sinktest.Protocols {
		for method, payload := range map[string]string{"GET": "", "POST": "x", "PUT": ""} {
			srv := sinktest.Start(t, p, sinktest.Options{}, func(c *sinktest.Call) {
				if c.N == 1 {
					c.Answer(200)
					return
				}
				c.Close()
			})
			s := newSink(t, srv.URL, func(c *Config) {
				c.Method, c.CAFile, c.Headers = method, srv.CAFile, map[string]string{"X-Idempotency-Key": "for net/http the same"}
			})
			j := job()
			j.Payload = []byte(payload)
			for i, want := range []delivery.ResultClass{delivery.Delivered, delivery.Temporary} {
				if r := s.Deliver(t.Context(), j, nil); r.Class != want {
					t.Errorf("%s: %s %d: %+v", p, method, i+1, r)
				}
			}
			if n := len(srv.Seen()); n != 2 {
				t.Errorf("%s: %s: %d requests arrived", p, method, n)
			}
		}
	}
}
