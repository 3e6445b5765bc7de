// Package clients tests pacer against other people's code. Official clients send to the stand-ins of all other tests, which shows that
// these behave as the services do. Official receivers accept the sinks' requests.
//
// It is a module of its own, since these clients have hundreds of packages between them.
package clients

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// trusting returns a transport that trusts the certificates of a file, and speaks HTTP/2.
func trusting(t *testing.T, caFile string) *http.Transport {
	t.Helper()
	content, err := os.ReadFile(caFile)
	noError(t, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(content) {
		t.Fatal("no certificate")
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, ForceAttemptHTTP2: true}
	t.Cleanup(transport.CloseIdleConnections)
	return transport
}

// delivers opens an http sink that sends to a receiver over TLS and HTTP/2, and returns what delivers to it.
func delivers(t *testing.T, receiver http.Handler, change func(*sinkhttp.Config)) func(*delivery.Job) delivery.Result {
	t.Helper()
	server := httptest.NewUnstartedServer(receiver)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	cfg := sinkhttp.Default()
	cfg.URL, cfg.CAFile = server.URL, filepath.Join(t.TempDir(), "ca.pem")
	noError(t, os.WriteFile(cfg.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	change(cfg)
	return opened(t, cfg)
}

// opened opens a sink, and returns what delivers to it.
func opened(t *testing.T, cfg sink.Config) func(*delivery.Job) delivery.Result {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	entry, err := sink.Open(cfg, sink.Host{Version: "1", Logger: log})
	noError(t, err)
	r := sink.New(sink.Options{Sinks: map[string]sink.Entry{"a": entry}, Logger: log, Registerer: prometheus.NewRegistry()})
	t.Cleanup(func() { _ = r.Close() })
	return func(j *delivery.Job) delivery.Result { return r.Deliver(context.Background(), "a", j) }
}

// noError ends the test with an error.
func noError(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
