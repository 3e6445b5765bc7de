package rule

import (
	"net/http"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
)

func set(t *testing.T, opt Options) *Set {
	t.Helper()
	s, err := New(opt)
	if err != nil || s == nil {
		t.Fatalf("%v, %v", s, err)
	}
	return s
}

func TestJudge(t *testing.T) {
	s := set(t, Options{
		Classes: map[string]string{"404": "rejected", "4xx": "temporary", "429": "throttled recipient", "500": "misconfigured campaign"},
		Rules: map[string]string{
			"rejected":           `status == 400 && body.code in [17, 18]`,
			"throttled campaign": `body.code == 17`,
			"permanent":          `headers["x-error"] == "fatal"`,
			"temporary":          `text contains "BUSY" or any(body.errors, .code == "busy")`,
			"delivered":          `body.duplicate`,
		},
	})
	for _, tt := range []struct {
		status int
		header string
		body   string
		want   string
	}{
		{200, "", `{}`, ""},
		{200, "", ``, ""},
		{404, "", ``, "rejected"},
		{405, "", ``, "temporary"},
		{429, "", ``, "throttled recipient"},
		{500, "", ``, "misconfigured campaign"},
		{503, "", ``, ""},
		{400, "", `{"code":18}`, "rejected, by a rule"},
		{400, "", `{"code":17}`, "throttled campaign, by a rule"}, // loses less
		{200, "fatal", `{"code":"17"}`, "permanent, by a rule"},
		{200, "", `BUSY`, "temporary, by a rule"},
		{200, "", `{"errors":[{"code":"a"},{"code":"busy"}]}`, "temporary, by a rule"},
		{404, "", `{"duplicate":true}`, "delivered, by a rule"},
		{404, "", `{"duplicate":1}`, "rejected"}, // neither true nor false
		{404, "", `{"duplicate":true} and more`, "rejected"},
	} {
		v, ok := s.Judge(s.NewAnswer(tt.status, http.Header{"X-Error": {tt.header}}, []byte(tt.body)))
		got := ""
		if ok {
			got = v.Class.String()
			for name, scope := range scopes {
				if v.Scope == scope && scope != delivery.ScopeSink {
					got += " " + name
				}
			}
			if v.ByRule {
				got += ", by a rule"
			}
		}
		if got != tt.want {
			t.Errorf("%d %q %s: %q, want %q", tt.status, tt.header, tt.body, got, tt.want)
		}
	}
}

func TestTakes(t *testing.T) {
	s := set(t, Options{Take: Take{
		ProviderCode: `body?.error?.code ?? headers["x-code"]`, ProviderMessageID: "body.id", RetryAfter: "body.parameters.retry_after",
	}})
	for _, tt := range []struct{ body, code, id, wait string }{
		{`{"id":"m-1"}`, "", "m-1", ""},
		{`{"id":12345678901234567890}`, "", "12345678901234567890", ""},
		{`{"id":9007199254740993}`, "", "9007199254740993", ""},
		{`{"id":1.5,"error":{"code":4017}}`, "4017", "1.5", ""},
		{`{"id":{"a":1},"error":{"code":null},"parameters":{"retry_after":7}}`, "", "", "7"},
		{`nothing`, "", "", ""},
	} {
		a := s.NewAnswer(200, http.Header{}, []byte(tt.body))
		p := s.Provider(a)
		if p == nil {
			p = &delivery.Provider{}
		}
		if p.Code != tt.code || p.MessageID != tt.id || s.RetryAfter(a) != tt.wait {
			t.Errorf("%s: %+v, wait %q", tt.body, p, s.RetryAfter(a))
		}
	}
	if p := s.Provider(s.NewAnswer(200, http.Header{"X-Code": {"E7", "E8"}}, nil)); p == nil || p.Code != "E7" {
		t.Errorf("%+v", p)
	}
}

func TestWhatIsNotAsked(t *testing.T) {
	if s, err := New(Options{}); s != nil || err != nil {
		t.Errorf("%v, %v", s, err)
	}
	s := set(t, Options{Classes: map[string]string{"404": "rejected"}, Rules: map[string]string{"temporary": "status == 418"}})
	if a := s.NewAnswer(200, http.Header{"A": {"b"}}, []byte("{}")); s.NeedsBody() || a.Headers != nil || a.Body != nil || a.Text != "" || s.Provider(a) != nil || s.RetryAfter(a) != "" {
		t.Errorf("%+v", a)
	}
	for _, text := range []string{"body.a", "text", "$env", `headers["a"] == text`} {
		if s := set(t, Options{Take: Take{ProviderCode: text}}); !s.NeedsBody() {
			t.Errorf("%s does not look at the body", text)
		}
	}
}

func TestProblems(t *testing.T) {
	loop := "all(body.a, any(body.b, # == 1))"
	for want, opt := range map[string]Options{
		`classes.40x: not a status; use one such as`:               {Classes: map[string]string{"40x": "rejected"}},
		`classes.6xx: not a status;`:                               {Classes: map[string]string{"6xx": "rejected"}},
		`classes.100: not a status;`:                               {Classes: map[string]string{"100": "rejected"}},
		`classes.500-599: not a status;`:                           {Classes: map[string]string{"500-599": "rejected"}},
		`classes.404: "refused" is not a class; use delivered,`:    {Classes: map[string]string{"404": "refused"}},
		`classes.404: "unreachable" is not a class;`:               {Classes: map[string]string{"404": "unreachable"}},
		`classes.404: "" is not a class;`:                          {Classes: map[string]string{"404": ""}},
		`classes.404: "temporary sink" cannot have this scope`:     {Classes: map[string]string{"404": "temporary sink"}},
		`classes.404: "misconfigured recipient" cannot have this`:  {Classes: map[string]string{"404": "misconfigured recipient"}},
		`classes.404: "throttled shop" has no such scope;`:         {Classes: map[string]string{"404": "throttled shop"}},
		`rules.rejected: not an expression: unexpected token`:      {Rules: map[string]string{"rejected": "status =="}},
		`rules.rejected: not an expression: unknown name env`:      {Rules: map[string]string{"rejected": "env"}},
		`rules.rejected: not an expression: expected bool, but`:    {Rules: map[string]string{"rejected": "status"}},
		`rules.rejected: a loop in a loop is not available`:        {Rules: map[string]string{"rejected": loop}},
		`rules.rejected: a loop may search its element only`:       {Rules: map[string]string{"rejected": `any(body.a, # in body.b)`}},
		`rules.permanent: a loop may search its element only`:      {Rules: map[string]string{"permanent": `any(body.errors, text contains #.code)`}},
		`rules.delivered: a loop may search its element only`:      {Rules: map[string]string{"delivered": `any(split(text, ""), upper(text) contains "~")`}},
		`rules.temporary: a loop may search its element only`:      {Rules: map[string]string{"temporary": `let t = text; any(split(text, ""), # + t == "~")`}},
		`rules.rejected: the expression is longer than 4096 bytes`: {Rules: map[string]string{"rejected": strings.Repeat(" ", maxExpression) + "true"}},
		`rules.pending: "pending" is not a class`:                  {Rules: map[string]string{"pending": "true"}},
		`rules.throttled sink: the same class is there twice`:      {Rules: map[string]string{"throttled sink": "true", "throttled": "true"}},
		`take.provider_code: not an expression: unknown name now`:  {Take: Take{ProviderCode: "now()"}},
	} {
		_, err := New(opt)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestExpressionsEnd: every expression that compiles makes a bounded number of values, for any answer, and none panics.
func TestExpressionsEnd(t *testing.T) {
	for _, text := range []string{`len(1..100000000) > 0`, `all(1..100000000, # > 0)`, `len(map(1..90000, string(#))) > 0`, `text matches "(a*)*b"`} {
		s := set(t, Options{Rules: map[string]string{"rejected": text}})
		if _, ok := s.Judge(s.NewAnswer(200, nil, []byte(strings.Repeat("a", 64<<10)))); ok && !strings.Contains(text, "90000") {
			t.Errorf("%s is true", text)
		}
	}
	s := set(t, Options{
		Rules: map[string]string{"rejected": `body.a.b == 1 || len(body.c) > 2 || body[0].d`, "temporary": `all(body, # > 1)`},
		Take:  Take{ProviderCode: "body.a?.b", ProviderMessageID: "string(body)", RetryAfter: "int(body.n)"},
	})
	values := rapid.SampledFrom([]string{`null`, `1`, `"x"`, `[1,2]`, `{"b":1}`, `{"a":{"b":1}}`, `[{"d":true}]`, `{"n":"x"}`, `{"c":[1,2,3]}`, `{`, ``, `1e999`})
	rapid.Check(t, func(t *rapid.T) {
		a := s.NewAnswer(rapid.IntRange(100, 999).Draw(t, "status"), nil, []byte(values.Draw(t, "body")))
		s.Judge(a)
		s.Provider(a)
		s.RetryAfter(a)
	})
}
