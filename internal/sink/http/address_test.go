package http

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/guard"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// toward is a job that names where it is sent.
func toward(address string) *delivery.Job { return with(typeJSON, `{"a":1}`, "to", address) }

// allowed lets a guarded sink send to a stand-in.
func allowed(t *testing.T, srv *sinktest.Server) func(*Config) {
	u, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	port, _ := strconv.Atoi(u.Port())
	return func(c *Config) {
		c.CAFile, c.Guard.Ports, c.Guard.Allow, c.Guard.AllowHTTP = srv.CAFile, []int{443, port}, []string{"127.0.0.0/8"}, srv.CAFile == ""
	}
}

// TestAddressOfTheJob: the whole of it, or the host.
func TestAddressOfTheJob(t *testing.T) {
	for _, p := range sinktest.Protocols {
		path := make(chan string, 1)
		srv := sinktest.Start(t, p, sinktest.Options{}, func(c *sinktest.Call) { path <- c.Path; c.Answer(200) })
		u, _ := url.Parse(srv.URL)
		base := u.Scheme + "://" + u.Host
		for _, c := range []struct{ template, header, want, destination string }{
			{`{{ .Header "to" }}`, base + "/a/../b?c=d", "/a/../b?c=d", base},
			{u.Scheme + `://{{ .Header "to" }}:` + u.Port() + `/x/{{ .Header "to" }}?a={{ .ID }}`, "127.0.0.1", "/x/127.0.0.1?a=u-42", base},
			{u.Scheme + `://127.0.0.{{ .Header "to" }}:` + u.Port(), "1", "/", base},
		} {
			s := newSink(t, c.template, allowed(t, srv))
			if r := s.Deliver(t.Context(), toward(c.header), nil); r.Class != delivery.Delivered {
				t.Errorf("%s: %s: %+v", p, c.template, r)
				continue
			}
			if got := <-path; got != c.want {
				t.Errorf("%s: %s: sent to %s", p, c.template, got)
			}
			if got := s.destination(toward(c.header)); got != c.destination {
				t.Errorf("%s: %s: the destination is %s", p, c.template, got)
			}
		}
	}
}

func TestDestination(t *testing.T) {
	for _, c := range []struct{ template, header, want string }{
		{`{{ .Header "to" }}`, "https://Hooks.Example/a", "https://hooks.example:443"},
		{`{{ .Header "to" }}`, "https://hooks.example.:8443/b?c", "https://hooks.example:8443"},
		{`{{ .Header "to" }}`, "http://hooks.example", "http://hooks.example:80"},
		{`{{ .Header "to" }}`, "https://[2A00::1]/", "https://[2a00::1]:443"},
		{`{{ .Header "to" }}`, "hooks.example", ""},
		{`{{ .Header "to" }}`, "%", ""},
		{`https://{{ .Header "to" }}.shops.example/x`, "Blue", "https://blue.shops.example:443"},
		{`https://{{ .Header "to" }}.shops.example/x`, "a/b", ""},
		{`https://shops.example/{{ .Header "to" }}`, "x", ""},
	} {
		if got := newSink(t, c.template).destination(toward(c.header)); got != c.want {
			t.Errorf("%s of %s: %q, want %q", c.template, c.header, got, c.want)
		}
	}
}

// TestDestinationInALongPayload: it is found as long as that is quick, and the job is sent there in any case. A destination outside the
// payload is found with a payload of any size.
func TestDestinationInALongPayload(t *testing.T) {
	srv := sinktest.Start(t, sinktest.Plain, sinktest.Options{}, func(c *sinktest.Call) { c.Answer(200) })
	u, _ := url.Parse(srv.URL)
	base := u.Scheme + "://" + u.Host
	inJSON := newSink(t, `{{ .JSON.to }}`, allowed(t, srv))
	inHeader := newSink(t, `{{ .Header "to" }}`, allowed(t, srv))
	for name, c := range map[string]struct{ before, want string }{
		"short":       {`"x"`, base},
		"long":        {`"` + strings.Repeat("x", 200<<10) + `"`, base},
		"too long":    {`"` + strings.Repeat("x", 256<<10) + `"`, ""},
		"values":      {"[0" + strings.Repeat(",0", 8000) + "]", base},
		"many values": {"[0" + strings.Repeat(",0", 9000) + "]", ""},
		"deep":        {strings.Repeat("[", 9000) + strings.Repeat("]", 9000), ""},
		"members":     {`[{}` + strings.Repeat(",{}", 4500) + "]", ""},
	} {
		j := toward(srv.URL)
		j.Payload = []byte(`{"a":` + c.before + `,"to":"` + srv.URL + `"}`)
		if found, other := inJSON.destination(j), inHeader.destination(j); found != c.want || other != base {
			t.Errorf("%s: the destination in the payload is %q, and in the header %q", name, found, other)
		}
		if r := inJSON.Deliver(t.Context(), j, nil); r.Class != delivery.Delivered {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// among has a guarded sink know these names only, and dial nothing at all.
func among(s *Sink, answers map[string][]string) *sinktest.Names {
	names, c := sinktest.NewNames(answers), s.Now()
	c.Transport.DialContext = c.Options.Guard.Dialer(names.Dialer())
	return names
}

// TestAddressesThatTheGuardRefuses: such a job fails for good, even with other flaws. Nothing is dialled for it, and nothing is looked up if an
// address is written in the URL. The same address in a row is refused alike.
func TestAddressesThatTheGuardRefuses(t *testing.T) {
	const all, subdomain, host = `{{ .Header "to" }}`, `https://{{ .Header "to" }}.example.com/`, `https://{{ .Header "to" }}/`
	const refused, noURL, noHost = "refused by the sink's guard: ", "url: the template makes no URL", "the value is not a part of a host name"
	for _, c := range []struct{ template, header, name, means, want string }{
		{all, "https://127.0.0.1/", "", "", refused + "127.0.0.1 is not a public address; name its network in guard.allow if it is meant"},
		{all, "https://169.254.169.254/latest/meta-data", "", "", refused + "169.254.169.254 is in 169.254.169.254/32, which is denied"},
		{all, "https://[::ffff:a9fe:a9fe]/", "", "", refused}, {all, "https://2130706433/", "", "", refused}, {all, "https://127.0.0.1./", "", "", refused},
		{all, "https://LOOPBACK.test./", "loopback.test", "127.0.0.1", refused + "LOOPBACK.test., which is 127.0.0.1, is not"},
		{all, "https://nat64.test/", "nat64.test", "64:ff9b::a9fe:a9fe", refused}, {all, "https://both.test/", "both.test", "127.0.0.1 10.0.0.1", refused},
		{all, "https://hooks.example:22/", "", "", refused + "port 22 is not in guard.ports"},
		{all, "http://hooks.example/", "", "", refused + "the address must begin with https://"},
		{all, "https://u:hunter22@hooks.example/", "", "", refused + "the address has a user or a password"},
		{all, "https://hooks.example/#x", "", "", noURL}, {all, "https:x", "", "", noURL}, {all, "https://a b/", "", "", noURL},
		{all, "hooks.example/x", "", "", refused + "the address must begin with https://"}, {all, "", "", "", refused},
		{subdomain, "evil.example/?", "", "", noHost}, {subdomain, "u@evil", "", "", noHost}, {subdomain, "", "", "", noHost},
		{host, "10.0.0.1", "", "", refused + "10.0.0.1 is not a public"},
	} {
		row := &delivery.Destination{ID: "shop-7", URL: c.header}
		ways := map[*Sink]*delivery.Job{newSink(t, c.template): toward(c.header)}
		if c.template == all && strings.HasPrefix(c.want, refused) && c.header != "" && !strings.HasPrefix(c.header, "hooks") {
			ways[tableSink(t, table{"shop-7": row}, &sinktest.Server{URL: "https://127.0.0.1:443/"}, func(c *Config) { c.Guard = guard.Default() })] = jobFor("shop-7")
		}
		for s, j := range ways {
			names := among(s, map[string][]string{c.name: {c.means}})
			r := s.Deliver(t.Context(), j, nil)
			if r.Class != delivery.Permanent || !strings.Contains(r.Detail, c.want) || strings.Contains(r.Detail, "hunter22") || len(names.Dialled()) > 0 {
				t.Errorf("%s of %q: %+v, dialled %v", c.template, c.header, r, names.Dialled())
			}
			if (c.name == "") != (names.Asked() == 0) {
				t.Errorf("%s of %q: %d questions about names", c.template, c.header, names.Asked())
			}
		}
	}
	// A name is looked at each time that it is dialled.
	s := newSink(t, all)
	names := among(s, map[string][]string{"rebinding.test": {"8.8.8.8", "127.0.0.1"}})
	for _, want := range []delivery.Result{{Class: delivery.Unreachable, Scope: delivery.ScopeDestination}, {Class: delivery.Permanent}} {
		r := s.Deliver(t.Context(), toward("https://rebinding.test/"), nil)
		if r.Class != want.Class || r.Scope != want.Scope || !slices.Equal(names.Dialled(), []string{"8.8.8.8:443"}) {
			t.Errorf("%+v, dialled %v", r, names.Dialled())
		}
	}
}

// TestProxyOfAGuardedSink: the proxy of the environment would get past the guard; that of the sink guards itself.
func TestProxyOfAGuardedSink(t *testing.T) {
	if s := newSink(t, `{{ .Header "to" }}`); s.Now().Transport.Proxy != nil || s.Now().Trusted.Proxy == nil {
		t.Error("the guarded requests go through the proxy of the environment, or the others do not")
	}
	var asked atomic.Pointer[string]
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Store(&r.RequestURI)
		w.WriteHeader(http.StatusForbidden)
	}))
	t.Cleanup(proxy.Close)
	own := func(c *Config) { c.Proxy = strings.Replace(proxy.URL, "://", "://u:hunter22@", 1) }
	s := newSink(t, `{{ .Header "to" }}`, own)
	r := s.Deliver(t.Context(), toward("https://hooks.invalid/"), nil)
	if at := asked.Load(); at == nil || *at != "hooks.invalid:443" || r.Class != delivery.Misconfigured || r.Scope != delivery.ScopeDestination {
		t.Errorf("%+v, asked %v", r, at)
	}
	asked.Store(nil)
	if r := s.Deliver(t.Context(), toward("https://10.0.0.1/"), nil); r.Class != delivery.Permanent || asked.Load() != nil {
		t.Errorf("%+v, asked %v", r, asked.Load())
	}
	proxy.Close()
	if r := s.Deliver(t.Context(), toward("https://hooks.invalid/"), nil); r.Class != delivery.Unreachable || r.Scope != delivery.ScopeSink || strings.Contains(r.Detail, "hunter22") {
		t.Errorf("without the proxy: %+v", r)
	}
}

// TestTokensOfAGuardedSink: the token endpoint is named by the configuration, and may be anywhere.
func TestTokensOfAGuardedSink(t *testing.T) {
	i := newIssuer(t)
	s := i.sink(t, func(c *Config) { c.URL = `https://{{ .Header "to" }}.example.invalid/` })
	if _, err := s.Now().AccessToken(t.Context()); err != nil {
		t.Error(err)
	}
}
