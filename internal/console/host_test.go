package console

import (
	"encoding/json"
	"net/netip"
	"net/url"
	"strings"
	"testing"
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
		{"127.0.0.1:8080", "evil.example", false, 421}, {"127.0.0.1:8080", "evil.example:8080", false, 421},
		{"127.0.0.1:8080", "localhost.evil.example", false, 421}, {"[::ffff:127.0.0.1]:8080", "evil.example", false, 421},
		{"127.0.0.1:8080", "127.0.0.1.evil.example", false, 421},
		{"127.0.0.1:8080", "evil.example", true, 200}, {":8080", "pacer.example", false, 200}, {"10.0.0.1:8080", "pacer.example", false, 200},
	} {
		w := newWorld()
		if tt.proxy {
			w.guard.Proxy.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		}
		s := newServer(w)
		s.Listen = tt.listen
		h := s.routes()
		for _, path := range []string{"/api/v1/status", "/campaigns", "/metrics"} {
			ask(h, "GET", path, "", "", toHost, tt.host).want(t, tt.code)
		}
	}
}

// TestReasonsAreLines: what is recorded and logged of why something was done is one line, whichever way it comes.
func TestReasonsAreLines(t *testing.T) {
	w := guarded()
	h := serve(w)
	for _, reason := range []string{"a\nb", "a\x00b", "a\x1b[31mb", "\u0085", strings.Repeat("ж", 500)} {
		form := typed("id=spring&revision=7&rate=3&typed=spring&q=spring&expect=1&action=pause")
		form.Set("reason", "x"+reason+"x")
		for _, action := range []string{"pause", "resume", "rate", "edit", "cancel", "bulk"} {
			press(h, "/"+action, "admin", form).want(t, 422)
		}
		words, _ := json.Marshal("x" + reason + "x") // never fails
		because := `"reason":` + string(words) + `}`
		ask(h, "POST", "/api/v1/campaigns/spring/pause", "admin", `{`+because).want(t, 422)
		ask(h, "PATCH", "/api/v1/campaigns/spring", "admin", `{"rate":"3",`+because, "If-Match", "*").want(t, 422)
		ask(h, "POST", "/api/v1/bulk-changes", "admin", `{"action":"pause","filter":{"q":"spring"},"expect":1,`+because).want(t, 422)
		ask(h, "DELETE", "/api/v1/quotas/provider?reason="+url.QueryEscape(form.Get("reason")), "admin", "", "If-Match", "*").want(t, 422)
	}
	w.did(t)
}
