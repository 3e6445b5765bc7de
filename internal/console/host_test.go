package console

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// TestHosts: what only this machine can ask is asked by its own names; names that others lead to it are refused.
func TestHosts(t *testing.T) {
	for _, tt := range []struct {
		listen, host string
		proxy        bool
		code         int
	}{
		{"127.0.0.1:8080", "127.0.0.1:8080", false, 200}, {"127.0.0.1:8080", "127.0.0.1", false, 200}, {"[::1]:8080", "[::1]:8080", false, 200},
		{"[::1]:8080", "[::1]", false, 200}, {"localhost:8080", "localhost:8080", false, 200}, {"127.0.0.1:8080", "LocalHost.:8080", false, 200},
		{"127.0.0.1:8080", "pacer.localhost", false, 200}, {"127.0.0.1:8080", "ops.example.com", false, 200}, {"127.0.0.1:8080", "", false, 200},
		{"127.0.0.1:8080", "evil.example", false, 421}, {"127.0.0.1:8080", "evil.example:8080", false, 421}, {"127.0.0.1:8080", "localhost.evil.example", false, 421},
		{"[::ffff:127.0.0.1]:8080", "evil.example", false, 421}, {"127.0.0.1:8080", "127.0.0.1.evil.example", false, 421},
		{"127.0.0.1:8080", "evil.example", true, 200}, {":8080", "pacer.example", false, 200}, {"10.0.0.1:8080", "pacer.example", false, 200},
	} {
		w := newWorld()
		if tt.proxy {
			w.guard.Proxy.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		}
		s := newServer()
		s.Listen, s.Site = tt.listen, newSite(prometheus.NewRegistry(), w)
		h := s.routes()
		for _, path := range []string{"/api/v1/status", "/campaigns", "/metrics"} {
			r := httptest.NewRequest(http.MethodGet, path, nil)
			r.Host = tt.host
			answer := httptest.NewRecorder()
			if h.ServeHTTP(answer, r); answer.Code != tt.code {
				t.Errorf("%s at %s, addressed to %q (proxy: %v): %d, want %d", path, tt.listen, tt.host, tt.proxy, answer.Code, tt.code)
			}
		}
	}
}

// TestAddressBehindAProxy: it is what the proxy has added, and not what the client has made up, even one within its network.
func TestAddressBehindAProxy(t *testing.T) {
	w := guarded()
	w.guard.Proxy.Networks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	h := serve(w)
	for forwarded, want := range map[string]string{
		"203.0.113.1, 192.0.2.7": "192.0.2.7", "203.0.113.1, 10.1.2.3": "10.1.2.3", "10.1.2.3": "10.1.2.3", "": "10.0.0.1", "203.0.113.1, unknown": "10.0.0.1",
	} {
		w.changes = nil
		r := httptest.NewRequest(http.MethodPost, "/api/v1/campaigns/spring/pause", nil)
		r.RemoteAddr = "10.0.0.1:1"
		r.Header.Set("X-Forwarded-For", forwarded)
		r.Header.Set("Authorization", "Bearer operatoroperator")
		h.ServeHTTP(httptest.NewRecorder(), r)
		if len(w.changes) != 1 || !strings.Contains(w.changes[0], " by the-operator@"+want+":") {
			t.Errorf("%q: asked %q, want %s", forwarded, w.changes, want)
		}
	}
}

// TestReasonsAreLines: what is recorded and logged of why something was done is one line, whichever way it comes.
func TestReasonsAreLines(t *testing.T) {
	w := guarded()
	h := serve(w)
	cookie := login(t, h, "admin")
	for _, reason := range []string{"a\nb", "a\x00b", "a\x1b[31mb", "\u0085", strings.Repeat("ж", 500)} {
		form := url.Values{"id": {"spring"}, "revision": {"7"}, "rate": {"3"}, "typed": {"spring"}, "q": {"spring"}, "expect": {"1"}, "action": {"pause"}, "reason": {"x" + reason + "x"}}
		for _, action := range []string{"pause", "resume", "rate", "edit", "cancel", "bulk"} {
			if answer := submit(h, "/"+action, cookie, form); answer.Code != http.StatusUnprocessableEntity || len(w.changes) > 0 {
				t.Errorf("%s because %q: %d, asked %q", action, reason, answer.Code, w.changes)
			}
		}
		words, _ := json.Marshal("x" + reason + "x") // never fails
		quoted := string(words)
		for path, body := range map[string]string{
			"campaigns/spring/pause": `{"reason":` + quoted + `}`, "campaigns/spring": `{"rate":"3","reason":` + quoted + `}`,
			"bulk-changes": `{"action":"pause","filter":{"q":"spring"},"expect":1,"reason":` + quoted + `}`,
		} {
			method := http.MethodPost
			if path == "campaigns/spring" {
				method = http.MethodPatch
			}
			if answer := ask(h, method, "/api/v1/"+path, "admin", body, "If-Match", "*"); answer.Code != http.StatusUnprocessableEntity || len(w.changes) > 0 {
				t.Errorf("%s because %q: %d %s, asked %q", path, reason, answer.Code, answer.Body, w.changes)
			}
		}
	}
}
