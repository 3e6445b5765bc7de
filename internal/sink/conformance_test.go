package sink_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/log"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// What HTTP itself can do wrong, in each of its protocols, shown at a sink of kind http (TestConformance); and what the kinds without a
// destination have to do (TestConformanceWithoutADestination). Cases that a protocol cannot express are left out.

// behaviour is one case of the suite: how a destination behaves, and what the result has to be.
type behaviour struct {
	name      string
	protocols []sinktest.Protocol // nil: all of them
	options   sinktest.Options
	handle    func(*sinktest.Call)
	timeout   time.Duration // of the sink; 0: the default
	payload   []byte        // nil: 1,000 bytes
	rules     bool          // that look at the body

	want   []delivery.ResultClass // any of these
	status int
	wait   time.Duration // RetryAfter
	sent   int           // how often the server read the request to its end
	resent float64       // of these, counted as repeats
	within time.Duration // how long the call may take; 0: any time
}

const (
	protocolError   = 1 // codes of HTTP/2
	internalError   = 2
	refusedStream   = 7
	enhanceYourCalm = 11
)

var h2 = []sinktest.Protocol{sinktest.HTTP2}

func answer(status int, header ...string) func(*sinktest.Call) {
	return func(c *sinktest.Call) { c.Answer(status, header...) }
}

// first behaves so at the first request, and answers the others.
func first(handle func(*sinktest.Call)) func(*sinktest.Call) {
	return func(c *sinktest.Call) {
		if c.N == 1 {
			handle(c)
			return
		}
		c.Answer(200)
	}
}

func classes(c ...delivery.ResultClass) []delivery.ResultClass { return c }

var behaviours = slices.Concat(answered, unanswered, repeated, codes(), alerted)

var answered = []behaviour{
	{name: "delivered without a payload", handle: answer(204), payload: []byte{}, want: classes(delivery.Delivered), status: 204, sent: 1},
	{name: "delivered, 900 kB", handle: answer(202), payload: make([]byte, 900_000), want: classes(delivery.Delivered), status: 202, sent: 1},
	{
		name: "throttled by a limit", handle: answer(429, "RateLimit", `"burst";r=5;t=1, "day";r=0;t=40`),
		want: classes(delivery.Throttled), status: 429, wait: 40 * time.Second, sent: 1,
	},
	{
		name: "oversized header", handle: answer(200, "X-Endless", strings.Repeat("x", 1<<20)),
		want: classes(delivery.Temporary), sent: 1,
	},
	{
		name: "trickling body", handle: func(c *sinktest.Call) { misbehave(c, trickles) },
		timeout: time.Minute, want: classes(delivery.Delivered), status: 200, sent: 1, within: 20 * time.Second,
	},
	{
		name: "trickling body that rules look at", handle: func(c *sinktest.Call) { misbehave(c, trickles) },
		timeout: 3 * time.Second, rules: true, want: classes(delivery.Temporary), status: 200, sent: 1,
	},
	{
		name: "oversized body that rules look at", handle: func(c *sinktest.Call) { misbehave(c, babbles) },
		rules: true, want: classes(delivery.Delivered), status: 200, sent: 1,
	},
	{
		name: "body that never comes", handle: func(c *sinktest.Call) { c.Begin(503, "Retry-After", "5"); c.Hang() },
		timeout: time.Minute, want: classes(delivery.Throttled), status: 503, wait: 5 * time.Second, sent: 1, within: 20 * time.Second,
	},
}

var unanswered = []behaviour{
	{name: "closed after the request was read", handle: (*sinktest.Call).Close, want: classes(delivery.Temporary), sent: 1},
	{
		// In HTTP/1.1 without TLS the request may be on its way when the connection breaks.
		name: "reset before the request was read", protocols: []sinktest.Protocol{sinktest.Plain},
		options: sinktest.Options{Accept: func(_ int, c net.Conn) bool { sinktest.Reset(c); return false }},
		want:    classes(delivery.Temporary, delivery.Unreachable), sent: 0,
	},
	{
		name: "reset before TLS", protocols: []sinktest.Protocol{sinktest.TLS, sinktest.HTTP2},
		options: sinktest.Options{Accept: func(_ int, c net.Conn) bool { sinktest.Reset(c); return false }},
		want:    classes(delivery.Unreachable), sent: 0,
	},
	{
		name: "silent before TLS", protocols: []sinktest.Protocol{sinktest.TLS, sinktest.HTTP2}, timeout: 100 * time.Millisecond,
		options: sinktest.Options{Accept: func(_ int, c net.Conn) bool { _, _ = c.Read(make([]byte, 1)); time.Sleep(time.Second); return false }},
		want:    classes(delivery.Unreachable), sent: 0,
	},
	{
		name: "stream reset by an error", protocols: h2, handle: func(c *sinktest.Call) { c.Refuse(internalError) },
		want: classes(delivery.Temporary), sent: 1,
	},
	{
		name: "GOAWAY after the stream, and no answer", protocols: h2,
		handle: func(c *sinktest.Call) { c.GoAway(true); c.Close() }, want: classes(delivery.Temporary), sent: 1,
	},
}

var repeated = []behaviour{
	{
		name: "GOAWAY after the stream, then the answer", protocols: h2,
		handle: func(c *sinktest.Call) { c.GoAway(true); c.Answer(200) }, want: classes(delivery.Delivered), status: 200, sent: 1,
	},
	{
		name: "GOAWAY before the stream", protocols: h2, handle: first(func(c *sinktest.Call) { c.GoAway(false) }),
		want: classes(delivery.Delivered), status: 200, sent: 2, resent: 1,
	},
	{
		name: "GOAWAY before the stream, twice", protocols: h2, handle: func(c *sinktest.Call) { c.GoAway(false) },
		want: classes(delivery.Unreachable), sent: 2, resent: 1,
	},
	{
		name: "refused stream", protocols: h2, handle: first(func(c *sinktest.Call) { c.Refuse(refusedStream) }),
		want: classes(delivery.Delivered), status: 200, sent: 2, resent: 1,
	},
	{
		name: "refused stream, without a payload", protocols: h2, payload: []byte{},
		handle: first(func(c *sinktest.Call) { c.Refuse(refusedStream) }),
		want:   classes(delivery.Delivered), status: 200, sent: 2, resent: 1,
	},
	{
		name: "refused for ever", protocols: h2, handle: func(c *sinktest.Call) { c.Refuse(refusedStream) },
		want: classes(delivery.Unreachable), sent: 2, resent: 1,
	},
	{
		name: "refused for ever, without a payload", protocols: h2, payload: []byte{},
		handle: func(c *sinktest.Call) { c.Refuse(refusedStream) }, want: classes(delivery.Unreachable), sent: 2, resent: 1,
	},
	{
		name: "refused, and then no answer", protocols: h2, timeout: 3 * time.Second,
		handle: func(c *sinktest.Call) {
			if c.N == 1 {
				c.Refuse(refusedStream)
				return
			}
			c.Hang()
		},
		want: classes(delivery.Temporary), sent: 2, resent: 1,
	},
}

// codes are cases of an HTTP/2 destination that resets a stream, or ends a connection, with a code. If a stream was refused, or reset for
// a protocol error, net/http concludes that it was not processed. The other codes do not say that.
func codes() (list []behaviour) {
	for code := range uint32(15) { // and one that nobody knows
		if code != refusedStream && code != protocolError {
			list = append(list, behaviour{
				name: fmt.Sprintf("stream reset with code %d", code), protocols: h2, handle: func(c *sinktest.Call) { c.Refuse(code) },
				want: classes(delivery.Temporary), sent: 1,
			})
		}
	}
	for _, code := range []uint32{protocolError, internalError, refusedStream, enhanceYourCalm, 99} {
		list = append(list,
			behaviour{
				name: fmt.Sprintf("GOAWAY with code %d after the stream, then the answer", code), protocols: h2,
				handle: func(c *sinktest.Call) { c.GoAwayFor(true, code); c.Answer(200) }, want: classes(delivery.Delivered), status: 200, sent: 1,
			},
			behaviour{
				name: fmt.Sprintf("GOAWAY with code %d before the first stream", code), protocols: h2,
				handle: func(c *sinktest.Call) { c.GoAwayFor(false, code) }, want: classes(delivery.Temporary), sent: 1,
			})
	}
	return append(list, behaviour{
		name: "stream reset for a protocol error", protocols: h2, handle: first(func(c *sinktest.Call) { c.Refuse(protocolError) }),
		want: classes(delivery.Delivered), status: 200, sent: 2, resent: 1,
	})
}

var alerted = []behaviour{
	{
		name: "TLS alert after the request was read", protocols: []sinktest.Protocol{sinktest.TLS, sinktest.HTTP2}, handle: (*sinktest.Call).Alert,
		want: classes(delivery.Temporary), sent: 1,
	},
	{
		name: "TLS alert in the body", protocols: []sinktest.Protocol{sinktest.TLS, sinktest.HTTP2},
		handle: func(c *sinktest.Call) { c.Begin(202, "Content-Length", "1000"); _ = c.Body([]byte("{")); c.Alert() },
		want:   classes(delivery.Delivered), status: 202, sent: 1,
	},
	{
		name: "TLS alert in the body that rules look at", protocols: []sinktest.Protocol{sinktest.TLS, sinktest.HTTP2}, rules: true,
		handle: func(c *sinktest.Call) { c.Begin(200, "Content-Length", "1000"); _ = c.Body([]byte("{")); c.Alert() },
		want:   classes(delivery.Temporary), status: 200, sent: 1,
	},
}

// open opens a sink of kind http for the server, in a router of its own.
func open(t *testing.T, srv *sinktest.Server, change func(*http.Config)) (r *sink.Router, resent func() float64) {
	t.Helper()
	cfg := http.Default()
	cfg.URL, cfg.CAFile = srv.URL, srv.CAFile
	if change != nil {
		change(cfg)
	}
	e, err := sink.Open(cfg, host)
	if err != nil {
		t.Fatal(err)
	}
	r, reg, _ := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"a": e}})
	t.Cleanup(func() { _ = r.Close() })
	return r, func() float64 { return values(t, reg, "pacer_sink_resent_total")["a"] }
}

func TestConformance(t *testing.T) {
	for _, b := range behaviours {
		for _, p := range sinktest.Protocols {
			if b.protocols != nil && !slices.Contains(b.protocols, p) {
				continue
			}
			t.Run(b.name+"/"+string(p), func(t *testing.T) {
				t.Parallel()
				b.run(t, p)
			})
		}
	}
}

func (b *behaviour) run(t *testing.T, p sinktest.Protocol) {
	srv := sinktest.Start(t, p, b.options, b.handle)
	r, resent := open(t, srv, func(c *http.Config) {
		if c.Timeout = b.timeout; b.timeout == 0 {
			c.Timeout = 10 * time.Second // a machine under load is slow, and says nothing about the sink
		}
		if b.rules {
			c.Rules = rulesOfHTTP()
		}
	})
	j := &delivery.Job{ID: "u-1", Campaign: "spring", Payload: b.payload}
	if j.Payload == nil {
		j.Payload = make([]byte, 1000)
	}
	begun := time.Now()
	res := r.Deliver(t.Context(), "a", j)
	took := time.Since(begun)
	if !slices.Contains(b.want, res.Class) || res.Status != b.status || res.RetryAfter != b.wait {
		t.Errorf("result %+v, want class %s, status %d, wait %s", res, b.want, b.status, b.wait)
	}
	if (res.Detail == "") != (res.Class == delivery.Delivered) {
		t.Errorf("detail %q", res.Detail)
	}
	if n := len(srv.Seen()); n != b.sent {
		t.Errorf("the destination read the request %d times, want %d", n, b.sent)
	}
	if n := resent(); n != b.resent {
		t.Errorf("%v repeats counted, want %v", n, b.resent)
	}
	if b.within > 0 && took > b.within {
		t.Errorf("the call took %s", took)
	}
}

// TestConformanceEarly: a destination that answers before it has read all of a request, and closes the connection, is heard.
func TestConformanceEarly(t *testing.T) {
	for _, p := range []sinktest.Protocol{sinktest.Plain, sinktest.TLS} {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			r, _ := open(t, sinktest.Start(t, p, sinktest.Options{Early: 413}, nil), func(c *http.Config) { c.Timeout = 10 * time.Second })
			for range 30 {
				if res := r.Deliver(t.Context(), "a", &delivery.Job{ID: "1", Payload: make([]byte, 4<<20)}); res.Class != delivery.Permanent || res.Status != 413 {
					t.Errorf("%+v", res)
				}
			}
		})
	}
}

// TestConformanceIdleConnectionClosed: a destination may close a connection that is idle whenever it likes. No request
// is processed twice for that, and few are lost in doubt.
func TestConformanceIdleConnectionClosed(t *testing.T) {
	for _, p := range sinktest.Protocols {
		t.Run(string(p), func(t *testing.T) {
			t.Parallel()
			srv := sinktest.Start(t, p, sinktest.Options{}, func(c *sinktest.Call) { c.Answer(200); c.Close() })
			r, _ := open(t, srv, nil)
			delivered := 0
			for i := range 50 {
				res := r.Deliver(t.Context(), "a", &delivery.Job{ID: fmt.Sprint(i), Payload: []byte("x")})
				switch res.Class {
				case delivery.Delivered:
					delivered++
				case delivery.Temporary, delivery.Unreachable:
				default:
					t.Errorf("%+v", res)
				}
			}
			seen := srv.Seen()
			slices.Sort(seen)
			if n := len(slices.Compact(slices.Clone(seen))); n != len(seen) || delivered > n {
				t.Errorf("%d requests arrived, of %d jobs; %d were delivered", len(seen), n, delivered)
			}
		})
	}
}

// TestConformanceCeiling: as many calls as the sink allows are open at the destination at once, also where a connection
// takes fewer.
func TestConformanceCeiling(t *testing.T) {
	const ceiling = 48
	for _, tt := range []struct {
		protocol sinktest.Protocol
		streams  uint32
	}{{sinktest.Plain, 0}, {sinktest.TLS, 0}, {sinktest.HTTP2, 0}, {sinktest.HTTP2, 10}} {
		t.Run(fmt.Sprintf("%s %d", tt.protocol, tt.streams), func(t *testing.T) {
			t.Parallel()
			var arrived atomic.Int32
			all := make(chan struct{})
			srv := sinktest.Start(t, tt.protocol, sinktest.Options{Streams: tt.streams}, func(c *sinktest.Call) {
				if arrived.Add(1) == ceiling {
					close(all)
				}
				select {
				case <-all:
					c.Answer(200)
				case <-c.Gone():
				}
			})
			r, _ := open(t, srv, func(c *http.Config) { c.MaxInFlight, c.Timeout = ceiling, 20*time.Second })
			var calls sync.WaitGroup
			for i := range ceiling {
				calls.Go(func() {
					res := r.Deliver(t.Context(), "a", &delivery.Job{ID: fmt.Sprint(i), Payload: []byte("x")})
					if res.Class != delivery.Delivered {
						t.Errorf("%+v", res)
					}
				})
			}
			calls.Wait()
		})
	}
}

func TestConformanceWithoutADestination(t *testing.T) {
	recorded := log.Settings{MaxInFlight: 64, Record: t.TempDir() + "/record"}
	for name, cfg := range map[string]sink.Config{
		"discard": log.DefaultDiscard(), "log": log.Default(), "record": &log.Discard{Settings: recorded},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := sink.Open(cfg, host)
			if err != nil {
				t.Fatal(err)
			}
			r, _, _ := newRouter(t, sink.Options{Sinks: map[string]sink.Entry{"a": e}})
			var calls sync.WaitGroup
			for i := range e.MaxInFlight {
				calls.Go(func() {
					res := r.Deliver(t.Context(), "a", &delivery.Job{ID: fmt.Sprint(i), Campaign: "c", Payload: []byte("hunter22")})
					if res != (delivery.Result{Class: delivery.Delivered}) {
						t.Errorf("%+v", res)
					}
				})
			}
			calls.Wait()
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			res := r.Deliver(ctx, "a", &delivery.Job{ID: "late", Campaign: "c"})
			if res.Class != delivery.Delivered && res.Class != delivery.Interrupted {
				t.Errorf("cancelled: %+v", res)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
