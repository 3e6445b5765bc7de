package http

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/sink/httpcall"
)

// FuzzAnswer: for every answer, the result has a class that exists, a wait within bounds, and a short text on one line.
func FuzzAnswer(f *testing.F) {
	f.Add(200, "", "", "")
	f.Add(301, "Location", "https://user:secret@elsewhere.example/path?token=x", "")
	f.Add(302, "Location", "::", "")
	f.Add(429, "Retry-After", "Fri, 31 Dec 1999 23:59:59 GMT", "")
	f.Add(503, "Ratelimit", `"x";r=0;t=5`, "")
	f.Add(999, "X-Ratelimit-Reset", "1800000060", "")
	c := &client{secrets: httpcall.Scrubber([]string{"secret-of-the-sink"})}
	at, _ := url.Parse("https://h.example/deliver")
	now := time.Unix(1_800_000_000, 0)
	f.Fuzz(func(t *testing.T, code int, header, value, _ string) {
		if code < 100 || code > 999 {
			return // net/http accepts no other
		}
		answer := httpcall.Answer{Status: code, Header: http.Header{http.CanonicalHeaderKey(header): {value}}, URL: at}
		r := c.classify(answer, now)
		if r.RetryAfter != 0 && (r.RetryAfter < time.Second || r.RetryAfter > 24*time.Hour) || r.Status != code {
			t.Errorf("%+v", r)
		}
		if len(r.Detail) > 300 || strings.ContainsAny(r.Detail, "\n\r") || strings.Contains(r.Detail, "secret-of-the-sink") {
			t.Errorf("%d bytes: %.2000q", len(r.Detail), r.Detail)
		}
	})
}
