package sink_test

import (
	"cmp"
	"fmt"
	"net"
	"os"
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

// TestConformance shows how HTTP itself can fail, in each of its protocols, at a sink of kind http. TestConformanceWithoutADestination asks the
// other kinds. Cases that a protocol cannot express are left out.

// behaviour is one case: how a destination behaves, and what the result has to be.
type behaviour struct {
	name      string
	protocols []sinktest.Protocol // nil: all of them
	options   sinktest.Options
	handle    func(*sinktest.Call)
	timeout   time.Duration // of the sink; 0: long
	payload   []byte        // nil: 1,000 bytes
	rules     bool          // that look at the body
	detail    string        // what the detail says

	want   delivery.ResultClass
	status int
	wait   time.Duration // RetryAfter
	sent   sent
	orLost bool // it may also be unreachable, as the request may have been on its way when the connection broke
}

// sent is how often the server read the request to its end.
type sent int

const (
	once sent = iota
	never
	twice // of which one is counted as a repeat
)

const (
	protocolError   = 1 // codes of HTTP/2
	internalError   = 2
	refusedStream   = 7
	enhanceYourCalm = 11
)

var (
	plain  = []sinktest.Protocol{sinktest.Plain}
	secure = []sinktest.Protocol{sinktest.TLS, sinktest.HTTP2}
	h2     = []sinktest.Protocol{sinktest.HTTP2}
)

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

var behaviours = slices.Concat(answered, unanswered, repeated, codes(), alerted)

func refuse(code uint32) func(*sinktest.Call) { return func(c *sinktest.Call) { c.Refuse(code) } }

func goAway(processed bool) func(*sinktest.Call) {
	return func(c *sinktest.Call) { c.GoAway(processed) }
}

func resetUnread(_ int, c net.Conn) bool { sinktest.Reset(c); return false }

func silentUnread(_ int, c net.Conn) bool {
	_, _ = c.Read(make([]byte, 1))
	time.Sleep(time.Second)
	return false
}

const delivered, temporary, unreachable = delivery.Delivered, delivery.Temporary, delivery.Unreachable

var answered = []behaviour{
	{name: "delivered without a payload", handle: answer(204), payload: []byte{}, want: delivered, status: 204},
	{name: "delivered, 900 kB", handle: answer(202), payload: make([]byte, 900_000), want: delivered, status: 202},
	{
		name: "throttled by a limit", handle: answer(429, "RateLimit", `"burst";r=5;t=1, "day";r=0;t=40`),
		want: delivery.Throttled, status: 429, wait: 40 * time.Second,
	},
	{name: "oversized header", handle: answer(200, "X-Endless", strings.Repeat("x", 1<<20)), want: temporary},
	{name: "trickling body", handle: func(c *sinktest.Call) { misbehave(c, trickles) }, want: delivered, status: 200},
	{
		name: "body that never comes", handle: func(c *sinktest.Call) { c.Begin(503, "Retry-After", "5"); c.Hang() },
		want: delivery.Throttled, status: 503, wait: 5 * time.Second,
	},
}

var unanswered = []behaviour{
	{name: "closed after the request was read", handle: (*sinktest.Call).Close, want: temporary},
	{name: "reset unread", protocols: plain, options: sinktest.Options{Accept: resetUnread}, want: temporary, orLost: true, sent: never},
	{name: "reset before TLS", protocols: secure, options: sinktest.Options{Accept: resetUnread}, want: unreachable, sent: never},
	{
		name: "silent before TLS", protocols: secure, options: sinktest.Options{Accept: silentUnread}, timeout: 100 * time.Millisecond,
		want: unreachable, sent: never,
	},
	{name: "GOAWAY after the stream, and no answer", protocols: h2, handle: func(c *sinktest.Call) { c.GoAway(true); c.Close() }, want: temporary},
}

var repeated = []behaviour{
	{name: "GOAWAY before the stream", protocols: h2, handle: first(goAway(false)), want: delivered, status: 200, sent: twice},
	{name: "GOAWAY before the stream, twice", protocols: h2, handle: goAway(false), want: unreachable, sent: twice},
	{name: "refused stream", protocols: h2, handle: first(refuse(refusedStream)), want: delivered, status: 200, sent: twice},
	{name: "refused, no payload", protocols: h2, payload: []byte{}, handle: first(refuse(refusedStream)), want: delivered, status: 200, sent: twice},
	{name: "refused for ever", protocols: h2, handle: refuse(refusedStream), want: unreachable, sent: twice, detail: "the request was sent twice"},
	{
		name: "refused for ever, no payload", protocols: h2, payload: []byte{}, handle: refuse(refusedStream), want: unreachable, sent: twice,
		detail: "the request was sent twice",
	},
	{
		name: "refused, and then no answer", protocols: h2, timeout: 3 * time.Second, want: temporary, sent: twice,
		handle: func(c *sinktest.Call) {
			if c.N == 1 {
				c.Refuse(refusedStream)
				return
			}
			c.Hang()
		},
	},
}

// codes are cases of an HTTP/2 destination that resets a stream, or ends a connection, with a code. If a stream was refused, or reset for
// a protocol error, net/http concludes that it was not processed. The other codes do not say that.
func codes() (list []behaviour) {
	for code := range uint32(15) { // and one that nobody knows
		if code != refusedStream && code != protocolError {
			list = append(list, behaviour{name: fmt.Sprintf("stream reset with code %d", code), protocols: h2, handle: refuse(code), want: temporary})
		}
	}
	for _, code := range []uint32{0, protocolError, internalError, refusedStream, enhanceYourCalm, 99} {
		after := func(c *sinktest.Call) { c.GoAwayFor(true, code); c.Answer(200) }
		before := func(c *sinktest.Call) { c.GoAwayFor(false, code) }
		name := fmt.Sprintf("GOAWAY with code %d ", code)
		list = append(list, behaviour{name: name + "after the stream, then the answer", protocols: h2, handle: after, want: delivered, status: 200})
		if code > 0 {
			list = append(list, behaviour{name: name + "before the first stream", protocols: h2, handle: before, want: temporary})
		}
	}
	protocol := first(refuse(protocolError))
	return append(list, behaviour{name: "stream reset for a protocol error", protocols: h2, handle: protocol, want: delivered, status: 200, sent: twice})
}

func alertInBody(status int) func(*sinktest.Call) {
	return func(c *sinktest.Call) {
		c.Begin(status, "Content-Length", "1000")
		_ = c.Body([]byte("{"))
		c.Alert()
	}
}

var alerted = []behaviour{
	{name: "TLS alert after the request was read", protocols: secure, handle: (*sinktest.Call).Alert, want: temporary},
	{name: "TLS alert in the body", protocols: secure, handle: alertInBody(202), want: delivered, status: 202},
	{name: "TLS alert in the body that rules look at", protocols: secure, rules: true, handle: alertInBody(200), want: temporary, status: 200},
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
		c.Timeout = cmp.Or(b.timeout, time.Minute) // a machine under load is slow, and says nothing about the sink
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
	if res.Class == unreachable && b.orLost {
		b.want = unreachable
	}
	if res.Class != b.want || res.Status != b.status || res.RetryAfter != b.wait || (res.Detail == "") != (res.Class == delivered) ||
		!strings.Contains(res.Detail, b.detail) {
		t.Errorf("result %+v, want class %s, status %d, wait %s", res, b.want, b.status, b.wait)
	}
	if n, want := len(srv.Seen()), map[sent]int{once: 1, never: 0, twice: 2}[b.sent]; n != want || (resent() == 1) != (b.sent == twice) || resent() > 1 {
		t.Errorf("the destination read the request %d times, want %d; %v repeats were counted", n, want, resent())
	}
	if took := time.Since(begun); took > 20*time.Second {
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

// TestConformanceWithoutADestination: such kinds deliver everything, and record it if they are to.
func TestConformanceWithoutADestination(t *testing.T) {
	file := t.TempDir() + "/record"
	settings := log.Settings{MaxInFlight: 64, Record: file}
	entries, err := sink.OpenAll(map[string]sink.Config{"discard": &log.Discard{Settings: settings}, "log": &log.Config{Settings: settings}}, host)
	if err != nil {
		t.Fatal(err)
	}
	r, _, _ := newRouter(t, sink.Options{Sinks: entries})
	for name := range entries {
		res := r.Deliver(t.Context(), name, jobOf(name, "hunter22"))
		if res != (delivery.Result{Class: delivery.Delivered, Took: res.Took}) {
			t.Errorf("%s: %+v", name, res)
		}
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	b, _ := os.ReadFile(file)
	if s := string(b); strings.Count(s, "\n") != 2 || strings.Count(s, " spring job of log\n") != 1 || strings.Contains(s, "hunter22") {
		t.Errorf("file %q", s)
	}
}
