package broker

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/testservices/certs"
)

// issued is an authority, as a client trusts it, and a certificate of its.
func issued(t *testing.T) (*tls.Config, *tls.Certificate) {
	t.Helper()
	ca, err := certs.New()
	if err != nil {
		t.Fatal(err)
	}
	cert, key, err := ca.Issue("broker", time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, &pair
}

// TestConnectionsUseTheSecurityOfTheMoment: after the authority was replaced, new connections trust the new one.
func TestConnectionsUseTheSecurityOfTheMoment(t *testing.T) {
	trusted, certificate := issued(t)
	var server atomic.Pointer[tls.Certificate]
	server.Store(certificate)
	certificates := &tls.Config{
		MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return server.Load(), nil },
	}
	address := serving(t, certificates, func(conn net.Conn) { _, _ = io.CopyN(conn, conn, 4) })
	var current atomic.Pointer[tls.Config]
	current.Store(trusted)
	dial := (&dialer{security: func() Security { return Security{TLS: current.Load()} }, cluster: func() string { return "" }}).dial
	echo := func() error {
		conn, err := dial(t.Context(), "tcp", address)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		_, _ = conn.Write([]byte{0, 0, 0, 1})
		_, err = io.ReadFull(conn, make([]byte, 4))
		return err
	}
	if err := echo(); err != nil {
		t.Fatal(err)
	}
	trusted, certificate = issued(t)
	server.Store(certificate)
	if err := echo(); err == nil || !strings.Contains(err.Error(), "unknown authority") || !strings.Contains(err.Error(), address) {
		t.Errorf("with another authority: %v", err)
	}
	current.Store(trusted)
	if err := echo(); err != nil {
		t.Errorf("after the authority was replaced: %v", err)
	}
}
