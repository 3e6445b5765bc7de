package http

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/signature"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

func secretOf(letter string) string {
	return "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat([]byte(letter), 32))
}

// with returns a job with a payload of the type, and with more headers, names and values in turn.
func with(contentType, payload string, headers ...string) *delivery.Job {
	j := job()
	j.ContentType, j.Payload = contentType, []byte(payload)
	for i := 0; i+1 < len(headers); i += 2 {
		j.Headers = append(j.Headers, delivery.Header{Key: headers[i], Value: []byte(headers[i+1])})
	}
	return j
}

// event returns a job whose record has an event in binary mode. Later headers replace earlier ones.
func event(contentType, payload string, headers ...string) *delivery.Job {
	return with(contentType, payload, append([]string{
		"ce_specversion", "1.0", "ce_id", "e-1", "ce_source", "/shop", "ce_type", "order.made", "ce_subject", "Zoë \"42%\"", "ce_traceid", "7", "other", "x",
	}, headers...)...)
}

const typeJSON = "application/json"

func events(mode string) func(*Config) { return func(c *Config) { c.CloudEvents = mode } }

func templates(c *Config) {
	c.URL += `/v1/{{ .Campaign }}/{{ .Header "to?" }}?id={{ .ID }}&to={{ .Header "to?" }}&fixed=a%20b`
	c.Method, c.Body = `{{ if eq .JSON.a "1" }}PUT{{ else }}DELETE{{ end }}`, `{"a":{{ .JSON.a }},"attempt":{{ .Attempt }}}`
	c.Headers = map[string]string{
		"x-tenant": ` {{ .Header "tenant" }} `, "content-type": "application/vnd.x+json", "x-plain": "p", "x-idempotency-key": "{{ .ID }}",
	}
}

// TestRequests: what a destination gets, by the settings and the job.
func TestRequests(t *testing.T) {
	const filled = " /v1/spring/a%2Fb%3Fc?id=u-42&to=a%2Fb%3Fc&fixed=a%20b"
	traced := with(typeJSON, `{"a":1}`, "x-private", "no", "tracestate", "a=1")
	traced.Attempt, traced.TraceParent = 2, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01" // attempts before this one
	whole := map[string]string{"Content-Type": structuredType + "; charset=utf-8", "Ce-Id": ""}
	file := func(c *Config, key, content string) {
		c.SecretFrom(key, func() (string, error) { return content, nil })
	}
	url, last := got(t)
	type request struct {
		change     func(*Config)
		job        *delivery.Job
		line, body string
		header     map[string]string // "" for one that is not sent
	}
	requests := map[string]request{
		"payload and metadata": {
			func(c *Config) {
				c.URL, c.Headers = strings.Replace(url, "http://", "http://me:secret@", 1)+"/deliver?k=v", map[string]string{"x-tenant": "blue"}
			},
			traced, "POST /deliver?k=v", `{"a":1}`, map[string]string{
				"Webhook-Id": "u-42", "Idempotency-Key": "u-42", "Pacer-Campaign": "spring", "Pacer-Attempt": "3", "Content-Type": typeJSON,
				"Traceparent": traced.TraceParent, "Tracestate": "a=1", "User-Agent": "pacer/1.2.3", "X-Tenant": "blue", "Content-Length": "7",
				"X-Private": "", "Accept-Encoding": "", "Authorization": "Basic bWU6c2VjcmV0",
			},
		},
		"no payload": {nil, with("", ""), "POST /", "", map[string]string{"Content-Type": "application/octet-stream", "Traceparent": "", "Content-Length": "0"}},
		"GET":        {func(c *Config) { c.Method, c.URL = "GET", c.URL+"/{{ .ID }}" }, job(), "GET /u-42", "", nil},
		"templates": {templates, with(typeJSON, `{"a":1}`, "tenant", "blue", "to?", "a/b?c"), "PUT" + filled, `{"a":1,"attempt":1}`, map[string]string{
			"X-Tenant": "blue", "Content-Type": "application/vnd.x+json", "X-Plain": "p", "Webhook-Id": "u-42", "X-Idempotency-Key": "u-42",
		}},
		"templates, another job": {
			templates, with(typeJSON, `{"a":22}`, "tenant", "red", "to?", "a/b?c"), "DELETE" + filled, `{"a":22,"attempt":1}`, map[string]string{"X-Tenant": "red"},
		},
		"a secret that looks like a template is none, but for a body": {
			func(c *Config) {
				c.Headers, c.Body = map[string]string{"x-secret": "{{ .ID }}"}, "{{ .ID }}"
				file(c, "headers.x-secret", "{{ .ID }}")
				file(c, "body", "{{ .ID }}!")
			},
			job(), "POST /", "u-42!", map[string]string{"X-Secret": "{{ .ID }}"},
		},
		"basic": {func(c *Config) { c.Basic = Basic{"me", "hunter22"} }, job(), "POST /", `{"a":1}`, map[string]string{"Authorization": "Basic bWU6aHVudGVyMjI="}},
		"a header goes before the user in the address, also a template": {
			func(c *Config) {
				c.URL, c.Headers = strings.Replace(url, "://", "://me:hunter22@", 1), map[string]string{"authorization": "Bearer {{ .ID }}"}
			},
			job(), "POST /", `{"a":1}`, map[string]string{"Authorization": "Bearer u-42"},
		},
		"a bearer in a file": {
			func(c *Config) { c.Bearer = "first"; file(c, "bearer", "second") }, job(), "POST /", `{"a":1}`, map[string]string{"Authorization": "Bearer second"},
		},
		"a binary event": {events("binary"), event(typeJSON, `{"a":1}`), "POST /", `{"a":1}`, map[string]string{
			"Ce-Specversion": "1.0", "Ce-Id": "e-1", "Ce-Source": "/shop", "Ce-Type": "order.made", "Ce-Subject": "Zo%C3%AB%20%2242%25%22", "Ce-Traceid": "7",
			"Content-Type": typeJSON, "Other": "",
		}},
		"a binary event of settings": {
			func(c *Config) {
				c.CloudEvents, c.Headers = "binary", map[string]string{"ce-source": "/default", "ce-extra": "y"}
			},
			with(typeJSON, `{"a":1}`, "ce_type", "order.made"), "POST /", `{"a":1}`, map[string]string{
				"Ce-Specversion": "1.0", "Ce-Id": "u-42", "Ce-Source": "/default", "Ce-Type": "order.made", "Ce-Subject": "", "Ce-Extra": "y",
			},
		},
		"structured already, binary": {events("binary"), with(structuredType+"; charset=utf-8", `{"id":"e"}`), "POST /", `{"id":"e"}`, whole},
		"structured already":         {events("structured"), with(structuredType+"; charset=utf-8", `{"id":"e"}`), "POST /", `{"id":"e"}`, whole},
	}
	for _, e := range []struct{ contentType, payload, want string }{
		{typeJSON, `{"a":1}`, `"data":{"a":1},"datacontenttype":"application/json"`},
		{"application/vnd.x+json; charset=utf-8", `[1]`, `"data":[1],"datacontenttype":"application/vnd.x+json; charset=utf-8"`},
		{"text/plain", "a\nü", `"data":"a\nü","datacontenttype":"text/plain"`},
		{"text/plain", "\xff", `"data_base64":"/w==","datacontenttype":"text/plain"`},
		{"image/png", "png", `"data_base64":"cG5n","datacontenttype":"image/png"`},
		{"", "x", `"data_base64":"eA==","datacontenttype":"application/octet-stream"`},
		{typeJSON, "", `"datacontenttype":"application/json"`},
	} {
		requests[fmt.Sprintf("an event in JSON of %q in %s", e.payload, e.contentType)] = request{
			events("structured"), event(e.contentType, e.payload), "POST /",
			"{" + e.want + `,"id":"e-1","source":"/shop","specversion":"1.0","subject":"Zoë \"42%\"","traceid":"7","type":"order.made"}`,
			map[string]string{"Content-Type": structuredType, "Ce-Id": ""},
		}
	}
	for name, tt := range requests {
		t.Run(name, func(t *testing.T) {
			s := newSink(t, url, tt.change)
			if r := s.Deliver(t.Context(), tt.job, nil); r != (delivery.Result{Class: delivery.Delivered, Status: 200}) {
				t.Fatalf("%+v", r)
			}
			if last.line != tt.line || last.body != tt.body || last.length != int64(len(tt.body)) {
				t.Errorf("%s\n%s of %d bytes", last.line, last.body, last.length)
			}
			for name, want := range tt.header {
				if v := strings.Join(last.header[name], "|"); v != want {
					t.Errorf("header %s: %q, want %q", name, v, want)
				}
			}
		})
	}
}

// TestJobsThatCanNeverBeSent: the result says why, and nothing is sent.
func TestJobsThatCanNeverBeSent(t *testing.T) {
	url, last := got(t)
	header := func(value string) func(*Config) {
		return func(c *Config) { c.Headers = map[string]string{"x-a": value} }
	}
	below := func(path string) func(*Config) { return func(c *Config) { c.URL += path } }
	const noHeader = "content-type cannot be sent as an HTTP header"
	for name, tt := range map[string]struct {
		change func(*Config)
		job    *delivery.Job
		want   string
	}{
		"a body":              {func(c *Config) { c.Body = "{{ .JSON.b }}" }, job(), `body: at <.JSON.b>: map has no entry for key "b"`},
		"a long body":         {func(c *Config) { c.Body = "{{ range 10000 }}0123456789{{ end }}" }, job(), "body: the text is too long"},
		"a method":            {func(c *Config) { c.Method = "{{ .Campaign }}" }, job(), "method: the template makes a method that is not available"},
		"a header":            {header("{{ .JSON.b }}"), job(), "headers.x-a: at <.JSON.b>"},
		"a header of lines":   {header(`{{ print "a\nb" }}`), job(), "headers.X-A: the template makes a value with control"},
		"up":                  {below(`/a/{{ print ".." }}/b`), job(), "url: the template makes a path with a segment .."},
		"up, encoded":         {below(`/a/{{ print "x/../.." }}/b`), job(), "url: the template makes a path with a segment .."},
		"a path":              {below(`/%zz{{ .ID }}`), job(), "url: the template makes a path that is not one of a URL"},
		"two slashes":         {below(`//{{ .ID }}/`), job(), "url: the template makes a path that is not one of a URL"},
		"a query":             {below(`/?a b{{ .ID }}`), job(), "url: the template makes a query that is not one of a URL"},
		"a type of lines":     {nil, with("a\r\nX-Evil: 1", "x"), noHeader},
		"a type with a NUL":   {nil, with("a\x00b", "x"), noHeader},
		"a long type":         {nil, with(strings.Repeat("x", (8<<10)+1), "x"), noHeader},
		"no type of an event": {events("binary"), with(typeJSON, "{}", "ce_source", "/shop"), "cloudevents: the record has no header ce_type"},
		"no source":           {events("structured"), with(typeJSON, "{}", "ce_type", "x", "ce_source", ""), "cloudevents: the record has no header ce_source"},
		"an attribute data":   {events("binary"), event(typeJSON, "{}", "ce_data", "x"), "cloudevents: a header of the record begins with ce_, and is not"},
		"an attribute's name": {events("structured"), event(typeJSON, "{}", "ce_Data-Ref", "x"), "cloudevents: a header of the record begins with ce_, and is not"},
		"an attribute":        {events("binary"), event(typeJSON, "{}", "ce_x", "\xff"), "cloudevents: the header ce_x is not text"},
		"a version":           {events("structured"), event(typeJSON, "{}", "ce_specversion", "0.3"), "cloudevents: the record's ce_specversion is not 1.0"},
		"no JSON":             {events("structured"), event(typeJSON, "{"), "cloudevents: the payload is not JSON, which its"},
	} {
		t.Run(name, func(t *testing.T) {
			if r := newSink(t, url, tt.change).Deliver(t.Context(), tt.job, nil); r.Class != delivery.Permanent || !strings.HasPrefix(r.Detail, tt.want) || last.line != "" {
				t.Errorf("%+v after %q", r, last.line)
			}
		})
	}
}

// TestSignedRequests: what is signed is what was sent, with each secret, at the time of the attempt. A new secret is used as soon as its file
// has been read, unless it is none.
func TestSignedRequests(t *testing.T) {
	url, last := got(t)
	current := secretOf("a")
	s := newSink(t, url, func(c *Config) {
		c.Sign.Secrets = []string{current, secretOf("o")}
		c.SecretFrom("sign.secrets.0", func() (string, error) { return current, nil })
		c.Body = `{"made":"{{ .ID }}"}`
	})
	for _, step := range []struct{ content, secret, id, sent string }{
		{secretOf("a"), secretOf("a"), "u-42", "u-42"},
		{secretOf("b"), secretOf("b"), "pacer.jobs/0/7", signature.ID("pacer.jobs/0/7")},
		{"no secret", secretOf("b"), "u-42", "u-42"},
	} {
		current = step.content
		s.Reread()
		j := job()
		j.ID = step.id
		before := time.Now()
		sinktest.Deliver(t, s, j, delivery.Delivered)
		timestamp := last.header.Get("webhook-timestamp")
		if timestamp != signature.Timestamp(before) && timestamp != signature.Timestamp(time.Now()) {
			t.Errorf("timestamp %s", timestamp)
		}
		signer, err := signature.New([]string{step.secret, secretOf("o")})
		if err != nil {
			t.Fatal(err)
		}
		if want := signer.Sign(step.sent, timestamp, []byte(last.body)); last.header.Get("webhook-signature") != want || strings.Count(want, "v1,") != 2 {
			t.Errorf("signature %s, want %s", last.header.Get("webhook-signature"), want)
		}
		if last.header.Get("webhook-id") != step.sent || last.header.Get("idempotency-key") != step.sent {
			t.Errorf("ids %q %q", last.header.Get("webhook-id"), last.header.Get("idempotency-key"))
		}
	}
}
