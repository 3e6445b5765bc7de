package http

import (
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pacer/pacer/internal/delivery"
)

// TestTheBeginningOfAFailureIsKept: without secrets, as one line, bounded, of any status but success, and only as long as it takes to come.
func TestTheBeginningOfAFailureIsKept(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	for name, tc := range map[string]struct {
		status int
		body   string
		want   string
	}{
		"why":           {422, "{\"error\":\n  \"no such user\"}\n", `{"error": "no such user"}`},
		"its secrets":   {500, `hunter2222 {"access_token":"x1","id":7} tok-12345678`, `*** {"access_token":"***","id":7} ***`},
		"not text":      {400, "a\xff\xfe b", "a? b"},
		"nothing":       {404, "", ""},
		"a delivery":    {200, "ok", ""},
		"more than all": {503, long, ""},
	} {
		t.Run(name, func(t *testing.T) {
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = w.Write([]byte(tc.body))
			})
			for rules, classes := range map[string]map[string]string{"by status": nil, "by rules": {"418": "permanent"}} {
				s := newSink(t, Config{URL: url}, func(c *Config) {
					c.Headers, c.Classes = map[string]string{"x-key": "hunter2222", "authorization": "Bearer tok-12345678"}, classes
				})
				res := s.Deliver(t.Context(), job())
				if (res.Class == delivery.Delivered) != (tc.status == 200) {
					t.Fatalf("%+v", res)
				}
				got := ""
				if res.Provider != nil {
					got = res.Provider.Answer
				}
				if tc.body == long {
					if len(got) < delivery.MaxAnswer || len(got) > 8<<10 || !utf8.ValidString(got) {
						t.Errorf("%s: %d bytes", rules, len(got))
					}
				} else if got != tc.want {
					t.Errorf("%s: kept %q, want %q", rules, got, tc.want)
				}
			}
		})
	}
}

// TestABodyThatDoesNotComeIsNotWaitedFor.
func TestABodyThatDoesNotComeIsNotWaitedFor(t *testing.T) {
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	url := serve(t, func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte("half of"))
		w.(http.Flusher).Flush()
		select {
		case <-done:
		case <-r.Context().Done():
		}
	})
	begun := time.Now()
	res := newSink(t, Config{URL: url}).Deliver(t.Context(), job())
	if took := time.Since(begun); res.Class != delivery.Permanent || res.Provider == nil || res.Provider.Answer != "half of" || took > 3*time.Second {
		t.Errorf("%+v after %s", res, took)
	}
}
