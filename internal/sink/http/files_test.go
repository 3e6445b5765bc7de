package http

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// pair writes a certificate and its key.
func pair(t *testing.T, cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	put(t, "", certFile, string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]})))
	put(t, "", keyFile, string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key})))
}

// TestCertificatesAreReadAgain: the files are replaced one after the other, and each acts from then on.
func TestCertificatesAreReadAgain(t *testing.T) {
	for _, p := range []sinktest.Protocol{sinktest.TLS, sinktest.HTTP2} {
		t.Run(string(p), func(t *testing.T) {
			known, clients := sinktest.Certificate(t)
			unknown, otherCA := sinktest.Certificate(t)
			srv := sinktest.Start(t, p, sinktest.Options{Clients: pool(t, clients)}, func(c *sinktest.Call) { c.Answer(200) })
			dir := t.TempDir()
			ca, certFile, keyFile := filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
			put(t, "", ca, read(t, otherCA))
			pair(t, unknown, certFile, keyFile)
			s := newSink(t, srv.URL, func(c *Config) { c.CAFile, c.CertFile, c.KeyFile = ca, certFile, keyFile })
			if r := s.Deliver(t.Context(), job(), nil); r.Class != delivery.Misconfigured || !strings.Contains(r.Detail, "certificate") {
				t.Errorf("another authority: %+v", r)
			}
			if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
				t.Errorf("another authority, checked: %v", err)
			}
			put(t, "", ca, read(t, srv.CAFile))
			s.Reread()
			refused(t, s)
			refused(t, newSink(t, srv.URL, func(c *Config) { c.CAFile = ca })) // which shows no certificate
			pair(t, known, certFile, keyFile)
			s.Reread()
			if err := s.Check(t.Context()); err != nil {
				t.Errorf("at last, checked: %v", err)
			}
			if sinktest.Deliver(t, s, job(), delivery.Delivered); len(srv.Seen()) != 1 {
				t.Errorf("%d requests", len(srv.Seen()))
			}
		})
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// pool returns the certificates of a file.
func pool(t *testing.T, file string) *x509.CertPool {
	t.Helper()
	p := x509.NewCertPool()
	p.AppendCertsFromPEM([]byte(read(t, file)))
	return p
}

// refused delivers a job to a destination that does not accept the sink's certificate. TLS 1.3 says so after the request
// was written, so that the connection may break before the reason is known.
func refused(t *testing.T, s *Sink) {
	t.Helper()
	for range 500 {
		switch r := s.Deliver(t.Context(), job(), nil); r.Class {
		case delivery.Misconfigured:
			return
		case delivery.Temporary, delivery.Unreachable:
		default:
			t.Errorf("%+v", r)
		}
	}
	t.Error("the reason was never found")
}
