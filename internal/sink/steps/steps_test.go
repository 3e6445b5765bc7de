package steps

import (
	"errors"
	"io"
	"log/slog"
	nethttp "net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// three is a request of three steps, the second of them a poll.
func three(g *sinktest.Registry) *Config {
	c := Default()
	c.CAFile, c.Timeout = g.CAFile, 10*time.Second
	c.Steps = []Step{
		{
			ID: "create", URL: g.URL + "/new?key={{ .ID }}", Body: `{"of":{{ json .Campaign }}}`, Take: map[string]string{"id": "body.order.id", "n": "body.order.n"}, Once: true,
			Lookup: Lookup{URL: g.URL + "/find?key={{ .ID }}", Found: "len(body.items) > 0", Take: map[string]string{"id": "body.items[0].id", "n": "7"}},
		},
		{ID: "ready", URL: g.URL + "/state?id={{ .Vars.id }}", Poll: Poll{Every: 5 * time.Second, Max: 12 * time.Second, Until: `body.state in ["done", "failed"]`, Fail: `body.state == "failed"`}},
		{ID: "close", Method: "DELETE", URL: g.URL + "/close?id={{ .Vars.id }}", Headers: map[string]string{"x-number": "{{ .Vars.n }}"}},
	}
	return c
}

func open(t *testing.T, c *Config) *Sink {
	t.Helper()
	s, err := New(c, base.Host{Version: "1", Logger: slog.New(slog.DiscardHandler)})
	return sinktest.Serve(t, s, err)
}

func job() *delivery.Job { return &delivery.Job{ID: "u-42", Campaign: "spring", Payload: []byte("{}")} }

// advance delivers the job and has it go on.
func advance(t *testing.T, s *Sink, j *delivery.Job) delivery.Result {
	t.Helper()
	res := s.Deliver(t.Context(), j, nil)
	if res.Class == delivery.Pending {
		if !res.State.Valid() {
			t.Fatalf("state: %+v", res.State)
		}
		j.State = res.State
	}
	return res
}

// TestThreeSteps: each call of a request, what is taken from one for the next, and the waits in between.
func TestThreeSteps(t *testing.T) {
	g := sinktest.StartRegistry(t, 2, nil)
	s, j := open(t, three(g)), job()
	res := advance(t, s, j)
	if res.Class != delivery.Pending || j.State.Step != "ready" || string(j.State.Vars) != `{"id":"u-42.1","n":7}` || res.Repeatable {
		t.Fatalf("created: %+v, %+v", res, j.State)
	}
	began := j.State.Began
	if d := time.Since(began); d < 0 || d > time.Minute {
		t.Errorf("it began %s ago", d)
	}
	if off(res.RetryAfter, 5*time.Second) {
		t.Errorf("the first poll comes after %s", res.RetryAfter)
	}
	for i, wait := range []time.Duration{5 * time.Second, 10 * time.Second} {
		if res = advance(t, s, j); res.Class != delivery.Pending || j.State.Step != "ready" || int(j.State.Waits) != i+1 || !res.Repeatable || off(res.RetryAfter, wait) {
			t.Fatalf("poll %d: %+v, %+v", i+1, res, j.State)
		}
	}
	if res = advance(t, s, j); res.Class != delivery.Pending || j.State.Step != "close" || res.RetryAfter != 0 || !res.Repeatable || !j.State.Began.Equal(began) || j.State.Waits != 0 {
		t.Fatalf("ready: %+v, %+v", res, j.State)
	}
	if res = advance(t, s, j); res.Class != delivery.Delivered {
		t.Fatalf("closed: %+v", res)
	}
	if g.Orders("u-42") != 1 || g.Calls("find", "u-42") != 1 || g.Calls("state", "u-42") != 3 || g.Calls("close", "u-42") != 1 {
		t.Errorf("seen: %q", g.Seen())
	}
	if seen := strings.Join(g.Seen(), " "); seen != "u-42:create:lookup u-42:create u-42:ready u-42:ready u-42:ready u-42:close" {
		t.Errorf("seen: %s", seen)
	}
}

// off reports whether a wait is not the expected one, but for the jitter.
func off(d, want time.Duration) bool { return d < want*9/10 || d > want*11/10 }

// TestOnce: a step that was made before a crash, or whose answer was lost, is found and not made again.
func TestOnce(t *testing.T) {
	var g *sinktest.Registry
	g = sinktest.StartRegistry(t, 0, func(c *sinktest.Call, what, key string, n int) bool {
		if what == "new" && n == 1 {
			g.Take(key)
			c.Reset()
			return true
		}
		return false
	})
	s, j := open(t, three(g)), job()
	if res := advance(t, s, j); res.Class != delivery.Temporary || res.By != delivery.ByNobody || !strings.HasPrefix(res.Detail, "step create: ") {
		t.Fatalf("lost: %+v", res)
	}
	if res := advance(t, s, j); res.Class != delivery.Pending || string(j.State.Vars) != `{"id":"u-42.1","n":7}` {
		t.Fatalf("found: %+v, %+v", res, j.State)
	}
	if g.Orders("u-42") != 1 || g.Calls("new", "u-42") != 1 {
		t.Errorf("%d orders", g.Orders("u-42"))
	}
}

// TestValuesKeepTheirTypes: a number that an earlier step has taken is a number for the expressions of later ones. So a step that was made is
// found by it, and a poll ends by it.
func TestValuesKeepTheirTypes(t *testing.T) {
	var made atomic.Int32
	srv := httptest.NewServer(nethttp.HandlerFunc(func(w nethttp.ResponseWriter, r *nethttp.Request) {
		if of := r.Header.Get("X-Of"); (of == "begin") != (r.URL.Path == "/begin") {
			t.Errorf("%s: x-of is %s", r.URL.Path, of)
		}
		answer := map[string]string{"/begin": `{"id":42,"parts":3}`, "/find": `{"of":42}`, "/state": `{"done":3}`}[r.URL.Path]
		switch {
		case r.URL.Path == "/make" && made.Add(1) == 1, r.URL.Path == "/find" && made.Load() == 0:
			w.WriteHeader(nethttp.StatusNotFound)
		default:
			_, _ = io.WriteString(w, answer)
		}
	}))
	t.Cleanup(srv.Close)
	c := Default()
	c.Headers = map[string]string{"X-Of": "any"} // in place of which a step may have its own
	c.Steps = []Step{
		{ID: "begin", URL: srv.URL + "/begin", Headers: map[string]string{"x-of": "begin"}, Take: map[string]string{"id": "body.id", "parts": "body.parts"}},
		{ID: "make", URL: srv.URL + "/make", Once: true, Classes: map[string]string{"404": "temporary"}, Lookup: Lookup{URL: srv.URL + "/find", Found: "body.of == vars.id", Take: map[string]string{"again": "vars.id + 1"}}},
		{ID: "state", URL: srv.URL + "/state?id={{ .Vars.again }}", Poll: Poll{Every: time.Second, Until: "body.done >= vars.parts"}},
	}
	s, j := open(t, c), job()
	var got []string
	for range c.Steps {
		got = append(got, advance(t, s, j).Class.String())
	}
	if got = append(got, advance(t, s, j).Class.String()); !slices.Equal(got, []string{"pending", "temporary", "pending", "delivered"}) || made.Load() != 1 {
		t.Errorf("%v, made %d times", got, made.Load())
	}
}

// TestLookupThatDoesNotSay: while it is open whether the step was made, since the lookup fails or found has no value for its answer, it is not
// made.
func TestLookupThatDoesNotSay(t *testing.T) {
	for name, tt := range map[string]struct {
		status int
		answer string
		want   delivery.ResultClass
	}{
		"longer than what is read": {200, `{"items":[{"id":"u-42.1"}],"pad":"` + strings.Repeat("x", 64<<10) + `"}`, delivery.Temporary},
		"a page":                   {200, "<html>we will be back soon</html>", delivery.Temporary},
		"an error":                 {200, `{"error":{"code":"BACKEND_TIMEOUT"}}`, delivery.Temporary},
		"nothing":                  {200, "", delivery.Temporary},
		"cut off":                  {200, `{"items":[{"id":"u-42.1"`, delivery.Temporary},
		"without what is taken":    {200, `{"items":[{}]}`, delivery.Temporary},
		"fails":                    {503, "", delivery.Temporary},
		"refuses":                  {401, "", delivery.Misconfigured},
		"not found":                {404, "", delivery.Pending}, // which says that it was not made
	} {
		t.Run(name, func(t *testing.T) {
			g := sinktest.StartRegistry(t, 0, func(c *sinktest.Call, what, _ string, _ int) bool {
				if what == "find" {
					c.JSON(tt.status, tt.answer)
				}
				return what == "find"
			})
			res := advance(t, open(t, three(g)), job())
			if res.Class != tt.want || tt.status == 200 && res.By != delivery.ByNobody ||
				tt.want != delivery.Pending && !strings.HasPrefix(res.Detail, "step create: lookup: ") {
				t.Errorf("%+v", res)
			}
			if n := g.Calls("new", "u-42"); (n == 1) != (tt.want == delivery.Pending) {
				t.Errorf("made %d times", n)
			}
		})
	}
}

// TestEnds: how requests end before their last step.
func TestEnds(t *testing.T) {
	state := `{"state":"failed"}`
	order := `{"order":{"id":"x","n":1}}`
	g := sinktest.StartRegistry(t, 0, func(c *sinktest.Call, what, _ string, _ int) bool {
		switch what {
		case "state":
			c.JSON(200, state)
		case "new":
			c.JSON(201, order)
		default:
			return false
		}
		return true
	})
	c := three(g)
	s := open(t, c)
	at := func(name string, began time.Duration) *delivery.Job {
		j := job()
		j.State = &delivery.State{Step: name, Vars: []byte(`{"id":"x"}`), Began: time.Now().Add(-began)}
		return j
	}
	ignorant := at("close", 0)
	ignorant.State.Vars = nil
	for _, tt := range []struct {
		job          *delivery.Job
		state, order string // what is answered
		want         delivery.ResultClass
		detail       string
	}{
		{at("ready", time.Second), state, order, delivery.Permanent, "step ready: the answer says that it has failed"},
		{at("ready", 24*time.Hour), state, order, delivery.Permanent, "step ready was not done within 24h0m0s of the first call"},
		{at("gone", 0), state, order, delivery.Misconfigured, "step gone"},
		{at("ready", 24*time.Hour-3*time.Second), `{"state":"working"}`, order, delivery.Pending, ""},
		{job(), state, `{"order":{"n":1}}`, delivery.Permanent, "step create: the answer does not have what take.id says"},
		{job(), state, `{"order":{"id":"` + strings.Repeat("x", delivery.MaxVars) + `","n":1}}`, delivery.Permanent,
			"is 4111 bytes long, and may be 4096: take less"},
		{ignorant, state, order, delivery.Permanent, `map has no entry for key "id"`},
	} {
		state, order = tt.state, tt.order
		calls := g.Calls("state", "x")
		res := advance(t, s, tt.job)
		if res.Class != tt.want || !strings.Contains(res.Detail, tt.detail) ||
			(res.Scope == delivery.ScopeCampaign) != (tt.want == delivery.Misconfigured) {
			t.Errorf("%s: %+v", tt.detail, res)
		}
		late := strings.Contains(tt.detail, "within") // and nothing is called beyond the deadline
		if (res.Reason == delivery.ReasonDeadline) != late || late && g.Calls("state", "x") != calls || res.RetryAfter > 3*time.Second {
			t.Errorf("%s: %+v", tt.detail, res)
		}
	}
}

// TestXML: values are found in answers in XML by XPath, with namespaces.
func TestXML(t *testing.T) {
	g := sinktest.StartRegistry(t, 0, func(c *sinktest.Call, what, _ string, _ int) bool {
		if what == "new" {
			c.Begin(200, "Content-Type", "text/xml")
			_ = c.Body([]byte(`<?xml version="1.0"?><s:Envelope xmlns:s="urn:soap"><s:Body><a:Made xmlns:a="urn:api"><a:Id>u-42.9</a:Id><a:Id>2</a:Id></a:Made></s:Body></s:Envelope>`))
			c.End()
		}
		return what == "new"
	})
	c := three(g)
	c.Namespaces = map[string]string{"x": "urn:api"}
	c.Steps[0].Once, c.Steps[0].Lookup = false, Lookup{}
	c.Steps[0].Take = map[string]string{"id": "xpath: //x:Made/x:Id", "n": "xpath: count(//x:Id)"}
	s, j := open(t, c), job()
	if res := advance(t, s, j); res.Class != delivery.Pending || string(j.State.Vars) != `{"id":"u-42.9","n":2}` {
		t.Fatalf("%+v, %+v", res, j.State)
	}
	c.Steps[0].Take["id"] = "xpath: //Made"
	if res := open(t, c).Deliver(t.Context(), job(), nil); res.Class != delivery.Permanent || !strings.Contains(res.Detail, "take.id") {
		t.Errorf("without a namespace: %+v", res)
	}
	c.Steps[0].Take["id"] = "xpath: starts-with(//x:Id, //x:Id)" // whose second argument may be no list of nodes
	s = open(t, c)
	for range 2 {
		if res := s.Deliver(t.Context(), job(), nil); res.Class != delivery.Permanent || !strings.Contains(res.Detail, "take.id") {
			t.Errorf("a path that has no value: %+v", res)
		}
	}
}

func TestProblems(t *testing.T) {
	g := sinktest.StartRegistry(t, 0, nil)
	sinktest.Problems(t, func() *Config { return three(g) }, map[string]func(*Config){
		"steps: there are 0; use 1 to 20":               func(c *Config) { c.Steps = nil },
		"steps.1.id: required":                          func(c *Config) { c.Steps[1].ID = "" },
		"steps.1.id: is that of another step":           func(c *Config) { c.Steps[1].ID = "create" },
		"steps.0.lookup.url: required for once":         func(c *Config) { c.Steps[0].Lookup.URL = "" },
		"steps.0.lookup: is for a step with once":       func(c *Config) { c.Steps[0].Once = false },
		"steps.1.lookup: is for a step with once: true": func(c *Config) { c.Steps[1].Lookup.Method = "POST" },
		"steps.2.lookup: is for a step with once: true": func(c *Config) { c.Steps[2].Lookup.Headers = map[string]string{"x": "y"} },
		"steps.1.once: a poll is made many times":       func(c *Config) { c.Steps[1].Once, c.Steps[1].Lookup = true, c.Steps[0].Lookup },
		"steps.1.poll.every: required":                  func(c *Config) { c.Steps[1].Poll.Every = 0 },
		"steps.1.poll.max: 1s is less than every":       func(c *Config) { c.Steps[1].Poll.Max = time.Second },
		"steps.1.poll.until: required":                  func(c *Config) { c.Steps[1].Poll.Until = "" },
		"steps.1.poll.until: not an expression":         func(c *Config) { c.Steps[1].Poll.Until = "body." },
		"steps.0.take.id: not an expression":            func(c *Config) { c.Steps[0].Take["id"] = "env()" },
		"steps.0.take.a-b: not a name":                  func(c *Config) { c.Steps[0].Take["a-b"] = "1" },
		"steps.0.take.x: not an XPath expression":       func(c *Config) { c.Steps[0].Take["x"] = "xpath://a[" },
		"steps.2.url: must name one host":               func(c *Config) { c.Steps[2].URL = "{{ .Vars.id }}" },
		"steps.1.url: uses .Vars.order, and no step":    func(c *Config) { c.Steps[1].URL += "{{ .Vars.order }}" },
		"steps.0.lookup.url: uses .Vars.id, and no":     func(c *Config) { c.Steps[0].Lookup.URL += "{{ .Vars.id }}" },
		"steps.2.headers.x: uses .Vars.m, and no":       func(c *Config) { c.Steps[2].Headers["x"] = "{{ .Vars.m | upper }}" },
		"steps.2.url: required":                         func(c *Config) { c.Steps[2].URL = "" },
		"steps.2.method: not available":                 func(c *Config) { c.Steps[2].Method = "TRACE" },
		"steps.0.classes.404: ":                         func(c *Config) { c.Steps[0].Classes = map[string]string{"404": "pending"} },
		"bearer: there is basic as well":                func(c *Config) { c.Bearer, c.Basic.Username, c.Basic.Password = "hunter22", "b", "opensesame" },
		"steps.2.headers.x-number: not a header value":  func(c *Config) { c.Steps[2].Headers["x-number"] = "a\nb" },
	})
}

// TestTry makes all steps, and shows them.
func TestTry(t *testing.T) {
	g := sinktest.StartRegistry(t, 1, nil)
	c := three(g)
	c.Steps[1].Poll.Every, c.Steps[1].Poll.Max = 100*time.Millisecond, 0
	var shown base.Exchange
	res := open(t, c).Deliver(t.Context(), job(), &shown)
	request, answer := shown.Request, shown.Answer
	if res.Class != delivery.Delivered || strings.Count(request, "idempotency-key: u-42:") != 5 || strings.Count(answer, "HTTP ") != 5 {
		t.Errorf("%+v\n%s\n%s", res, request, answer)
	}
}

// TestOneTokenForAllSteps: one access token is fetched, and used by every step.
func TestOneTokenForAllSteps(t *testing.T) {
	tokens := 0
	g := sinktest.StartRegistry(t, 0, func(c *sinktest.Call, what, _ string, _ int) bool {
		switch {
		case what == "token":
			tokens++
			c.JSON(200, `{"access_token":"t0ken","expires_in":3600}`)
			return true
		case c.Header.Get("Authorization") != "Bearer t0ken":
			c.Answer(401)
			return true
		}
		return false
	})
	c := three(g)
	c.OAuth2.TokenURL, c.OAuth2.ClientID, c.OAuth2.ClientSecret = g.URL+"/token", "pacer", "s3cret"
	s, j := open(t, c), job()
	for range 3 {
		if res := advance(t, s, j); res.Class != delivery.Pending && res.Class != delivery.Delivered {
			t.Fatalf("%+v", res)
		}
	}
	if tokens != 1 {
		t.Errorf("%d tokens were fetched", tokens)
	}
}

// TestSecretsOfCalls: each call has those of all calls, and its own, as their files have them now.
func TestSecretsOfCalls(t *testing.T) {
	var seen []string
	g := sinktest.StartRegistry(t, 0, func(c *sinktest.Call, what, _ string, _ int) bool {
		seen = append(seen, what+" "+c.Header.Get("Authorization")+" "+c.Header.Get("X-Number"))
		return false
	})
	c, now := three(g), "1"
	c.Bearer = "not this"
	for key, before := range map[string]string{"bearer": "b", "steps.2.headers.x-number": "own ", "steps.0.lookup.headers.x-number": "asks "} {
		c.SecretFrom(key, func() (string, error) { return before + now, nil })
	}
	c.Steps[0].Lookup.Headers = map[string]string{"x-number": "not this"}
	s, j := open(t, c), job()
	for _, now = range []string{"1", "2", "3"} {
		s.Reread()
		advance(t, s, j)
	}
	want := []string{"find Bearer b1 asks 1", "new Bearer b1 ", "state Bearer b2 ", "close Bearer b3 own 3"}
	if !slices.Equal(seen, want) {
		t.Errorf("%q", seen)
	}
}

// TestAFileOfAStepIsNamed: an error about a file names the setting of the step, and one about a file of all calls names that of the sink.
func TestAFileOfAStepIsNamed(t *testing.T) {
	g := sinktest.StartRegistry(t, 0, nil)
	for _, key := range []string{"steps.1.url", "steps.0.lookup.url", "steps.2.headers.x-number", "steps.2.body", "bearer", "headers.x-all"} {
		for text, fail := range map[string]error{"": errors.New("cannot be read"), "{{ nothing }}\n": nil} {
			c := three(g)
			c.Headers = map[string]string{"x-all": "1"}
			c.Bearer = "b"
			c.SecretFrom(key, func() (string, error) { return text, fail })
			if s, err := New(c, base.Host{Logger: slog.New(slog.DiscardHandler)}); err == nil || !strings.HasPrefix(err.Error(), key+": ") {
				t.Errorf("%s: %v, %v", key, s, err)
			}
		}
	}
}
