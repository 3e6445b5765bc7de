package http

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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

// TestAuthorityIsReadAgain: another authority signed the destination's certificate, and then the file of authorities is replaced.
func TestAuthorityIsReadAgain(t *testing.T) {
	for _, p := range []sinktest.Protocol{sinktest.TLS, sinktest.HTTP2} {
		srv := sinktest.Start(t, p, sinktest.Options{}, func(c *sinktest.Call) { c.Answer(200) })
		_, ca := sinktest.Certificate(t)
		s := newSink(t, Config{URL: srv.URL}, func(c *Config) { c.CAFile = ca })
		if r := s.Deliver(t.Context(), job()); r.Class != delivery.Misconfigured || !strings.Contains(r.Detail, "certificate") {
			t.Errorf("before: %+v", r)
		}
		if err := s.Check(t.Context()); err == nil || !strings.Contains(err.Error(), "certificate") {
			t.Errorf("before, checked: %v", err)
		}
		right, err := os.ReadFile(srv.CAFile)
		if err != nil {
			t.Fatal(err)
		}
		put(t, "", ca, string(right))
		s.Reread()
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("after, checked: %v", err)
		}
		if r := s.Deliver(t.Context(), job()); r.Class != delivery.Delivered || len(srv.Seen()) != 1 {
			t.Errorf("after: %+v, %d requests", r, len(srv.Seen()))
		}
	}
}

// TestClientCertificateIsReadAgain: the sink shows none, then one that the destination does not know, then one that it
// knows.
func TestClientCertificateIsReadAgain(t *testing.T) {
	for _, p := range []sinktest.Protocol{sinktest.TLS, sinktest.HTTP2} {
		t.Run(string(p), func(t *testing.T) {
			known, _ := sinktest.Certificate(t)
			unknown, _ := sinktest.Certificate(t)
			leaf, err := x509.ParseCertificate(known.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			clients := x509.NewCertPool()
			clients.AddCert(leaf)
			srv := sinktest.Start(t, p, sinktest.Options{Clients: clients}, func(c *sinktest.Call) { c.Answer(200) })
			none := newSink(t, Config{URL: srv.URL}, func(c *Config) { c.CAFile = srv.CAFile })
			refused(t, none)
			dir := t.TempDir()
			certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
			pair(t, unknown, certFile, keyFile)
			s := newSink(t, Config{URL: srv.URL}, func(c *Config) { c.CAFile, c.CertFile, c.KeyFile = srv.CAFile, certFile, keyFile })
			refused(t, s)
			pair(t, known, certFile, keyFile)
			s.Reread()
			sinktest.Deliver(t, s, job(), delivery.Delivered)
		})
	}
}

// refused delivers a job to a destination that does not accept the sink's certificate. TLS 1.3 says so after the request
// was written, so that the connection may break before the reason is known.
func refused(t *testing.T, s *Sink) {
	t.Helper()
	for range 500 {
		switch r := s.Deliver(t.Context(), job()); r.Class {
		case delivery.Misconfigured:
			return
		case delivery.Temporary, delivery.Unreachable:
		default:
			t.Errorf("%+v", r)
		}
	}
	t.Error("the reason was never found")
}

// TestSecretsAreReadAgain: one that cannot be read or used leaves the one before.
func TestSecretsAreReadAgain(t *testing.T) {
	url, last := got(t)
	token, problem := "Bearer one", error(nil)
	s := newSink(t, Config{URL: url}, func(c *Config) {
		c.Headers = map[string]string{"Authorization": "Bearer one"}
		c.SecretFrom("headers.Authorization", func() (string, error) { return token, problem })
	})
	for _, step := range []struct {
		value, want string
		err         error
	}{
		{"Bearer two", "Bearer two", nil}, {"", "Bearer two", errors.New("no such file")},
		{"two\nlines", "Bearer two", nil}, {"Bearer three", "Bearer three", nil},
	} {
		token, problem = step.value, step.err
		s.Reread()
		if r := s.Deliver(t.Context(), job()); r.Class != delivery.Delivered || last.header.Get("Authorization") != step.want {
			t.Errorf("%q: sent %q, %+v", step.value, last.header.Get("Authorization"), r)
		}
	}
}

// TestFilesAreReadEveryTenSeconds: and not once the daemon stops.
func TestFilesAreReadEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		s := newSink(t, Config{URL: "http://127.0.0.1:9/"}, func(c *Config) {
			c.Headers = map[string]string{"X-Key": "opensesame"}
			c.SecretFrom("headers.X-Key", func() (string, error) { reads++; return "opensesame", nil })
		})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(61 * time.Second)
		cancel()
		if err := <-done; err != nil || reads != 1+6 {
			t.Errorf("%d reads in a minute and at the start, %v", reads, err)
		}
	})
}
