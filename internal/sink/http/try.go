package http

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
)

// maxShown bounds what is shown of a body, in bytes.
const maxShown = 4 << 10

// exchange is a request and its answer, as a person is to see them.
type exchange struct {
	request string
	answer  strings.Builder
}

// Try delivers a job as Deliver does, and returns the request and its answer as text: without secrets, and with the beginnings
// of their bodies. Each is "" if there was none.
func (s *Sink) Try(ctx context.Context, job *delivery.Job) (res delivery.Result, request, answer string) {
	var shown exchange
	res = s.attempt(ctx, job, &shown)
	return res, shown.request, shown.answer.String()
}

// show notes a request. What the configuration adds to it is not shown, since it may be a secret.
func (c *client) show(req *http.Request, t *trip) {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", req.Method, req.URL)
	for _, name := range slices.Sorted(maps.Keys(req.Header)) {
		value := strings.Join(req.Header[name], ", ")
		if c.hides(name) {
			value = "***"
		}
		fmt.Fprintf(&b, "%s: %s\n", strings.ToLower(name), value)
	}
	body := t.payload
	fmt.Fprintf(&b, "\n%s", shorten(body))
	t.shown().request = t.hide(c.scrub(b.String()))
}

// hides tells whether the value of a header is that of a setting.
func (c *client) hides(name string) bool {
	switch name {
	case keyAuthorization:
		return true
	case keyUserAgent, keyContentType:
		return false
	}
	return slices.ContainsFunc(c.fixed, func(f field) bool { return f.name == name }) ||
		c.form != nil && slices.ContainsFunc(c.form.headers, func(h formHeader) bool { return h.name == name })
}

// watch has the beginning of the answer's body noted as it is read, and notes its head.
func (c *client) watch(resp *http.Response, t *trip) (end func()) {
	fmt.Fprintf(&t.shown().answer, "HTTP %s\n", strings.TrimSpace(resp.Status))
	for _, name := range slices.Sorted(maps.Keys(resp.Header)) {
		value := t.hide(c.scrub(strings.Join(resp.Header[name], ", ")))
		if name == "Set-Cookie" {
			value = "***"
		}
		fmt.Fprintf(&t.shown().answer, "%s: %s\n", strings.ToLower(name), value)
	}
	var body bytes.Buffer
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, &body), resp.Body}
	return func() { fmt.Fprintf(&t.shown().answer, "\n%s", t.hide(c.scrub(shorten(body.Bytes())))) }
}

// hide removes the access token from a text.
func (t *trip) hide(text string) string {
	if t.token() == nil {
		return text
	}
	return strings.ReplaceAll(text, t.token().Value, "***")
}

func shorten(b []byte) string {
	if len(b) > maxShown {
		return fmt.Sprintf("%s… (%d bytes)", b[:maxShown], len(b))
	}
	return string(b)
}
