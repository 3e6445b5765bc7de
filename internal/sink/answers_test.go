package sink_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/hms"
	"github.com/pacer/pacer/internal/sink/rustore"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// HMS and RuStore have little of their own beside what their answers mean, which is tested through whole sinks.

// said is an answer of a service, and what it means.
type said struct {
	status   int
	body     string
	want     delivery.ResultClass
	scope    delivery.Scope
	code, id string // of the service
}

// saying answers each recipient as the table says.
func saying(answers map[string]said) func(*sinktest.Call, string, int) bool {
	return func(c *sinktest.Call, recipient string, _ int) bool {
		c.JSON(answers[recipient].status, answers[recipient].body)
		return true
	}
}

// expect delivers a job to each recipient of the table. The wait is that after an answer that throttles.
func expect(t *testing.T, r *sink.Router, answers map[string]said, wait time.Duration, job func(recipient string) *delivery.Job) {
	t.Helper()
	waits := map[delivery.ResultClass]time.Duration{delivery.Throttled: wait}
	for recipient, tt := range answers {
		res := r.Deliver(t.Context(), "a", job(recipient))
		var code, id string
		if res.Provider != nil {
			code, id = res.Provider.Code, res.Provider.MessageID
		}
		if res.Class != tt.want || res.Scope != tt.scope || code != tt.code || id != tt.id || res.RetryAfter != waits[res.Class] ||
			strings.Contains(res.Detail, "opensesame") || (res.Detail == "") != (res.Class == delivery.Delivered) {
			t.Errorf("%s: %+v, code %q, id %q", recipient, res, code, id)
		}
	}
}

// TestAnswersOfHMS: what an answer means is in its code.
func TestAnswersOfHMS(t *testing.T) {
	t.Parallel()
	no := func(code, msg string) string { return `{"code":"` + code + `","msg":"` + msg + `","requestId":"r"}` }
	answers := map[string]said{
		"taken":             {200, no("80000000", "Success"), delivery.Delivered, 0, "", "r"},
		"cut off":           {200, `{"code":"80000000","msg":"Su`, delivery.Delivered, 0, "", ""},
		"nothing":           {200, ``, delivery.Temporary, 0, "", ""},
		"another":           {200, `{"ok":true}`, delivery.Temporary, 0, "", ""},
		"gone":              {200, no("80300007", "all"), delivery.Rejected, 0, "80300007", ""},
		"no right":          {200, no("80300007", `{\"failure\":1,\"illegalTokens\":{\"noPushTypeRight\":[\"x\"]}}`), delivery.Misconfigured, delivery.ScopeCampaign, "80300007", ""},
		"partly, and not":   {200, no("80100000", `{\"success\":0,\"failure\":1}`), delivery.Rejected, 0, "80100000", ""},
		"partly, and taken": {200, no("80100000", `{\"success\":1,\"failure\":0}`), delivery.Delivered, 0, "", "r"},
		"payload":           {400, no("80100003", "Illegal payload"), delivery.Permanent, 0, "80100003", ""},
		"content":           {200, no("80100016", "sensitive"), delivery.Permanent, 0, "80100016", ""},
		"size":              {400, no("80300008", "size"), delivery.Permanent, 0, "80300008", ""},
		"of another app":    {200, no("80300002", "no"), delivery.Misconfigured, 0, "80300002", ""},
		"level":             {200, no("80300011", "no"), delivery.Misconfigured, delivery.ScopeCampaign, "80300011", ""},
		"internal":          {200, no("81000001", "no"), delivery.Temporary, 0, "81000001", ""},
		"server of tokens":  {200, no("80600003", "no"), delivery.Temporary, 0, "80600003", ""},
		"new":               {200, no("89999999", "no"), delivery.Temporary, 0, "89999999", ""},
		"400 of a proxy":    {400, `<html>`, delivery.Misconfigured, 0, "", ""},
		"404":               {404, ``, delivery.Misconfigured, 0, "", ""},
		"500":               {500, no("80000000", "Success"), delivery.Temporary, 0, "80000000", ""},
		"502":               {502, `<html>`, delivery.Temporary, 0, "", ""},
		"503":               {503, ``, delivery.Throttled, 0, "", ""},
		"429":               {429, ``, delivery.Throttled, 0, "", ""},
	}
	h := sinktest.StartHMS(t, saying(answers))
	c := hms.Default() // with the secret of the app
	c.URL, c.CAFile, c.Project, c.ClientID, c.ClientSecret, c.TokenURL = h.URL, h.CAFile, h.Project, "100", h.Secret, h.TokenURL()
	r := stage{config: c}.open(t)
	expect(t, r, answers, 10*time.Second, func(recipient string) *delivery.Job {
		return jobOf(recipient, `{"payload":{"a":1},"target":{"token":["`+recipient+`"]}}`)
	})
	for _, payload := range []string{``, `hunter22`, `null`, `{}`, `{"target":{"token":"hunter22"}}`, `{"target":{"token":[]}}`, `{"target":{"token":["a","hunter22"]}}`,
		`{"target":{"token":["a"]},"message":{"token":["hunter22"]}}`, `{"target":{"token":["a"]},"x":"` + strings.Repeat("x", 32<<10) + `"}`} {
		res := r.Deliver(t.Context(), "a", jobOf("", payload))
		if res.Class != delivery.Permanent || strings.Contains(res.Detail, "hunter22") || res.Status != 0 {
			t.Errorf("%.40s: %+v", payload, res)
		}
	}
}

// TestCredentialsOfHMS: what is wrong with them is named, and nothing is delivered to find out.
func TestCredentialsOfHMS(t *testing.T) {
	t.Parallel()
	h := sinktest.StartHMS(t, func(*sinktest.Call, string, int) bool { t.Error("a check has sent something"); return false })
	sinktest.Checks(t, func(change func(*hms.Config)) sink.Sink {
		c := hms.Default()
		c.URL, c.CAFile, c.KeyFile, c.TokenURL = h.URL, h.CAFile, h.KeyFile, h.TokenURL()
		change(c)
		s, err := hms.New(c, host)
		return sinktest.Serve(t, s, err)
	}, map[string]func(*hms.Config){
		"project: HTTP 404":      func(c *hms.Config) { c.Project = "another" },
		"service_account_file: ": func(c *hms.Config) { c.TokenURL = "https://elsewhere.example" }, // whom the token is for
		"token_url: HTTP 400 ": func(c *hms.Config) {
			c.KeyFile, c.Project, c.ClientID, c.ClientSecret = "", h.Project, "100", "opensesame is not the secret"
		},
	})
	good := func() *hms.Config {
		c := hms.Default()
		c.KeyFile = "x"
		return c
	}
	sinktest.Problems(t, good, map[string]func(*hms.Config){
		"service_account_file: required": func(c *hms.Config) { c.KeyFile = "" },
		"client_id: goes not":            func(c *hms.Config) { c.ClientSecret = "opensesame" },
		"client_id: goes together":       func(c *hms.Config) { c.KeyFile, c.ClientSecret = "", "opensesame" },
		"project: required":              func(c *hms.Config) { c.KeyFile, c.ClientID, c.ClientSecret = "", "1", "opensesame" },
		"project: not the id":            func(c *hms.Config) { c.Project = "a/b" },
		"push_type: not a type":          func(c *hms.Config) { c.PushType = "alert" },
		"token_url: must begin":          func(c *hms.Config) { c.TokenURL = "http://a" },
	})
}

// TestAnswersOfRuStore: what an answer means, by its status and body.
func TestAnswersOfRuStore(t *testing.T) {
	t.Parallel()
	answers := map[string]said{
		"taken":          {200, `{}`, delivery.Delivered, 0, "", ""},
		"after a mark":   {200, "\ufeff{}", delivery.Delivered, 0, "", ""}, // of the order of bytes, as some servers write it
		"no body":        {200, ``, delivery.Delivered, 0, "", ""},
		"an error":       {200, `{"error":{"status":"INTERNAL"}}`, delivery.Temporary, 0, "INTERNAL", ""},
		"400":            {400, `{"error":{"code":400,"status":"INVALID_ARGUMENT"}}`, delivery.Permanent, 0, "INVALID_ARGUMENT", ""},
		"400 of a proxy": {400, `<html>`, delivery.Misconfigured, 0, "", ""},
		"401":            {401, `{"code":401,"status":"UNAUTHENTICATED"}`, delivery.Misconfigured, 0, "UNAUTHENTICATED", ""},
		"404":            {404, `{"code":404,"status":"NOT_FOUND"}`, delivery.Rejected, 0, "NOT_FOUND", ""},
		"404, not known": {404, `{"error":{"code":404,"status":"UNREGISTERED"}}`, delivery.Rejected, 0, "UNREGISTERED", ""},
		"404 of a proxy": {404, `<html>`, delivery.Misconfigured, 0, "", ""},
		"410":            {410, ``, delivery.Rejected, 0, "", ""},
		"413":            {413, ``, delivery.Permanent, 0, "", ""},
		"429":            {429, `{"error":{"status":"TOO_MANY_REQUESTS"}}`, delivery.Throttled, 0, "TOO_MANY_REQUESTS", ""},
		"502":            {502, `<html>`, delivery.Temporary, 0, "", ""},
	}
	f := sinktest.StartFCM(t, saying(answers))
	c := rustore.Default()
	c.URL, c.CAFile, c.Project, c.Bearer = f.URL, f.CAFile, f.Project, f.Give()
	expect(t, stage{config: c}.open(t), answers, 0, jobOfFCM)
}

// TestBearerOfRuStore: what is wrong with it is named.
func TestBearerOfRuStore(t *testing.T) {
	t.Parallel()
	f := sinktest.StartFCM(t, nil)
	sinktest.Checks(t, func(change func(*rustore.Config)) sink.Sink {
		c := rustore.Default()
		c.URL, c.CAFile, c.Project = f.URL, f.CAFile, f.Project
		change(c)
		s, err := rustore.New(c, host)
		return sinktest.Serve(t, s, err)
	}, map[string]func(*rustore.Config){"bearer: HTTP 401": func(c *rustore.Config) { c.Bearer = "opensesame" }})
	good := func() *rustore.Config {
		c := rustore.Default()
		c.Project, c.Bearer = "p", "opensesame"
		return c
	}
	sinktest.Problems(t, good, map[string]func(*rustore.Config){
		"bearer: required":  func(c *rustore.Config) { c.Bearer = "" },
		"project: required": func(c *rustore.Config) { c.Project = "" },
	})
}
