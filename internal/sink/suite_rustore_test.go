package sink_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/rustore"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

var rustorePlay = play{
	acts:    []act{takes, rejects, refuses, refusesLate, fails, failsFor7s, throttles, distrusts, hangs, resets, babbles, trickles, mumbles, echoes},
	shorten: func(c sink.Config, d time.Duration) { c.(*rustore.Config).Timeout = d },
	divert:  func(c sink.Config, addr string) { c.(*rustore.Config).URL = "https://" + addr },
	start: func(t *testing.T, treat func(string, int) act) stage {
		var f *sinktest.FCM
		f = sinktest.StartFCM(t, func(c *sinktest.Call, recipient string, n int) bool {
			switch how := treat(recipient, n); how {
			case rejects:
				f.Fail(c, 404, "NOT_FOUND", "")
			case refuses, refusesLate:
				c.Late = lateness[how]
				f.Fail(c, 400, "INVALID_ARGUMENT", "")
			case fails:
				f.Fail(c, 500, "INTERNAL", "")
			case failsFor7s:
				f.Fail(c, 503, "UNAVAILABLE", "", "Retry-After", "7")
			case throttles:
				f.Fail(c, 429, "TOO_MANY_REQUESTS", "", "Retry-After", "90")
			case distrusts:
				f.Fail(c, 403, "PERMISSION_DENIED", "")
			default:
				return misbehave(c, how, `{"name":"projects/demo/messages/7","a":"`)
			}
			return true
		})
		c := rustore.Default()
		c.URL, c.CAFile, c.Project, c.Bearer = f.URL, f.CAFile, f.Project, f.Give()
		return stage{
			config: c, received: f.Received, secrets: []string{c.Bearer},
			job: func(recipient string) *delivery.Job {
				return &delivery.Job{ID: "job of " + recipient, Campaign: "spring", Payload: []byte(`{"token":"` + recipient + `","data":{"a":"b"}}`)}
			},
		}
	},
}

// TestAnswersOfRuStore: what an answer means, by the status that stands in the name of its recipient and the body behind it.
func TestAnswersOfRuStore(t *testing.T) {
	t.Parallel()
	answers := map[string]string{} // by recipient
	f := sinktest.StartFCM(t, func(c *sinktest.Call, recipient string, _ int) bool {
		status, _ := strconv.Atoi(recipient[:3])
		c.JSON(status, answers[recipient])
		return true
	})
	c := rustore.Default()
	c.URL, c.CAFile, c.Project, c.Bearer = f.URL, f.CAFile, f.Project, f.Give()
	var want = map[string]delivery.Result{}
	for recipient, tt := range map[string]struct {
		body, code string
		class      delivery.ResultClass
	}{
		"200":                {`{}`, "", delivery.Delivered},
		"200 without a body": {``, "", delivery.Delivered},
		"200 and an error":   {`{"error":{"status":"INTERNAL"}}`, "INTERNAL", delivery.Temporary},
		"400":                {`{"error":{"code":400,"status":"INVALID_ARGUMENT"}}`, "INVALID_ARGUMENT", delivery.Permanent},
		"400 of a proxy":     {`<html>`, "", delivery.Misconfigured},
		"401":                {`{"code":401,"status":"UNAUTHENTICATED"}`, "UNAUTHENTICATED", delivery.Misconfigured},
		"404":                {`{"code":404,"status":"NOT_FOUND"}`, "NOT_FOUND", delivery.Rejected},
		"404, not known":     {`{"error":{"code":404,"status":"UNREGISTERED"}}`, "UNREGISTERED", delivery.Rejected},
		"404 of a proxy":     {`<html>`, "", delivery.Misconfigured},
		"410":                {``, "", delivery.Rejected},
		"413":                {``, "", delivery.Permanent},
		"429":                {`{"error":{"status":"TOO_MANY_REQUESTS"}}`, "TOO_MANY_REQUESTS", delivery.Throttled},
		"502":                {`<html>`, "", delivery.Temporary},
	} {
		answers[recipient] = tt.body
		want[recipient] = delivery.Result{Class: tt.class, Provider: &delivery.Provider{Code: tt.code}}
	}
	r := stage{config: c}.open(t)
	for recipient, w := range want {
		res := r.Deliver(t.Context(), "a", &delivery.Job{ID: "1", Campaign: "c", Payload: []byte(`{"token":"` + recipient + `"}`)})
		code := ""
		if res.Provider != nil {
			code = res.Provider.Code
		}
		if res.Class != w.Class || code != w.Provider.Code || res.Scope != delivery.ScopeSink || (res.Detail == "") != (res.Class == delivery.Delivered) {
			t.Errorf("%s: %+v, code %q", recipient, res, code)
		}
	}
}

// TestBearerOfRuStore: a token in a file is read again, and a check sends nothing.
func TestBearerOfRuStore(t *testing.T) {
	t.Parallel()
	f := sinktest.StartFCM(t, nil)
	file := filepath.Join(t.TempDir(), "bearer")
	read := func() (string, error) { b, err := os.ReadFile(file); return string(b), err }
	if err := os.WriteFile(file, []byte("ya29.token-9"), 0o600); err != nil {
		t.Fatal(err)
	}
	c := rustore.Default()
	c.URL, c.CAFile, c.Project, c.Bearer = f.URL, f.CAFile, f.Project, "ya29.token-9"
	c.SecretFrom("bearer", read)
	check := func() error {
		t.Helper()
		s, err := rustore.New(c, host)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = s.Close() }()
		return s.Check(t.Context())
	}
	if err := check(); err == nil || !strings.HasPrefix(err.Error(), "bearer: HTTP 401") || strings.Contains(err.Error(), "ya29") {
		t.Error(err)
	}
	if err := os.WriteFile(file, []byte(f.Give()), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := check(); err != nil {
		t.Error(err)
	}
	for _, b := range f.Bodies() {
		if !strings.Contains(string(b), `"validate_only":true`) {
			t.Errorf("a check has sent %s", b)
		}
	}
	for want, change := range map[string]func(*rustore.Config){
		"bearer: required":  func(c *rustore.Config) { c.Bearer = "" },
		"project: required": func(c *rustore.Config) { c.Project = "" },
	} {
		c := rustore.Default()
		c.Project, c.Bearer = "p", "opensesame"
		change(c)
		if p := c.Problems(); len(p) != 1 || !strings.HasPrefix(p[0], want) || strings.Contains(c.String()+c.GoString(), "opensesame") {
			t.Errorf("%q, want %q", p, want)
		}
	}
}
