package http

import (
	"context"
	"crypto/x509"
	"encoding/base64"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// TestRows: what is wrong with a destination is said with its column, none that the guard refuses is dialled, and to those that are
// dialled nothing is sent.
func TestRows(t *testing.T) {
	srv := sinktest.Start(t, sinktest.HTTP2, sinktest.Options{}, func(*sinktest.Call) { t.Error("a check has sent a request") })
	at := strings.TrimSuffix(srv.URL, "/deliver")
	dir := t.TempDir()
	put(t, dir, "shop-7__good", "whsec_"+base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 24))))
	put(t, dir, "shop-7__bad", "hunter22")
	put(t, dir, "shop-7__two-lines", "hunter22\nx")
	free, _ := net.Listen("tcp", "127.0.0.1:0")
	free.Close()
	_, port, _ := net.SplitHostPort(strings.TrimPrefix(at, "https://"))
	header := func(name, value string) []delivery.DestinationHeader {
		return []delivery.DestinationHeader{{Name: name, Value: value}}
	}
	s := tableSink(t, table{}, srv, func(c *Config) {
		c.SecretsDir = dir
		_, closed, _ := net.SplitHostPort(free.Addr().String())
		allowed(t, &sinktest.Server{URL: "https://127.0.0.1:" + closed, CAFile: srv.CAFile})(c)
		ports := c.Guard.Ports
		allowed(t, srv)(c)
		c.Guard.Ports = append(c.Guard.Ports, ports...)
	})
	dialled := 0
	c := *s.Now().Client
	dial := c.Transport.DialContext
	c.Transport = c.Transport.Clone()
	c.Transport.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialled++
		return dial(ctx, network, addr)
	}
	s.Now().Client = &c
	for _, tt := range []struct {
		row     delivery.Destination
		check   string // "" for none
		reach   string
		dialled int
	}{
		{row: delivery.Destination{URL: at + "/a?token=hunter22", Secrets: []string{"file:shop-7__good"}, Headers: header("authorization", "file:shop-7__bad")}, dialled: 1},
		{row: delivery.Destination{URL: at, Secrets: []string{"file:shop-7"}}, check: "secrets: there is no file shop-7 in the sink's secrets_dir"},
		{row: delivery.Destination{URL: at, Secrets: []string{"file:../x"}}, check: "secrets: file ../x is not in the sink's secrets_dir"},
		{row: delivery.Destination{URL: at, Secrets: []string{"file:shop-7__bad"}}, check: "secrets: "},
		{row: delivery.Destination{URL: at, Secrets: []string{"env:DESTINATION_SHOP_7"}}, check: "secrets: this daemon has no variable DESTINATION_SHOP_7"},
		{row: delivery.Destination{URL: at, Headers: header("authorization", "env:HOME")}, check: "headers.authorization: env:HOME is not a variable of destination shop-7"},
		{row: delivery.Destination{URL: at, Headers: header("authorization", "file:shop-7__two-lines")}, check: "headers.authorization: "},
		{row: delivery.Destination{URL: at, Headers: header("content-length", "1")}, check: "headers.content-length: "},
		{row: delivery.Destination{URL: "https://10.1.2.3:" + port}, check: "url: refused by the sink's guard: 10.1.2.3 is not a public address"},
		{row: delivery.Destination{URL: "https://127.0.0.1:9/x"}, check: "url: refused by the sink's guard: port 9 "},
		{row: delivery.Destination{URL: "https://[::1]:" + port}, check: "url: refused by the sink's guard: ::1 "},
		{row: delivery.Destination{URL: "https://" + free.Addr().String()}, reach: "url: cannot connect: dial tcp " + free.Addr().String() + ": connect: connection refused", dialled: 1},
		{row: delivery.Destination{URL: "https://localhost:" + port}, reach: "url: ", dialled: 1}, // another name than the certificate's, or no such name
	} {
		before := dialled
		tt.row.ID = "shop-7"
		for _, err := range []struct {
			is   error
			want string
		}{{s.CheckRow(&tt.row), tt.check}, {s.ReachRow(t.Context(), &tt.row), tt.check + tt.reach}} {
			if err.want == "" && err.is != nil || err.want != "" && (err.is == nil || !strings.HasPrefix(err.is.Error(), err.want)) {
				t.Errorf("%+v: %v, want %q", tt.row, err.is, err.want)
			}
			if err.is != nil && (strings.Contains(err.is.Error(), "hunter22") || strings.Contains(err.is.Error(), "\n")) {
				t.Errorf("%+v: %v", tt.row, err.is)
			}
		}
		if n := dialled - before; n != tt.dialled {
			t.Errorf("%+v: %d dialled, want %d", tt.row, n, tt.dialled)
		}
	}
}

// TestCheckOfAClientCertificate: a server that wants one says so after the handshake.
func TestCheckOfAClientCertificate(t *testing.T) {
	_, file := sinktest.Certificate(t)
	pem, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	clients := x509.NewCertPool()
	clients.AppendCertsFromPEM(pem)
	srv := sinktest.Start(t, sinktest.HTTP2, sinktest.Options{Clients: clients}, func(*sinktest.Call) { t.Error("a check has sent a request") })
	s := newSink(t, Config{URL: srv.URL}, func(c *Config) { c.CAFile = srv.CAFile })
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
	s := newSink(t, Config{URL: `{{ .Header "to" }}`}, func(c *Config) { c.Proxy = "http://me:hunter22@" + l.Addr().String() })
	if err := s.Check(t.Context()); err != nil || s.Unreached() == "" {
		t.Error(err)
	}
	l.Close()
	if err := s.Check(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "proxy: cannot connect: ") || strings.Contains(err.Error(), "hunter22") {
		t.Error(err)
	}
}
