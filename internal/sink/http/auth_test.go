package http

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// issuer is a token endpoint and the destination that takes its tokens.
type issuer struct {
	issued, asked atomic.Int32
	answer        atomic.Pointer[func(w http.ResponseWriter)] // of the token endpoint; nil: a token
	form          atomic.Pointer[url.Values]
	user          atomic.Pointer[string]
	revoked       atomic.Int32 // tokens up to this one are refused
	url           string
}

func newIssuer(t *testing.T) *issuer {
	i := &issuer{}
	i.url = serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/token" {
			var n int32
			if _, err := fmt.Sscanf(r.Header.Get("Authorization"), "Bearer secret-token-%d", &n); err != nil || n <= i.revoked.Load() {
				w.Header().Set("Location", r.Header.Get("Authorization"))
				w.WriteHeader(http.StatusUnauthorized)
			}
			return
		}
		i.asked.Add(1)
		body, _ := io.ReadAll(r.Body)
		form, _ := url.ParseQuery(string(body))
		user, password, _ := r.BasicAuth()
		user += " " + password
		i.form.Store(&form)
		i.user.Store(&user)
		if f := i.answer.Load(); f != nil {
			(*f)(w)
			return
		}
		_, _ = fmt.Fprintf(w, `{"access_token":"secret-token-%d","token_type":"bearer","expires_in":"3600"}`, i.issued.Add(1))
	})
	return i
}

// sink is a sink that runs until the test ends.
func (i *issuer) sink(t *testing.T, change ...func(*Config)) *Sink {
	t.Helper()
	s := newSink(t, i.url, append([]func(*Config){func(c *Config) {
		c.OAuth2 = OAuth2{TokenURL: i.url + "/token", ClientID: "me:", ClientSecret: "hunter22 %", Scopes: []string{"a", "b"}, Audience: "x", Auth: "header"}
		c.Timeout = 10 * time.Second
	}}, change...)...)
	return sinktest.Serve(t, s, nil)
}

func TestOAuth2(t *testing.T) {
	i := newIssuer(t)
	s := i.sink(t)
	for range 3 {
		sinktest.Deliver(t, s, job(), delivery.Delivered)
	}
	if i.asked.Load() != 1 || i.form.Load().Encode() != "audience=x&grant_type=client_credentials&scope=a+b" || *i.user.Load() != "me%3A hunter22+%25" {
		t.Errorf("asked %d times: %s by %s", i.asked.Load(), i.form.Load().Encode(), *i.user.Load())
	}
	// A refused token is about the sink, and is fetched anew.
	i.revoked.Store(1)
	if r := s.Deliver(t.Context(), job(), nil); r.Class != delivery.Misconfigured || strings.Contains(r.Detail, "secret-token") {
		t.Errorf("%+v", r)
	}
	sinktest.Eventually(t, "another token", func() bool { return s.Deliver(t.Context(), job(), nil).Class == delivery.Delivered })
	if n := i.asked.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
	if err := s.Check(t.Context()); err != nil {
		t.Error(err)
	}
	sinktest.Deliver(t, i.sink(t, func(c *Config) { c.OAuth2.Auth = "body" }), job(), delivery.Delivered)
	if f := *i.form.Load(); f.Get("client_id") != "me:" || f.Get("client_secret") != "hunter22 %" || *i.user.Load() != " " {
		t.Errorf("with credentials in the body: %v by %s", f, *i.user.Load())
	}
}

// TestTokenEndpointThatFails: with any answer, no job is to blame and no secret is shown.
func TestTokenEndpointThatFails(t *testing.T) {
	answer := func(status int, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { w.WriteHeader(status); _, _ = w.Write([]byte(body)) }
	}
	switching := func(w http.ResponseWriter) {
		if c, _, err := w.(http.Hijacker).Hijack(); err == nil {
			_, _ = io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		}
	}
	for name, tt := range map[string]struct {
		answer func(http.ResponseWriter)
		class  delivery.ResultClass
		want   string
	}{
		"refused":    {answer(401, `{"error":"invalid_client"}`), delivery.Misconfigured, "HTTP 401 Unauthorized from HOST, invalid_client: check oauth2.client_id"},
		"quoting":    {answer(400, `{"error":"hunter22 % is wrong"}`), delivery.Misconfigured, "HTTP 400 Bad Request from HOST: check"},
		"moved":      {answer(302, ""), delivery.Misconfigured, "HTTP 302 Found from HOST: check"},
		"down":       {answer(503, ""), delivery.Unreachable, "HTTP 503 Service Unavailable from HOST"},
		"throttling": {answer(429, ""), delivery.Unreachable, "HTTP 429 Too Many Requests from HOST"},
		"switching":  {switching, delivery.Misconfigured, "HTTP 101 Switching Protocols from HOST: check"},
		"no token":   {answer(200, `{}`), delivery.Misconfigured, "HTTP 200 OK from HOST has no access token"},
		"no JSON":    {answer(200, `hunter22`), delivery.Misconfigured, "HTTP 200 OK from HOST has no access token"},
		"two lines":  {answer(200, `{"access_token":"a\nb"}`), delivery.Misconfigured, "HTTP 200 OK from HOST has no access token"},
		"other type": {answer(200, `{"access_token":"a","token_type":"mac"}`), delivery.Misconfigured, "HTTP 200 OK from HOST is a token of another type"},
		"hanging up": {func(http.ResponseWriter) { panic(http.ErrAbortHandler) }, delivery.Unreachable, "HOST closed the connection before it answered"},
		"absent":     {nil, delivery.Unreachable, "dial tcp 127.0.0.1:1: connect: connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			i := newIssuer(t)
			s := i.sink(t, func(c *Config) {
				if i.answer.Store(&tt.answer); tt.answer == nil {
					c.OAuth2.TokenURL = "http://127.0.0.1:1/token"
				}
			})
			r := s.Deliver(t.Context(), job(), nil)
			detail := strings.Replace(r.Detail, strings.TrimPrefix(i.url, "http://"), "HOST", 1)
			if r.Class != tt.class || !strings.HasPrefix(detail, "oauth2.token_url: "+tt.want) || strings.Contains(r.Detail, "hunter22") {
				t.Errorf("%+v", r)
			}
			if err := s.Check(t.Context()); err == nil || err.Error() != r.Detail {
				t.Errorf("check: %v", err)
			}
			if i.answer.Store(nil); tt.answer != nil {
				sinktest.Eventually(t, "healed", func() bool { return s.Deliver(t.Context(), job(), nil).Class == delivery.Delivered })
			}
		})
	}
}

// TestNoTokenInTime: none that comes later than a delivery has time for, or than pacer waits for the delivery.
func TestNoTokenInTime(t *testing.T) {
	i := newIssuer(t)
	hangs := func(http.ResponseWriter) { time.Sleep(300 * time.Millisecond) }
	i.answer.Store(&hangs)
	s := i.sink(t, func(c *Config) { c.Timeout = 20 * time.Millisecond })
	if r := s.Deliver(t.Context(), job(), nil); r.Class != delivery.Unreachable || r.Detail != "no access token in time" {
		t.Errorf("%+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := s.Deliver(ctx, job(), nil); r.Class != delivery.Interrupted {
		t.Errorf("%+v", r)
	}
}

// TestTokenURLIsReadAgain: an endpoint that is named by a file, and moves.
func TestTokenURLIsReadAgain(t *testing.T) {
	before, after := newIssuer(t), newIssuer(t)
	at := before.url + "/token"
	s := newSink(t, before.url, func(c *Config) {
		c.OAuth2 = OAuth2{TokenURL: at, ClientID: "me", ClientSecret: "hunter22"}
		c.SecretFrom("oauth2.token_url", func() (string, error) { return at, nil })
	})
	at = after.url + "/token"
	s.Reread()
	if _, err := s.Now().AccessToken(t.Context()); err != nil || before.asked.Load() != 0 || after.asked.Load() != 1 {
		t.Errorf("%v, %d and %d were asked", err, before.asked.Load(), after.asked.Load())
	}
}
