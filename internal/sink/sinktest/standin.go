// Package sinktest is a destination for tests: a server of HTTP that treats each request as it is told to, also badly.
package sinktest

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Protocol is what a server speaks.
type Protocol string

// The protocols.
const (
	Plain Protocol = "http/1.1"         // without TLS
	TLS   Protocol = "http/1.1 and TLS" // with it
	HTTP2 Protocol = "h2"               // with it
)

// Protocols lists every protocol.
var Protocols = []Protocol{Plain, TLS, HTTP2}

// Options are what a server does beside handling requests.
type Options struct {
	Accept  func(n int, c net.Conn) bool // sees each connection first, numbered from 1; false: it is closed
	Streams uint32                       // HTTP/2: how many streams a connection may have; 0: any number
	Clients *x509.CertPool               // who may sign the certificate that a client must show; nil for none
	Early   int                          // HTTP/1.1: a status that is answered before the body of a request is read; 0 for none
}

// Server is a running server. It ends with the test.
type Server struct {
	URL    string
	CAFile string // that verifies its certificate; "" for Plain
	// Leave, if set, is called for each request of HTTP/2, in the order of its connection. If it returns true, the connection goes away,
	// and neither this request nor a later one on it is processed. It is not called for a request that was read after a later one. To be set
	// before the first request.
	Leave func(*Call) bool

	handle  func(*Call)
	options Options
	ended   chan struct{}
	all     sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]bool // that are open
	dialled int
	seen    []string
}

// Start starts a server that calls handle for each request, once it has been read to its end.
func Start(t testing.TB, p Protocol, opt Options, handle func(*Call)) *Server {
	t.Helper()
	s := &Server{handle: handle, options: opt, ended: make(chan struct{}), conns: map[net.Conn]bool{}}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.URL = "http://" + l.Addr().String() + "/deliver"
	wrap := func(c net.Conn) net.Conn { return c }
	if p != Plain {
		s.URL = "https://" + l.Addr().String() + "/deliver"
		cert, caFile := Certificate(t)
		s.CAFile = caFile
		cfg := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{cert}, NextProtos: []string{string(p)}}
		if p == TLS {
			cfg.NextProtos = []string{"http/1.1"}
		}
		if opt.Clients != nil {
			cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, opt.Clients
		}
		wrap = func(c net.Conn) net.Conn { return tls.Server(c, cfg) }
	}
	s.all.Go(func() { s.accept(l, p, wrap) })
	t.Cleanup(func() { s.end(l) })
	return s
}

// Certificate makes a certificate for 127.0.0.1, signed by itself, and a file that holds it as PEM.
func Certificate(t testing.TB) (cert tls.Certificate, caFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	caFile = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(caFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, caFile
}

// Seen returns the ids of the requests that were read to their end, in order.
func (s *Server) Seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

// Connections returns how many connections there were.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.dialled
}

func (s *Server) end(l net.Listener) {
	close(s.ended)
	_ = l.Close()
	s.mu.Lock()
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.all.Wait()
}

func (s *Server) accept(l net.Listener, p Protocol, wrap func(net.Conn) net.Conn) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		s.dialled++
		n := s.dialled
		s.conns[c] = true
		s.mu.Unlock()
		s.all.Go(func() {
			defer func() {
				_ = c.Close()
				s.mu.Lock()
				delete(s.conns, c)
				s.mu.Unlock()
			}()
			switch {
			case s.options.Accept != nil && !s.options.Accept(n, c):
			case p == HTTP2:
				s.serveStreams(wrap(c), c, n)
			default:
				s.serve(wrap(c), c, n)
			}
		})
	}
}

// saw notes a request that was read to its end.
func (s *Server) saw(c *Call) {
	s.mu.Lock()
	s.seen = append(s.seen, c.ID)
	c.N = len(s.seen)
	s.mu.Unlock()
}

// serve speaks HTTP/1.1.
func (s *Server) serve(c, raw net.Conn, n int) {
	in := bufio.NewReader(c)
	for {
		r, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if s.options.Early > 0 {
			(&exchange{conn: c, in: in}).Begin(s.options.Early, "Content-Length", "0", "Connection", "close")
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		call := &Call{
			ID: r.Header.Get("Webhook-Id"), Header: r.Header, Path: r.RequestURI, Payload: body, Connection: n, raw: raw, ended: s.ended,
		}
		x := &exchange{conn: c, in: in}
		call.exchanger = x
		s.saw(call)
		s.handle(call)
		if x.closed || r.Close {
			return
		}
	}
}
