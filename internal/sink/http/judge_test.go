package http

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/rule"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// judging is a sink with rules for an API that says most things in its body.
func judging(c *Config) {
	c.Classes = map[string]string{"404": "rejected", "409": "delivered", "5xx": "temporary", "503": "throttled recipient"}
	c.Rules = map[string]string{
		"throttled campaign": `body.error == "quota"`,
		"throttled":          `body.error == "slow"`,
		"temporary":          `body.error == "later"`,
		"misconfigured":      `body.error == "key"`,
		"rejected":           `body.error == "gone"`,
	}
	c.Take = rule.Take{ProviderCode: "body.error", ProviderMessageID: "body.id", RetryAfter: "body.wait"}
}

func TestJudgedAnswers(t *testing.T) {
	for _, tt := range []struct {
		status       int
		header, body string
		want         delivery.Result // without the detail
		code, id     string
		detail       string
	}{
		{200, "", `{"id":"m-1"}`, delivery.Result{Class: delivery.Delivered}, "", "m-1", ""},
		{200, "", `no JSON`, delivery.Result{Class: delivery.Delivered}, "", "", ""},
		{200, "", strings.Repeat(" ", 64<<10) + `{"error":"gone"}`, delivery.Result{Class: delivery.Delivered}, "", "", ""},
		{409, "", ``, delivery.Result{Class: delivery.Delivered}, "", "", ""},
		{404, "", ``, delivery.Result{Class: delivery.Rejected}, "", "", "HTTP 404 Not Found from HOST"},
		{200, "", `{"error":"gone","id":7}`, delivery.Result{Class: delivery.Rejected}, "gone", "7", "HTTP 200 OK from HOST, rejected by a rule, code gone"},
		{200, "", `{"error":"quota"}`, delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeCampaign}, "quota", "", "HTTP 200 OK"},
		{400, "9", `{"error":"slow"}`, delivery.Result{Class: delivery.Throttled, RetryAfter: 9 * time.Second}, "slow", "", "HTTP 400 Bad Request"},
		{400, "9", `{"error":"slow","wait":1.2}`, delivery.Result{Class: delivery.Throttled, RetryAfter: 2 * time.Second}, "slow", "", "HTTP 400"},
		{503, "9", ``, delivery.Result{Class: delivery.Throttled, Scope: delivery.ScopeRecipient, RetryAfter: 9 * time.Second}, "", "", "HTTP 503"},
		{502, "", ``, delivery.Result{Class: delivery.Temporary, By: delivery.ByNobody}, "", "", "HTTP 502"},
		{502, "4", `{"error":"later","wait":60}`, delivery.Result{Class: delivery.Temporary, By: delivery.ByDestination, RetryAfter: time.Minute}, "later", "", "HTTP 502"},
		{401, "", ``, delivery.Result{Class: delivery.Misconfigured}, "", "", "HTTP 401"},
		{200, "", `{"error":"key","wait":60}`, delivery.Result{Class: delivery.Misconfigured}, "key", "", "HTTP 200"},
		{400, "", `{"error":"other"}`, delivery.Result{Class: delivery.Permanent}, "other", "", "HTTP 400 Bad Request from HOST, code other"},
	} {
		t.Run(fmt.Sprintf("%d %.30s", tt.status, strings.TrimSpace(tt.body)), func(t *testing.T) {
			url := says(t, tt.status, tt.body, "Retry-After", tt.header)
			r := newSink(t, url, judging).Deliver(t.Context(), job(), nil)
			code, id := "", ""
			if r.Provider != nil {
				code, id = r.Provider.Code, r.Provider.MessageID
			}
			detail := strings.Replace(r.Detail, strings.TrimPrefix(url, "http://"), "HOST", 1)
			if !strings.HasPrefix(detail, tt.detail) || (tt.detail == "") != (detail == "") || code != tt.code || id != tt.id {
				t.Errorf("%+v: %q, %q", r, code, id)
			}
			tt.want.Status = tt.status
			if r.Detail, r.Provider = "", nil; r != tt.want {
				t.Errorf("%+v, want %+v", r, tt.want)
			}
		})
	}
}

// TestBodyThatDoesNotCome: where rules look at the body, an answer without it does not say what became of the job.
func TestBodyThatDoesNotCome(t *testing.T) {
	for _, p := range sinktest.Protocols {
		t.Run(string(p), func(t *testing.T) {
			begun := make(chan bool, 1)
			srv := sinktest.Start(t, p, sinktest.Options{}, func(c *sinktest.Call) {
				c.Begin(200, "Content-Length", "10")
				_ = c.Body([]byte("{"))
				begun <- true
				c.Hang()
			})
			s := newSink(t, srv.URL, judging, func(c *Config) { c.CAFile, c.Timeout = srv.CAFile, 2*time.Second })
			r := s.Deliver(t.Context(), job(), nil)
			if r.Class != delivery.Temporary || r.By != delivery.ByNobody || r.Status != 200 || !strings.Contains(r.Detail, "did not come") {
				t.Fatalf("%+v", r) // such as that of a machine where no answer begins in time
			}
			<-begun
			ctx, cancel := context.WithCancel(t.Context())
			go func() { <-begun; time.AfterFunc(50*time.Millisecond, cancel) }() // when the answer has most likely begun here, too
			s = newSink(t, srv.URL, judging, func(c *Config) { c.CAFile, c.Timeout = srv.CAFile, time.Minute })
			if r := s.Deliver(ctx, job(), nil); r.Class != delivery.Interrupted {
				t.Errorf("cancelled: %+v", r)
			}
		})
	}
}

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
		"half of it":    {400, "half of", "half of"},
	} {
		t.Run(name, func(t *testing.T) {
			done := make(chan struct{})
			url := serve(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
				if name == "half of it" {
					w.(http.Flusher).Flush()
					<-done
				}
			})
			defer close(done)
			for rules, classes := range map[string]map[string]string{"by status": nil, "by rules": {"418": "permanent"}} {
				s := newSink(t, url, func(c *Config) {
					c.Timeout = time.Minute // which is not waited for
					c.Headers, c.Classes = map[string]string{"x-key": "hunter2222", "authorization": "Bearer tok-12345678"}, classes
				})
				begun := time.Now()
				res := s.Deliver(t.Context(), job(), nil)
				if took := time.Since(begun); (res.Class == delivery.Delivered) != (tc.status == 200) || took > 20*time.Second {
					t.Fatalf("%+v after %s", res, took)
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
