package console

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"testing"
)

// TestMetricsAtAnAddressOfTheirOwn: there they are for everybody who reaches it, with the probes and nothing else; the console has no metrics
// then, not even for those who may look, and keeps the probes.
func TestMetricsAtAnAddressOfTheirOwn(t *testing.T) {
	w := guarded()
	w.guard.Proxy.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	s := newServer(w)
	s.MetricsListen, s.Site.base = "127.0.0.1:9464", "/pacer"
	own, metrics := s.routes(), s.metricsRoutes()
	withoutPages := newServer(newWorld())
	withoutPages.MetricsListen, withoutPages.Site = s.MetricsListen, nil
	for _, tt := range []struct {
		at                 http.Handler
		method, path, role string
		code               int
	}{
		{own, "GET", "/metrics", "", 404}, {own, "GET", "/metrics", "admin", 404}, {own, "GET", "/pacer/metrics", "admin", 404},
		{own, "GET", "/healthz", "", 200}, {own, "GET", "/readyz", "", 200}, {own, "GET", "/campaigns", "viewer", 200},
		{withoutPages.routes(), "GET", "/metrics", "", 404}, {withoutPages.routes(), "GET", "/readyz", "", 200},
		{metrics, "GET", "/metrics", "", 200}, {metrics, "GET", "/healthz", "", 200}, {metrics, "HEAD", "/readyz", "", 200},
		{metrics, "POST", "/metrics", "", 405}, {metrics, "GET", "/", "admin", 404}, {metrics, "GET", "/campaigns", "admin", 404},
		{metrics, "GET", "/api/v1/campaigns", "admin", 404}, {metrics, "GET", "/pacer/metrics", "", 404},
	} {
		ask(tt.at, tt.method, tt.path, tt.role, "").want(t, tt.code)
	}
	// The proxy that lets people in is before the console and not here: the name of a host says the same as ever.
	ask(metrics, "GET", "/metrics", "", "", toHost, "evil.example").want(t, 421)
}

// lines is a log whose lines can be awaited.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	l <- string(b)
	return len(b), nil
}

// TestBothAddressesAreServed until the end; without an address of the console, the metrics are there all the same.
func TestBothAddressesAreServed(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, at := range []string{"127.0.0.1:0", ""} {
		said, want := make(lines, 10), map[string]int{"metrics are served": 200}
		s := newServer(newWorld())
		s.Listen, s.MetricsListen, s.Logger = at, "127.0.0.1:0", slog.New(slog.NewTextHandler(said, nil))
		if at != "" {
			want["console listens"] = 404
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		var bound []string
		for range len(want) {
			found := regexp.MustCompile(`msg="(.*)" address=(\S+)`).FindStringSubmatch(<-said)
			if found == nil {
				t.Fatal("said something else")
			}
			answer, err := client.Get("http://" + found[2] + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != want[found[1]] {
				t.Errorf("%s: %d, want %d", found[1], answer.StatusCode, want[found[1]])
			}
			bound = append(bound, found[2])
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, address := range bound {
			l, err := net.Listen("tcp", address)
			if err != nil {
				t.Fatalf("still listening: %v", err)
			}
			_ = l.Close()
		}
	}
}

// TestOneTakenAddressIsEnoughToFail, and the other one is given up.
func TestOneTakenAddressIsEnoughToFail(t *testing.T) {
	free, address := listen(t)
	_ = free.Close()
	s := newServer(newWorld())
	s.Listen = address
	_, s.MetricsListen = listen(t)
	if err := s.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "http.metrics_listen: ") || !strings.Contains(err.Error(), s.MetricsListen) {
		t.Errorf("error %v", err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("the other address is kept: %v", err)
	}
	_ = l.Close()
}
