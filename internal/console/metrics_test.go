package console

import (
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

// TestAddressesAreServed until the end, which is none of an address that is not set; without that of the console, the metrics are there all the same.
func TestAddressesAreServed(t *testing.T) {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, tt := range []struct {
		console, metrics string
		codes            map[string]int // of the metrics, by what is said
	}{
		{"127.0.0.1:0", "127.0.0.1:0", map[string]int{"console listens": 404, "metrics are served": 200}},
		{"127.0.0.1:0", "", map[string]int{"console listens": 200}}, {"", "127.0.0.1:0", map[string]int{"metrics are served": 200}}, {"", "", nil},
	} {
		said, s := make(lines, 10), newServer(newWorld())
		s.Listen, s.MetricsListen, s.Logger = tt.console, tt.metrics, slog.New(slog.NewTextHandler(said, nil))
		end := begin(t, s.Run)
		var bound []string
		for range tt.codes {
			found := regexp.MustCompile(`msg="(.*)" address=(\S+)`).FindStringSubmatch(<-said)
			if found == nil {
				t.Fatal("said something else")
			}
			answer, err := client.Get("http://" + found[2] + "/metrics")
			if err != nil {
				t.Fatal(err)
			}
			_ = answer.Body.Close()
			if answer.StatusCode != tt.codes[found[1]] {
				t.Errorf("%s: %d, want %d", found[1], answer.StatusCode, tt.codes[found[1]])
			}
			bound = append(bound, found[2])
		}
		if err := end(); err != nil {
			t.Error(err)
		}
		for _, address := range bound {
			isFree(t, address)
		}
	}
}

// isFree checks that no server listens there.
func isFree(t *testing.T, address string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatalf("still listening: %v", err)
	}
	_ = l.Close()
}

// TestOneTakenAddressIsEnoughToFail, clearly, and the other one is given up.
func TestOneTakenAddressIsEnoughToFail(t *testing.T) {
	for _, of := range []string{"http.listen", "http.metrics_listen"} {
		free, other := listen(t)
		_ = free.Close()
		_, taken := listen(t)
		s := newServer(newWorld())
		if s.Listen, s.MetricsListen = other, taken; of == "http.listen" {
			s.Listen, s.MetricsListen = taken, other
		}
		if err := s.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), of+": ") || !strings.Contains(err.Error(), taken) {
			t.Errorf("error %v", err)
		}
		isFree(t, other)
	}
}
