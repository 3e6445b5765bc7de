package http

import (
	"fmt"
	"net/url"
	"path"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// TestNoSecretIsTold: neither in a result nor in what a trial shows of a request and its answer, though the destination repeats what it was
// sent, and has secrets of its own.
func TestNoSecretIsTold(t *testing.T) {
	srv := sinktest.Start(t, sinktest.Plain, sinktest.Options{}, func(c *sinktest.Call) {
		key := c.Header.Get("X-Key")
		way, query, _ := strings.Cut(c.Path, "?")
		if name := path.Base(way); strings.Contains(name, "subscriber") {
			key = name
		}
		c.Begin(302, "X-Auth-Token", "swordfish-1", "Set-Cookie", "sid=swordfish-2", "X-Path", c.Path, "Location", "/"+url.PathEscape(key)+"/"+query)
		_ = c.Body([]byte(`{"id":"m-7","access_token":"swordfish-3\"x", "Password" : "swordfish-4",` +
			`"error":"bad key ` + key + `","auth":"` + c.Header.Get("Authorization") + c.Header.Get("Proxy-Authorization") + `","path":"` + c.Path +
			`","refresh_token":"swordfish-5`))
		c.End()
	})
	dir := t.TempDir()
	put(t, dir, "shop-7__key", "swordfish-of-a-row")
	at := strings.Replace(srv.URL, "://", "://me:swordfish-6@", 1) + "?token=swordfish-7"
	for name, s := range map[string]*Sink{
		"settings": newSink(t, at, judging, func(c *Config) { c.Headers = map[string]string{"X-Key": "swordfish-8"} }),
		"templates": newSink(t, srv.URL+"/{{ .ID }}?token=swordfish-9&id={{ .ID }}", judging, func(c *Config) {
			c.Headers = map[string]string{"x-key": `Key swordfish-10{{ .Header "none" }}`}
		}),
		"a body": newSink(t, srv.URL, judging, func(c *Config) {
			c.Body = `{"user":"me","password":"swordfish-13","api_key": "swordfish-14","to":"{{ .ID }}"}`
		}),
		"a file": newSink(t, "", func(c *Config) {
			c.URL, c.Bearer = srv.URL+"/services/T0-swordfish", "swordfish-11"
			c.SecretFrom("url", func() (string, error) { return c.URL, nil })
		}),
		"an address of a job": newSink(t, `{{ .Header "to" }}`, judging, allowed(t, srv)),
		"a proxy":             newSink(t, "http://127.0.0.1:1/", judging, func(c *Config) { c.Proxy = strings.Replace(srv.URL, "://", "://pacer:swordfish-15@", 1) }),
		"a row": tableSink(t, table{"shop-7": {
			URL: srv.URL + "?token=swordfish-12", Headers: []delivery.DestinationHeader{{Name: "x-key", Value: "file:shop-7__key"}},
		}}, srv, func(c *Config) { c.SecretsDir = dir }),
	} {
		j := jobFor("shop-7")
		j.Headers = toward(srv.URL + "/services/swordfish-of-a-subscriber?token=swordfish-16").Headers
		var shown base.Exchange
		res := s.Deliver(t.Context(), j, &shown)
		request, answer := shown.Request, shown.Answer
		text := fmt.Sprintf("%s %+v", res.Detail, res.Provider)
		if name != "an address of a job" { // which a trial shows
			text += request + answer
		}
		told := strings.Contains(text, "swordfish") || strings.Contains(text, "cGFjZXI6") // which begins the credentials of the proxy
		if res.Class == delivery.Delivered || told || !strings.Contains(res.Detail, "127.0.0.1") ||
			!strings.Contains(request, "POST ") || !strings.Contains(answer, `"id":"m-7","access_token":"***"`) {
			t.Errorf("%s: %+v\n%s", name, res, text)
		}
		if name == "a file" && !strings.Contains(request, "POST "+strings.TrimSuffix(srv.URL, "/deliver")+"***\n") {
			t.Error(request)
		}
	}
}

// TestRedirectNamesTheRemedy: it is not followed.
func TestRedirectNamesTheRemedy(t *testing.T) {
	srv := sinktest.Start(t, sinktest.Plain, sinktest.Options{}, func(c *sinktest.Call) {
		c.Answer(308, "Location", "https://u:hunter22@new.example/x?token=hunter22")
	})
	r := newSink(t, srv.URL).Deliver(t.Context(), job(), nil)
	if len(srv.Seen()) != 1 || r.Class != delivery.Misconfigured ||
		!strings.HasSuffix(r.Detail, "set the sink's url to where it moved: https://new.example/x") {
		t.Errorf("%d calls, %+v", len(srv.Seen()), r)
	}
}
