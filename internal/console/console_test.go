package console

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// here is where requests are addressed to.
const here = "http://127.0.0.1:8080"

// newServer is a server with a site of this world, whose sources may differ from it.
func newServer(w *world, differ ...func(*view.Sources)) *Server {
	reg := prometheus.NewRegistry()
	reg.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pacer_test"}, func() float64 { return 42 }))
	fine := func() (bool, string) { return true, "" }
	sources := w.sources()
	for _, change := range differ {
		change(&sources)
	}
	return &Server{
		Listen: "127.0.0.1:0", Ready: fine, Healthy: fine, Gatherer: reg, Logger: slog.New(slog.DiscardHandler),
		Site: NewSite(SiteOptions{
			Sources: sources, BasePath: "/some/path", Guard: auth.NewGuard(w.guard), TrustedOrigins: []string{"https://ops.example.com"},
			Logger: slog.New(w.log), Registerer: reg,
		}),
	}
}

// serveOf returns what this server answers with, and its site.
func serveOf(w *world, differ ...func(*view.Sources)) (http.Handler, *Site) {
	s := newServer(w, differ...)
	return s.routes(), s.Site
}

// serve returns what a server with a site of this world answers with, however busy the machine is.
func serve(w *world) http.Handler {
	h, _ := serveOf(w, func(s *view.Sources) { s.Patience = time.Minute })
	return h
}

// listen binds a free port and returns its address as well.
func listen(t *testing.T) (l net.Listener, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, l.Addr().String()
}

func TestEndpoints(t *testing.T) {
	down := func() (bool, string) { return false, "redis has not answered\nyet" }
	degraded := func() string { return "redis has not\nanswered for 9s" }
	notReady, sick, half, both := newServer(newWorld()), newServer(newWorld()), newServer(newWorld()), newServer(newWorld())
	notReady.Ready, sick.Healthy, half.Degraded, both.Ready, both.Degraded = down, down, degraded, down, degraded
	for _, tt := range []struct {
		name, request string
		server        *Server
		code          int
		says          string
	}{
		{"healthy", "GET /healthz", newServer(newWorld()), 200, "ok\n"},
		{"sick", "GET /healthz", sick, 503, "redis has not answered yet\n"},
		{"sick is not unready", "GET /readyz", sick, 200, "ok\n"},
		{"ready", "GET /readyz", newServer(newWorld()), 200, "ok\n"},
		{"not ready", "GET /readyz", notReady, 503, "redis has not answered yet\n"},
		{"degraded", "GET /readyz", half, 200, "ok\ndegraded: redis has not answered for 9s\n"},
		{"degraded is not sick", "GET /healthz", half, 200, "ok\n"},
		{"not ready and degraded", "GET /readyz", both, 503, "redis has not answered yet\n"},
		{"not ready is not sick", "GET /healthz", notReady, 200, "ok\n"},
		{"head", "HEAD /readyz", notReady, 503, ""},
		{"metrics", "GET /metrics", half, 200, "pacer_test 42"},
		{"unknown", "GET /admin", half, 404, "not found"},
		{"post", "POST /readyz", half, 405, "Not Allowed"},
		{"delete", "DELETE /metrics", half, 405, "Not Allowed"},
		{"post to the index", "POST /", half, 405, "Not Allowed"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			method, path, _ := strings.Cut(tt.request, " ")
			header := ask(tt.server.routes(), method, path, "", "").want(t, tt.code, tt.says).Header()
			for _, name := range []string{"Content-Security-Policy", "X-Content-Type-Options", "X-Frame-Options", "Cache-Control"} {
				if header.Get(name) == "" {
					t.Errorf("no %s", name)
				}
			}
			if tt.code == 405 && header.Get("Allow") == "" {
				t.Error("405 without Allow")
			}
		})
	}
}

func TestReasonIsOneBoundedLine(t *testing.T) {
	for in, want := range map[string]string{
		"":                        "no reason given",
		" a\n b\t":                "a b",
		strings.Repeat("é", 1000): strings.Repeat("é", 100) + "...",
	} {
		if got := line(in); got != want {
			t.Errorf("line(%.10q) = %q", in, got)
		}
	}
}

// begin runs a server until its end, which returns how it has ended.
func begin(t *testing.T, run func(context.Context) error) (end func() error) {
	var err error
	ended := running(t, func(ctx context.Context) { err = run(ctx) })
	return func() error { ended(); return err }
}

// served starts a server for the test, and returns its address.
func served(t *testing.T) (address string) {
	t.Helper()
	l, address := listen(t)
	s := newServer(newWorld())
	end := begin(t, func(ctx context.Context) error { return s.serve(ctx, endpoint{Listener: l, handler: s.routes()}) })
	t.Cleanup(func() { _ = end() })
	return address
}

// TestRunServesAndDrains: a request that is open when the context ends still gets its answer, and Run returns nil.
func TestRunServesAndDrains(t *testing.T) {
	inside, release := make(chan struct{}), make(chan struct{})
	s := newServer(newWorld())
	s.Ready = func() (bool, string) {
		close(inside)
		<-release
		return true, ""
	}
	l, address := listen(t)
	end := begin(t, func(ctx context.Context) error {
		context.AfterFunc(ctx, func() { close(release) })
		return s.serve(ctx, endpoint{Listener: l, handler: s.routes()})
	})
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	open := make(chan string, 1)
	go func() {
		answer, err := client.Get("http://" + address + "/readyz")
		if err != nil {
			open <- err.Error()
			return
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		open <- answer.Status + " " + string(body)
	}()
	<-inside
	if err := end(); err != nil {
		t.Errorf("Run: %v", err)
	}
	if said := <-open; said != "200 OK ok\n" {
		t.Errorf("the open request got %q", said)
	}
	if _, err := net.DialTimeout("tcp", address, time.Second); err == nil {
		t.Error("still listening")
	}
}

// TestHeaderIsBounded: a client cannot make the daemon keep a large header.
func TestHeaderIsBounded(t *testing.T) {
	address := served(t)
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/healthz", nil)
	req.Header.Set("X-Large", strings.Repeat("x", 64<<10))
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	resp, err := tr.RoundTrip(req)
	if err != nil {
		return // the server hung up while the header was still being written
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("status %d", resp.StatusCode)
	}
}

// TestConnectionsAreBounded: connections that ask for nothing keep others waiting, and take no more of the machine.
func TestConnectionsAreBounded(t *testing.T) {
	address := served(t)
	all := make([]net.Conn, maxConnections+1)
	for i := range all {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		all[i] = c
	}
	last := all[maxConnections]
	_, _ = io.WriteString(last, "GET /healthz HTTP/1.0\r\n\r\n")
	_ = last.SetReadDeadline(time.Now().Add(300 * time.Millisecond))
	if n, err := last.Read(make([]byte, 1)); n != 0 {
		t.Fatalf("one connection too many is answered: %v", err)
	}
	_ = all[0].Close()
	_ = last.SetReadDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.ReadAll(last); err != nil {
		t.Errorf("not answered when another was closed: %v", err)
	}
}
