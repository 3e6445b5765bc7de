package sink_test

import (
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/hms"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

const takenByHMS = `{"code":"80000000","msg":"Success","requestId":"r-1"`

var hmsPlay = play{
	acts:    []act{takes, rejects, refuses, fails, throttles, distrusts, hangs, resets, babbles, trickles, mumbles, echoes},
	shorten: func(c sink.Config, d time.Duration) { c.(*hms.Config).Timeout = d },
	divert:  func(c sink.Config, addr string) { c.(*hms.Config).URL = "https://" + addr },
	start: func(t *testing.T, treat func(string, int) act) stage {
		var h *sinktest.HMS
		h = sinktest.StartHMS(t, func(c *sinktest.Call, recipient string, n int) bool {
			switch how := treat(recipient, n); how {
			case rejects:
				h.Say(c, 200, "80300007", `{"failure":1,"illegalTokens":{"invalidToken":["`+recipient+`"]}}`)
			case refuses:
				h.Say(c, 400, "80100003", "Illegal payload, badge addNum value ranges from 1 to 99")
			case fails:
				h.Say(c, 500, "81000001", "Internal error")
			case throttles:
				c.Answer(503, "Retry-After", "90")
			case distrusts:
				h.Say(c, 200, "80300002", "No permission to send message to these tmIDs")
			default:
				return misbehave(c, how, takenByHMS)
			}
			return true
		})
		c := hms.Default()
		c.URL, c.CAFile, c.KeyFile, c.TokenURL = h.URL, h.CAFile, h.KeyFile, h.TokenURL()
		return stage{
			config: c, received: h.Received, secrets: []string{"eyJ"},
			job: func(recipient string) *delivery.Job {
				return &delivery.Job{
					ID: "job of " + recipient, Campaign: "spring",
					Payload: []byte(`{"payload":{"notification":{"title":"hello"}},"target":{"token":["` + recipient + `"]}}`),
				}
			},
		}
	},
}

// TestAnswersOfHMS: what an answer means is in its code.
func TestAnswersOfHMS(t *testing.T) {
	t.Parallel()
	type said struct {
		status    int
		body      string
		want      delivery.ResultClass
		scope     delivery.Scope
		code, sid string
	}
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
	h := sinktest.StartHMS(t, func(c *sinktest.Call, recipient string, _ int) bool {
		c.JSON(answers[recipient].status, answers[recipient].body)
		return true
	})
	c := hms.Default() // with the secret of the app
	c.URL, c.CAFile, c.Project, c.ClientID, c.ClientSecret, c.TokenURL = h.URL, h.CAFile, h.Project, "100", h.Secret, h.TokenURL()
	r := stage{config: c}.open(t)
	for recipient, tt := range answers {
		res := r.Deliver(t.Context(), "a", &delivery.Job{ID: "1", Campaign: "c", Payload: []byte(`{"payload":{"a":1},"target":{"token":["` + recipient + `"]}}`)})
		var code, id string
		if res.Provider != nil {
			code, id = res.Provider.Code, res.Provider.MessageID
		}
		if res.Class != tt.want || res.Scope != tt.scope || code != tt.code || id != tt.sid || (res.Class == delivery.Throttled) != (res.RetryAfter == 10*time.Second) ||
			strings.Contains(res.Detail, h.Secret) || (res.Detail == "") != (res.Class == delivery.Delivered) {
			t.Errorf("%s: %+v, code %q, id %q", recipient, res, code, id)
		}
	}
	for _, payload := range []string{``, `hunter22`, `null`, `{}`, `{"target":{"token":"hunter22"}}`, `{"target":{"token":[]}}`, `{"target":{"token":["a","hunter22"]}}`,
		`{"target":{"token":["a"]},"message":{"token":["hunter22"]}}`, `{"target":{"token":["a"]},"x":"` + strings.Repeat("x", 32<<10) + `"}`} {
		res := r.Deliver(t.Context(), "a", &delivery.Job{ID: "1", Campaign: "c", Payload: []byte(payload)})
		if res.Class != delivery.Permanent || strings.Contains(res.Detail, "hunter22") || res.Status != 0 {
			t.Errorf("%.40s: %+v", payload, res)
		}
	}
}

// TestCredentialsOfHMS: what is wrong with them is named, and nothing is delivered to find out.
func TestCredentialsOfHMS(t *testing.T) {
	t.Parallel()
	h := sinktest.StartHMS(t, func(*sinktest.Call, string, int) bool { t.Error("a check has sent something"); return false })
	for want, change := range map[string]func(*hms.Config){
		"":                       func(*hms.Config) {},
		"project: HTTP 404":      func(c *hms.Config) { c.Project = "another" },
		"service_account_file: ": func(c *hms.Config) { c.TokenURL = "https://elsewhere.example" }, // whom the token is for
		"url: cannot connect":    func(c *hms.Config) { c.URL = "https://127.0.0.1:1" },
		"token_url: HTTP 400 ": func(c *hms.Config) {
			c.KeyFile, c.Project, c.ClientID, c.ClientSecret = "", h.Project, "100", "not the secret"
		},
	} {
		c := hms.Default()
		c.URL, c.CAFile, c.KeyFile, c.TokenURL = h.URL, h.CAFile, h.KeyFile, h.TokenURL()
		change(c)
		s, err := hms.New(c, host)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Check(t.Context()); want == "" && err != nil || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) ||
			err != nil && strings.Contains(err.Error(), "not the secret") {
			t.Errorf("%v, want %q", err, want)
		}
		_ = s.Close()
	}
	for want, change := range map[string]func(*hms.Config){
		"service_account_file: required": func(c *hms.Config) { c.KeyFile = "" },
		"client_id: goes not":            func(c *hms.Config) { c.ClientSecret = "opensesame" },
		"client_id: goes together":       func(c *hms.Config) { c.KeyFile, c.ClientSecret = "", "opensesame" },
		"project: required":              func(c *hms.Config) { c.KeyFile, c.ClientID, c.ClientSecret = "", "1", "opensesame" },
		"project: not the id":            func(c *hms.Config) { c.Project = "a/b" },
		"push_type: not a type":          func(c *hms.Config) { c.PushType = "alert" },
		"token_url: must begin":          func(c *hms.Config) { c.TokenURL = "http://a" },
	} {
		c := hms.Default()
		c.KeyFile = "x"
		change(c)
		if p := c.Problems(); len(p) != 1 || !strings.HasPrefix(p[0], want) || strings.Contains(c.String()+c.GoString(), "opensesame") {
			t.Errorf("%q, want %q", p, want)
		}
	}
}
