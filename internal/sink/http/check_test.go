package http

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/guard"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// TestRowsThatCannotBeUsed: what is wrong with a destination is said with its column, by a check as by a delivery. Nothing is dialled, no job is
// to blame but for an address that the guard refuses, and no secret is told.
func TestRowsThatCannotBeUsed(t *testing.T) {
	srv := sinktest.Start(t, sinktest.TLS, sinktest.Options{}, func(*sinktest.Call) { t.Error("a request was sent") })
	dir, outside := t.TempDir(), t.TempDir()
	put(t, outside, "secret", "hunter22")
	put(t, dir, "shop-7", "\n")
	put(t, dir, "shop-7__lines", "hunter22\nhunter22")
	put(t, dir, "shop-7__signs", "whsec_hunter22hunter22hunter22hunter22")
	if err := os.Symlink(filepath.Join(outside, "secret"), filepath.Join(dir, "shop-7__link")); err != nil {
		t.Fatal(err)
	}
	t.Setenv("HUNTER", "hunter22")
	header := func(name, value string) delivery.Destination {
		return delivery.Destination{Headers: []delivery.DestinationHeader{{Name: name, Value: value}}}
	}
	secret := func(reference string) delivery.Destination { return delivery.Destination{Secrets: []string{reference}} }
	x := table{}
	s := tableSink(t, x, srv, func(c *Config) { c.SecretsDir = dir })
	names := among(s, nil)
	const guarded = "url: refused by the sink's guard: "
	for name, c := range map[string]struct {
		row  delivery.Destination
		want string
	}{
		"outside, up":        {header("x-key", "file:../secret"), "headers.x-key: file ../secret is not in the sink's secrets_dir"},
		"outside":            {header("x-key", "file:"+outside+"/secret"), "headers.x-key: file ../" + filepath.Base(outside) + "/secret is not in the sink's"},
		"outside, by a link": {header("x-key", "file:shop-7__link"), "headers.x-key: cannot read the secret"},
		"missing":            {header("x-key", "file:shop-7__none"), "headers.x-key: there is no file shop-7__none in the sink's secrets_dir"},
		"empty":              {header("x-key", "file:shop-7"), "headers.x-key: the file shop-7 is empty"},
		"two lines":          {header("x-key", "file:shop-7__lines"), "headers.x-key: not a header value"},
		"what signs":         {header("x-key", "file:shop-7__signs"), "headers.x-key: is a secret that signs requests"},
		"another variable":   {header("x-key", "env:HUNTER"), "headers.x-key: env:HUNTER is not a variable of destination shop-7; use DESTINATION_SHOP_7, or"},
		"no variable":        {secret("env:DESTINATION_SHOP_7"), "secrets: this daemon has no variable DESTINATION_SHOP_7"},
		"no signing secret":  {secret("file:" + dir + "/shop-7__lines"), "secrets: item 1: must begin with whsec_"},
		"pacer's header":     {header("Webhook-Id", "x"), "headers.Webhook-Id: pacer sets this header itself"},
		"the protocol's":     {header("content-length", "1"), "headers.content-length: pacer sets this header itself"},
		"metadata":           {delivery.Destination{URL: "https://169.254.169.254/"}, guarded + "169.254.169.254 is in 169.254.169.254/32, which is denied"},
		"not public":         {delivery.Destination{URL: "https://10.1.2.3/"}, guarded + "10.1.2.3 is not a public address"},
		"another port":       {delivery.Destination{URL: "https://127.0.0.1:9/x"}, guarded + "port 9 "},
	} {
		t.Run(name, func(t *testing.T) {
			c.row.ID, c.row.URL = "shop-7", cmp.Or(c.row.URL, srv.URL)
			x["shop-7"] = &c.row
			r := s.Deliver(t.Context(), jobFor("shop-7"), nil)
			detail, refused := strings.CutPrefix(c.want, "url: ")
			class, scope := delivery.Misconfigured, delivery.ScopeDestination
			if refused {
				class, scope = delivery.Permanent, delivery.ScopeSink
			} else {
				detail = "destination shop-7: " + detail
			}
			if r.Class != class || r.Scope != scope || !strings.HasPrefix(r.Detail, detail) || len(names.Dialled()) > 0 {
				t.Errorf("%+v, dialled %v", r, names.Dialled())
			}
			check, reach := s.CheckRow(&c.row), s.ReachRow(t.Context(), &c.row)
			if check == nil || reach == nil || check.Error() != reach.Error() || !strings.HasPrefix(check.Error(), c.want) {
				t.Errorf("%v, %v, want %s", check, reach, c.want)
			}
			if all := fmt.Sprint(r, check); strings.Contains(all, "hunter22") || strings.Contains(all, "\n") {
				t.Error(all)
			}
		})
	}
}

// TestReachRow connects to a row as a delivery would, and sends nothing.
func TestReachRow(t *testing.T) {
	srv := sinktest.Start(t, sinktest.HTTP2, sinktest.Options{}, func(*sinktest.Call) { t.Error("a check has sent a request") })
	_, port, _ := net.SplitHostPort(strings.TrimSuffix(strings.TrimPrefix(srv.URL, "https://"), "/deliver"))
	free, _ := net.Listen("tcp", "127.0.0.1:0")
	closed := free.Addr().(*net.TCPAddr)
	free.Close()
	s := tableSink(t, table{}, srv, func(c *Config) { c.Guard.Ports = append(c.Guard.Ports, closed.Port) })
	for address, want := range map[string]string{
		srv.URL + "?token=hunter22":  "",
		"https://" + closed.String(): "url: cannot connect: dial tcp " + closed.String() + ": connect: connection refused",
		"https://localhost:" + port:  "url: ", // another name than the certificate's, or no such name
	} {
		row := &delivery.Destination{ID: "shop-7", URL: address}
		if err := s.CheckRow(row); err != nil {
			t.Errorf("%s: %v", address, err)
		}
		if err := s.ReachRow(t.Context(), row); (err == nil) != (want == "") || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	if srv.Connections() == 0 {
		t.Error("nothing was dialled")
	}
	s = tableSink(t, table{}, srv, func(c *Config) { c.Guard = guard.Default() })
	names := among(s, map[string][]string{"loopback.test": {"127.0.0.1"}})
	err := s.ReachRow(t.Context(), &delivery.Destination{ID: "shop-7", URL: "https://loopback.test/"})
	if err == nil || !strings.HasPrefix(err.Error(), "url: refused by the sink's guard: loopback.test, which is 127.0.0.1,") || len(names.Dialled()) > 0 {
		t.Errorf("%v, dialled %v", err, names.Dialled())
	}
}

// TestCheckOfAClientCertificate: a server that wants one says so after the handshake.
func TestCheckOfAClientCertificate(t *testing.T) {
	_, file := sinktest.Certificate(t)
	srv := sinktest.Start(t, sinktest.HTTP2, sinktest.Options{Clients: pool(t, file)}, func(*sinktest.Call) { t.Error("a check has sent a request") })
	s := newSink(t, srv.URL, func(c *Config) { c.CAFile = srv.CAFile })
	if err := s.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "url: cannot connect: ") || !strings.Contains(err.Error(), "check cert_file") {
		t.Error(err)
	}
}

// TestCheckOfAProxy: where addresses come from jobs, the proxy of the sink is what can be reached.
func TestCheckOfAProxy(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := newSink(t, `{{ .Header "to" }}`, func(c *Config) { c.Proxy = "http://me:hunter22@" + l.Addr().String() })
	if err := s.Check(t.Context()); err != nil || s.Unreached() == "" {
		t.Error(err)
	}
	l.Close()
	if err := s.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "proxy: cannot connect: ") || strings.Contains(err.Error(), "hunter22") {
		t.Error(err)
	}
}
