package httpcall

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/guard"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// askEcho sends a request to a receiver that repeats it, and returns all texts of the result, which classify makes of what was repeated.
func askEcho(t *testing.T, o Options, r Request, class delivery.ResultClass) string {
	t.Helper()
	far := sinktest.Start(t, sinktest.Plain, sinktest.Options{}, func(c *sinktest.Call) { c.Echo(400) })
	o.URL, o.MaxInFlight, o.Timeout, o.Resent = strings.TrimSuffix(far.URL, "/deliver"), 1, 10*time.Second, new(atomic.Uint64)
	if o.Proxy != "" {
		o.Proxy = strings.Replace(o.URL, "//", "//"+o.Proxy+"@", 1)
	}
	if r.URL != nil { // as of a job
		u, err := url.Parse(far.URL)
		if err != nil {
			t.Fatal(err)
		}
		port, _ := strconv.Atoi(u.Port())
		if o.Guard, err = guard.New(guard.Config{Ports: []int{port}, Allow: []string{"127.0.0.0/8"}, AllowHTTP: true}); err != nil {
			t.Fatal(err)
		}
		r.URL.Host = u.Host
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	res := c.Ask(t.Context(), r, func(a Answer, _ time.Time) delivery.Result {
		text := string(a.Body)
		return delivery.Result{Class: class, Status: a.Status, Detail: text, Provider: &delivery.Provider{Code: text, MessageID: a.Header.Get("Location")}}
	})
	if res.Provider == nil || res.Provider.Code == "" || (res.Provider.Answer == "") != (class == delivery.Delivered) {
		t.Fatalf("%+v, %+v", res, res.Provider)
	}
	return strings.Join([]string{res.Detail, res.Provider.Code, res.Provider.MessageID, res.Provider.Answer}, "\n")
}

// TestNoSecretIsInAResult: neither in its detail, nor in the code, the id and the answer of the receiver, in the spelling of the request or another:
// the secrets of the client, of a request, of its header Authorization, of a proxy, and of an address that a job has.
func TestNoSecretIsInAResult(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		options Options
		request Request
	}{
		"of the client and of a request": {
			Options{Secrets: []string{"swordfish-1"}},
			Request{Path: "/bot/swordfish-1/swordfish/2", Secrets: Scrubber([]string{"swordfish/2"})},
		},
		"of its header":        {Options{}, Request{Path: "/", Header: http.Header{keyAuthorization: {"vapid t=swordfish-1.a_b, k=swordfish-2"}}}},
		"of basic credentials": {Options{}, Request{Path: "/", Header: http.Header{keyAuthorization: {"Basic swordfish-1=="}}}},
		"of a bearer":          {Options{}, Request{Path: "/", Header: http.Header{keyAuthorization: {"bearer swordfish-1"}}}},
		"of a proxy":           {Options{Proxy: "pacer:swordfish-1"}, Request{Path: "/"}},
		"of an address": {
			Options{},
			Request{URL: &url.URL{Scheme: "http", Path: "/send/d/swordfish-of-the-subscriber", RawQuery: "token=swordfish%2B3"}},
		},
	} {
		for _, class := range []delivery.ResultClass{delivery.Permanent, delivery.Delivered} {
			text := askEcho(t, tt.options, tt.request, class)
			if strings.Contains(text, "swordfish") || strings.Contains(text, "cGFjZXI6") || !strings.Contains(text, "***") {
				t.Errorf("%s, %s: %s", name, class, text)
			}
		}
	}
}
