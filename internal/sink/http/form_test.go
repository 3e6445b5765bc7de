package http

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// request is what a destination got.
type request struct {
	line, body string
	header     http.Header
	length     int64
}

// got serves 200, and returns the last request.
func got(t testing.TB) (url string, last *request) {
	last = &request{}
	return serve(t, func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*last = request{r.Method + " " + r.RequestURI, string(body), r.Header.Clone(), r.ContentLength}
	}), last
}

func TestRequestFromTemplates(t *testing.T) {
	url, last := got(t)
	s := newSink(t, Config{URL: url + `/v1/{{ .Campaign }}/{{ .Header "to?" }}?id={{ .ID }}&to={{ .Header "to?" }}&fixed=a%20b`}, func(c *Config) {
		c.Method = `{{ if eq .JSON.a "1" }}PUT{{ else }}DELETE{{ end }}`
		c.Body = `{"a":{{ .JSON.a }},"attempt":{{ .Attempt }}}`
		c.Headers = map[string]string{"x-tenant": ` {{ .Header "tenant" }} `, "content-type": "application/vnd.x+json", "x-plain": "p", "x-idempotency-key": "{{ .ID }}"}
	})
	j := job()
	j.Headers = []delivery.Header{{Key: "tenant", Value: []byte("blue")}, {Key: "to?", Value: []byte("a/b?c")}}
	for _, want := range []struct{ payload, line, body string }{
		{`{"a":1}`, "PUT", `{"a":1,"attempt":1}`}, {`{"a":22}`, "DELETE", `{"a":22,"attempt":1}`},
	} {
		j.Payload = []byte(want.payload)
		sinktest.Deliver(t, s, j, delivery.Delivered)
		if line := want.line + " /v1/spring/a%2Fb%3Fc?id=u-42&to=a%2Fb%3Fc&fixed=a%20b"; last.line != line || last.body != want.body || last.length != int64(len(want.body)) {
			t.Errorf("%s\n%s of %d", last.line, last.body, last.length)
		}
		for name, value := range map[string]string{
			"X-Tenant": "blue", "Content-Type": "application/vnd.x+json", "X-Plain": "p", "Webhook-Id": "u-42", "X-Idempotency-Key": "u-42",
		} {
			if v := last.header[name]; len(v) != 1 || v[0] != value {
				t.Errorf("header %s: %q, want %q", name, v, value)
			}
		}
	}
}

// TestJobsThatFitNoTemplate: such a job can never be sent, and nothing of it is.
func TestJobsThatFitNoTemplate(t *testing.T) {
	url, last := got(t)
	for name, tt := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"body":        {func(c *Config) { c.Body = "{{ .JSON.b }}" }, `body: at <.JSON.b>: map has no entry for key "b"`},
		"long body":   {func(c *Config) { c.Body = "{{ range 10000 }}0123456789{{ end }}" }, "body: the text is too long"},
		"method":      {func(c *Config) { c.Method = "{{ .Campaign }}" }, "method: the template makes a method that is not available"},
		"header":      {func(c *Config) { c.Headers = map[string]string{"x-a": "{{ .JSON.b }}"} }, "headers.x-a: at <.JSON.b>"},
		"header line": {func(c *Config) { c.Headers = map[string]string{"x-a": `{{ print "a\nb" }}`} }, "headers.X-A: the template makes a value with control"},
		"up":          {func(c *Config) { c.URL += `/a/{{ print ".." }}/b` }, "url: the template makes a path with a segment .."},
		"up, encoded": {func(c *Config) { c.URL += `/a/{{ print "x/../.." }}/b` }, "url: the template makes a path with a segment .."},
		"path":        {func(c *Config) { c.URL += `/%zz{{ .ID }}` }, "url: the template makes a path that is not one of a URL"},
		"two slashes": {func(c *Config) { c.URL += `//{{ .ID }}/` }, "url: the template makes a path that is not one of a URL"},
		"query":       {func(c *Config) { c.URL += `/?a b{{ .ID }}` }, "url: the template makes a query that is not one of a URL"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, Config{URL: url}, tt.change)
			r := s.Deliver(t.Context(), job())
			if r.Class != delivery.Permanent || !strings.HasPrefix(r.Detail, tt.want) || last.line != "" {
				t.Errorf("%+v after %q", r, last.line)
			}
		})
	}
}

func TestGetHasNoBody(t *testing.T) {
	url, last := got(t)
	s := newSink(t, Config{URL: url + "/{{ .ID }}"}, func(c *Config) { c.Method = "GET" })
	if r := s.Deliver(t.Context(), job()); r.Class != delivery.Delivered || last.line != "GET /u-42" || last.body != "" || last.length != 0 {
		t.Errorf("%+v: %+v", r, last)
	}
}

// TestNothingIsSentTwice: net/http would repeat a GET, or a POST with an Idempotency-Key, on a fresh connection when a kept-alive one breaks
// after the request was written.
func TestNothingIsSentTwice(t *testing.T) {
	for _, p := range sinktest.Protocols {
		for method, payload := range map[string]string{"GET": "", "POST": "x", "PUT": ""} {
			srv := sinktest.Start(t, p, sinktest.Options{}, func(c *sinktest.Call) {
				if c.N == 1 {
					c.Answer(200)
					return
				}
				c.Close()
			})
			s := newSink(t, Config{URL: srv.URL}, func(c *Config) {
				c.Method, c.CAFile, c.Headers = method, srv.CAFile, map[string]string{"X-Idempotency-Key": "for net/http the same"}
			})
			j := job()
			j.Payload = []byte(payload)
			for i, want := range []delivery.ResultClass{delivery.Delivered, delivery.Temporary} {
				if r := s.Deliver(t.Context(), j); r.Class != want {
					t.Errorf("%s: %s %d: %+v", p, method, i+1, r)
				}
			}
			if n := len(srv.Seen()); n != 2 {
				t.Errorf("%s: %s: %d requests arrived", p, method, n)
			}
		}
	}
}

// TestNoTemplateFromAFile: a secret that looks like a template is none; a body in a file is one.
func TestNoTemplateFromAFile(t *testing.T) {
	url, last := got(t)
	s := newSink(t, Config{URL: url}, func(c *Config) {
		c.Headers = map[string]string{"x-secret": "{{ .ID }}"}
		c.Body = "{{ .ID }}"
		for key, value := range map[string]string{"headers.x-secret": "{{ .ID }}", "body": "{{ .ID }}!"} {
			c.SecretFrom(key, func() (string, error) { return value, nil })
		}
	})
	if r := s.Deliver(t.Context(), job()); r.Class != delivery.Delivered || last.header.Get("x-secret") != "{{ .ID }}" || last.body != "u-42!" {
		t.Errorf("%+v: %+v", r, last)
	}
}
