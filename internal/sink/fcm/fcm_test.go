package fcm

import (
	"bytes"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a sink for the stand-in, and runs it until the test ends.
func open(t *testing.T, f *sinktest.FCM, change func(*Config)) *httpcall.Sink[parts] {
	t.Helper()
	cfg := Default()
	cfg.URL, cfg.CAFile, cfg.KeyFile = f.URL, f.CAFile, f.KeyFile
	if change != nil {
		change(cfg)
	}
	s, err := New(cfg, base.Host{Version: "1", Logger: slog.New(slog.DiscardHandler)})
	return sinktest.Serve(t, s, err)
}

func job(payload string) *delivery.Job {
	return &delivery.Job{ID: "1", Campaign: "c", Payload: []byte(payload)}
}

// TestMessages: a message comes as the payload says it, bare or wrapped.
func TestMessages(t *testing.T) {
	t.Parallel()
	f := sinktest.StartFCM(t, nil)
	s := open(t, f, nil)
	for _, payload := range []string{`{"token":"t","notification":{"title":"ü"}}`, `{"message" : {"topic":"news","data":{"n":"1"}}}`, `{"condition":"'a' in topics"}`} {
		res := s.Deliver(t.Context(), job(payload))
		if res.Class != delivery.Delivered || !strings.HasPrefix(res.Provider.MessageID, "projects/demo/messages/") {
			t.Errorf("%s: %+v", payload, res)
		}
	}
	checking := open(t, f, func(c *Config) { c.ValidateOnly = true })
	sinktest.Deliver(t, checking, job(`{"token":"v"}`), delivery.Delivered)
	want := `{"message":{"token":"t","notification":{"title":"ü"}}};{"message":{"topic":"news","data":{"n":"1"}}};` +
		`{"message":{"condition":"'a' in topics"}};{"validate_only":true,"message":{"token":"v"}}`
	if got := string(bytes.Join(f.Bodies(), []byte(";"))); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

// TestAddressIsReadAgain: the service's address is in a file, which changes to what is none, and to another.
func TestAddressIsReadAgain(t *testing.T) {
	t.Parallel()
	f := sinktest.StartFCM(t, nil)
	at := "https://127.0.0.1:1"
	c := Default()
	c.URL, c.CAFile, c.Bearer, c.Project = at, f.CAFile, "x", "demo"
	c.SecretFrom("url", func() (string, error) { return at, nil })
	s, err := New(c, base.Host{Version: "1", Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	for _, step := range []struct {
		address string
		want    delivery.ResultClass
	}{{at, delivery.Unreachable}, {"nowhere", delivery.Unreachable}, {f.URL, delivery.Misconfigured}} { // which does not accept x
		at = step.address
		s.Reread()
		if res := s.Deliver(t.Context(), job(`{"token":"t"}`)); res.Class != step.want {
			t.Errorf("%s: %+v", at, res)
		}
	}
}

// TestNotAMessage: what cannot be a message is refused before it is sent, and nothing of it is told.
func TestNotAMessage(t *testing.T) {
	for _, payload := range []string{
		"", "hunter22", "[]", "null", `{"message":null}`, `{"message":"hunter22"}`, `{"message":{"token":"a"},"x":1}`,
		`{"token":"` + strings.Repeat("x", maxMessage) + `"}`,
	} {
		if b, err := request([]byte(payload), false); err == nil || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%.40s: %s, %v", payload, b, err)
		}
	}
}

func TestClassify(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	own := func(code string) string {
		return `{"error":{"status":"S","details":[{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"` + code + `"}]}}`
	}
	const fields = `{"error":{"status":"INVALID_ARGUMENT","details":[{"@type":"type.googleapis.com/google.rpc.BadRequest","fieldViolations":[{"field":"message.x"}]}]}}`
	quota := func(subject string) string {
		return `{"error":{"status":"RESOURCE_EXHAUSTED","details":[{"@type":"type.googleapis.com/google.rpc.QuotaFailure","violations":[{"subject":"` + subject + `"}]}]}}`
	}
	for _, tt := range []struct {
		status int
		after  string
		body   string
		want   delivery.ResultClass
		scope  delivery.Scope
		wait   time.Duration
		code   string
	}{
		{200, "", `{"name":"projects/p/messages/1"}`, delivery.Delivered, 0, 0, ""},
		{200, "", ``, delivery.Delivered, 0, 0, ""},
		{200, "", `<html>`, delivery.Temporary, 0, 0, ""},
		{200, "", own("INTERNAL"), delivery.Temporary, 0, 0, "INTERNAL"},
		{404, "", own("UNREGISTERED"), delivery.Rejected, 0, 0, "UNREGISTERED"},
		{404, "", `{"error":{"status":"NOT_FOUND"}}`, delivery.Permanent, 0, 0, "NOT_FOUND"},
		{404, "", `<html>`, delivery.Misconfigured, 0, 0, ""},
		{400, "", own("INVALID_ARGUMENT"), delivery.Permanent, 0, 0, "INVALID_ARGUMENT"},
		{400, "", fields, delivery.Permanent, 0, 0, "INVALID_ARGUMENT"},
		{400, "", `{"error":{"status":"INVALID_ARGUMENT"}}`, delivery.Permanent, 0, 0, "INVALID_ARGUMENT"},
		{400, "", `<html>`, delivery.Misconfigured, 0, 0, ""},
		{403, "", own("SENDER_ID_MISMATCH"), delivery.Permanent, 0, 0, "SENDER_ID_MISMATCH"},
		{403, "", `{"error":{"status":"PERMISSION_DENIED"}}`, delivery.Misconfigured, 0, 0, "PERMISSION_DENIED"},
		{401, "", own("THIRD_PARTY_AUTH_ERROR"), delivery.Permanent, 0, 0, "THIRD_PARTY_AUTH_ERROR"},
		{401, "", `{"error":{"status":"UNAUTHENTICATED"}}`, delivery.Misconfigured, 0, 0, "UNAUTHENTICATED"},
		{429, "", own("QUOTA_EXCEEDED"), delivery.Throttled, 0, time.Minute, "QUOTA_EXCEEDED"},
		{429, "30", own("QUOTA_EXCEEDED"), delivery.Throttled, 0, 30 * time.Second, "QUOTA_EXCEEDED"},
		{429, "", quota("device:x"), delivery.Throttled, delivery.ScopeRecipient, time.Minute, "RESOURCE_EXHAUSTED"},
		{429, "", quota("project:x"), delivery.Throttled, 0, time.Minute, "RESOURCE_EXHAUSTED"},
		{429, "", ``, delivery.Throttled, 0, time.Minute, ""},
		{500, "", own("INTERNAL"), delivery.Temporary, 0, 0, "INTERNAL"},
		{503, "", own("UNAVAILABLE"), delivery.Temporary, 0, 0, "UNAVAILABLE"},
		{503, "20", own("UNAVAILABLE"), delivery.Throttled, 0, 20 * time.Second, "UNAVAILABLE"},
		{502, "", `<html>`, delivery.Temporary, 0, 0, ""},
		{302, "", ``, delivery.Misconfigured, 0, 0, ""},
		{413, "", ``, delivery.Misconfigured, 0, 0, ""},
	} {
		h := http.Header{}
		if tt.after != "" {
			h.Set("Retry-After", tt.after)
		}
		res := classify(httpcall.Answer{Status: tt.status, Header: h, Body: []byte(tt.body), Whole: true}, &codes, now)
		code := ""
		if res.Provider != nil {
			code = res.Provider.Code
		}
		if res.Class != tt.want || res.Scope != tt.scope || res.RetryAfter != tt.wait || code != tt.code || res.Status != tt.status {
			t.Errorf("%d %s: %+v, code %q", tt.status, tt.body, res, code)
		}
	}
}

// TestRefusedToken: however many messages a token is refused for, one other is fetched, and they say nothing of the jobs.
func TestRefusedToken(t *testing.T) {
	t.Parallel()
	f := sinktest.StartFCM(t, nil)
	s := open(t, f, nil)
	deliver := func() delivery.Result { return s.Deliver(t.Context(), job(`{"token":"t"}`)) }
	for round := range 3 {
		before := f.Tokens()
		if round > 0 {
			f.Revoke()
		}
		var calls sync.WaitGroup
		for range 60 {
			calls.Go(func() {
				res := deliver()
				if res.Class != delivery.Delivered && (round == 0 || res.Class != delivery.Misconfigured || strings.Contains(res.Detail, "ya29")) {
					t.Errorf("round %d: %+v", round, res)
				}
			})
		}
		calls.Wait()
		sinktest.Eventually(t, "healed", func() bool { return deliver().Class == delivery.Delivered })
		if n := f.Tokens() - before; n > 1 {
			t.Errorf("round %d: %d tokens", round, n)
		}
	}
}

// TestTokenServer: what goes wrong there is about the key or the network.
func TestTokenServer(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		treat func(c *sinktest.Call)
		want  delivery.ResultClass
	}{
		"refuses the key": {func(c *sinktest.Call) { c.JSON(400, `{"error":"invalid_grant"}`) }, delivery.Misconfigured},
		"fails":           {func(c *sinktest.Call) { c.Answer(500) }, delivery.Unreachable},
		"says nothing":    {func(c *sinktest.Call) { c.JSON(200, `{}`) }, delivery.Misconfigured},
		"resets":          {(*sinktest.Call).Reset, delivery.Unreachable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := sinktest.StartFCM(t, nil)
			f.Token = func(n int, c *sinktest.Call) bool {
				if n == 1 {
					tt.treat(c)
				}
				return n == 1
			}
			s := open(t, f, nil)
			res := s.Deliver(t.Context(), job(`{"token":"t"}`))
			if res.Class != tt.want || res.Detail == "" || f.Received("t") != 0 {
				t.Errorf("%+v", res)
			}
			sinktest.Eventually(t, "healed", func() bool { return s.Deliver(t.Context(), job(`{"token":"t"}`)).Class == delivery.Delivered })
		})
	}
}

// TestBearer: a token that does not change.
func TestBearer(t *testing.T) {
	t.Parallel()
	f := sinktest.StartFCM(t, nil)
	bearer := func(c *Config) { c.KeyFile, c.Bearer, c.Project = "", "ya29.token-1", "demo" }
	s := open(t, f, bearer)
	if res := s.Deliver(t.Context(), job(`{"token":"t"}`)); res.Class != delivery.Misconfigured || strings.Contains(res.Detail, "ya29") {
		t.Errorf("%+v", res)
	}
	open(t, f, nil).Deliver(t.Context(), job(`{"token":"t"}`)) // has the stand-in give a token out
	sinktest.Deliver(t, s, job(`{"token":"t"}`), delivery.Delivered)
}

// TestCheck has the service validate a message, and names the setting.
func TestCheck(t *testing.T) {
	t.Parallel()
	f, other := sinktest.StartFCM(t, nil), sinktest.StartFCM(t, nil)
	sinktest.Checks(t, func(change func(*Config)) *httpcall.Sink[parts] { return open(t, f, change) }, map[string]func(*Config){
		"":                       func(*Config) {},
		"project: HTTP 404":      func(c *Config) { c.Project = "another" },
		"service_account_file: ": func(c *Config) { c.KeyFile = other.KeyFile },
	})
	for _, b := range f.Bodies() {
		if !bytes.Contains(b, []byte(`"validate_only":true`)) {
			t.Errorf("a check has sent %s", b)
		}
	}
}

func TestProblems(t *testing.T) {
	good := func() *Config {
		c := Default()
		c.KeyFile = "x"
		return c
	}
	sinktest.Problems(t, good, map[string]func(*Config){
		"url: must begin":                func(c *Config) { c.URL = "ftp://x" },
		"service_account_file: required": func(c *Config) { c.KeyFile = "" },
		"bearer: goes not":               func(c *Config) { c.Bearer = "x" },
		"project: required with":         func(c *Config) { c.KeyFile, c.Bearer = "", "opensesame" },
		"project: not the id":            func(c *Config) { c.Project = "a/b" },
	})
}

// TestKeyFiles: the key file is named, and nothing of its content.
func TestKeyFiles(t *testing.T) {
	dir := t.TempDir()
	good, err := os.ReadFile(sinktest.StartFCM(t, nil).KeyFile)
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]string{
		strings.Replace(string(good), "https://", "http://", 1): "no https URL",
		"hunter22": "is not the JSON", `{"client_email":"hunter22"}`: "has no client_email",

		`{"client_email":"a","token_uri":"https://a","private_key":"hunter22"}`:                                                           "a private_key that holds no key in PEM",
		`{"client_email":"a","token_uri":"https://a","private_key":"-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n"}`: "holds no RSA key",
	} {
		path := filepath.Join(dir, "key.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		c := Default()
		c.KeyFile = path
		_, err := New(c, base.Host{})
		if err == nil || !strings.HasPrefix(err.Error(), "service_account_file: "+path) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "hunter22") {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
