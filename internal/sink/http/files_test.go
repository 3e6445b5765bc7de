package http

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/sinktest"
)

// write writes a file at once, as secrets are rotated.
func write(t *testing.T, path string, content []byte) {
	t.Helper()
	next := path + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, to, from string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	write(t, to, b)
}

// pair writes a certificate and its key.
func pair(t *testing.T, cert tls.Certificate, certFile, keyFile string) {
	t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	write(t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}))
	write(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}))
}

// TestAuthorityIsReadAgain: another authority signed the destination's certificate, and then the file of authorities is replaced.
func TestAuthorityIsReadAgain(t *testing.T) {
	srv := sinktest.Start(t, sinktest.HTTP2, sinktest.Options{}, func(c *sinktest.Call) { c.Answer(200) })
	_, other := sinktest.Certificate(t)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	copyFile(t, ca, other)
	s := newSink(t, Config{URL: srv.URL}, func(c *Config) { c.CAFile = ca })
	if r := s.Deliver(t.Context(), job()); r.Class != delivery.Misconfigured {
		t.Errorf("before: %+v", r)
	}
	copyFile(t, ca, srv.CAFile)
	s.Reread()
	if r := s.Deliver(t.Context(), job()); r.Class != delivery.Delivered {
		t.Errorf("after: %+v", r)
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
			if r := s.Deliver(t.Context(), job()); r.Class != delivery.Delivered {
				t.Errorf("%+v", r)
			}
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

// secret is the content of a file that a test changes.
type secret struct {
	mu    sync.Mutex
	value string
	err   error
}

func (s *secret) set(value string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.value, s.err = value, err
}

func (s *secret) read() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.value, s.err
}

func TestSecretsAreReadAgain(t *testing.T) {
	var seen atomic.Pointer[string]
	srv := sinktest.Start(t, sinktest.Plain, sinktest.Options{}, func(c *sinktest.Call) {
		v := c.Header.Get("Authorization")
		seen.Store(&v)
		c.Answer(200)
	})
	token := &secret{value: "Bearer one"}
	s := newSink(t, Config{URL: srv.URL}, func(c *Config) {
		c.Headers = map[string]string{"Authorization": "Bearer one"}
		c.SecretFrom("headers.Authorization", token.read)
	})
	var logged bytes.Buffer
	s.Logger = slog.New(slog.NewTextHandler(&logged, nil))
	for _, step := range []struct {
		value, want string
		err         error
	}{
		{"Bearer one", "Bearer one", nil},
		{"Bearer two", "Bearer two", nil},
		{"", "Bearer two", errors.New("no such file")},
		{"", "Bearer two", errors.New("no such file")},
		{"two\nlines", "Bearer two", nil},
		{"Bearer three", "Bearer three", nil},
	} {
		token.set(step.value, step.err)
		s.Reread()
		if r := s.Deliver(t.Context(), job()); r.Class != delivery.Delivered || *seen.Load() != step.want {
			t.Errorf("%q: sent %q, %+v", step.value, *seen.Load(), r)
		}
	}
	if s := logged.String(); strings.Count(s, "level=ERROR") != 1 || strings.Count(s, "level=INFO") != 2 || strings.Contains(s, "Bearer") {
		t.Errorf("log %q", s)
	}
}

// TestFilesAreReadEveryTenSeconds: and not once the daemon stops.
func TestFilesAreReadEveryTenSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		token := &secret{value: "opensesame"}
		reads := 0
		s := newSink(t, Config{URL: "http://127.0.0.1:9/"}, func(c *Config) {
			c.Headers = map[string]string{"X-Key": "opensesame"}
			c.SecretFrom("headers.X-Key", func() (string, error) { reads++; return token.read() })
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
