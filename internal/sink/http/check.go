package http

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"time"

	"golang.org/x/net/idna"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/guard"
)

// Check fetches an access token if requests need one, and connects to the destination as a delivery would: through its proxy,
// and with TLS if the URL is https. It sends no request. Where addresses come from jobs or from rows, there is only a proxy to
// connect to; see CheckRow and ReachRow.
func (s *Sink) Check(ctx context.Context) error {
	c := s.Now()
	if s.Fetches() {
		if _, err := s.fetchToken(ctx); err != nil {
			return err
		}
	}
	if c.reach != fixed {
		return c.reachProxy(ctx)
	}
	return c.connect(ctx)
}

// Unreached says what of the sink Check cannot reach; "" for nothing.
func (s *Sink) Unreached() string {
	switch s.config.reach() {
	case byJob:
		return "its addresses come from jobs, so none was tried"
	case byTable:
		return "its addresses are those of destinations"
	}
	return ""
}

// CheckRow returns the first problem because of which nothing could be sent to a row of pacer.destinations: a secret that
// cannot be had, a header that cannot be sent, an address that the guard refuses. Nothing is looked up. The error begins with
// the column.
func (s *Sink) CheckRow(row *delivery.Destination) error {
	_, err := s.row(row)
	return err
}

// ReachRow connects to a row of pacer.destinations as a delivery would, and sends no request.
func (s *Sink) ReachRow(ctx context.Context, row *delivery.Destination) error {
	c, err := s.row(row)
	if err != nil {
		return err
	}
	return c.connect(ctx)
}

func (s *Sink) row(row *delivery.Destination) (*client, error) {
	c, fault := s.Now().to(row)
	if fault != "" {
		return nil, errors.New(fault)
	}
	if detail, refused := guard.Refused(c.guard.URL(c.target)); refused {
		return nil, errors.New("url: " + detail)
	}
	return c, nil
}

// connect opens a connection as a request would, and closes it before anything is written but what TLS and a proxy need.
func (c *client) connect(ctx context.Context) error {
	limited, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	by, err := c.proxyFor(c.target)
	switch {
	case err == nil && by != nil:
		err = c.connectThroughProxy(limited)
	case err == nil:
		err = c.connectDirectly(limited)
	}
	if err == nil {
		return nil
	}
	if detail, refused := guard.Refused(err); refused {
		return errors.New("url: " + c.scrub(detail))
	}
	return errors.New("url: cannot connect: " + c.scrub(c.describe(err, errors.Is(limited.Err(), context.DeadlineExceeded))))
}

// proxyFor returns the proxy for an address; nil for none.
func (c *client) proxyFor(u *url.URL) (*url.URL, error) {
	if c.transport.Proxy == nil {
		return nil, nil
	}
	return c.transport.Proxy(&http.Request{URL: u, Header: http.Header{}})
}

// refusalTime is how long a server that has asked for a certificate may take to refuse it: in TLS 1.3 it does so after the
// client has finished the handshake.
const refusalTime = time.Second

func (c *client) connectDirectly(ctx context.Context) error {
	host, err := idna.Lookup.ToASCII(c.target.Hostname())
	if err != nil {
		host = c.target.Hostname() // such as an address of IPv6
	}
	secure := c.target.Scheme == "https"
	port := "80"
	if secure {
		port = "443"
	}
	conn, err := c.transport.DialContext(ctx, "tcp", net.JoinHostPort(host, cmp.Or(c.target.Port(), port)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is under way on it
	if !secure {
		return nil
	}
	cfg := c.transport.TLSClientConfig.Clone()
	cfg.ServerName, cfg.NextProtos = host, []string{"h2", "http/1.1"}
	asked := false
	cfg.GetClientCertificate = func(wanted *tls.CertificateRequestInfo) (*tls.Certificate, error) {
		asked = true
		for i := range cfg.Certificates {
			if wanted.SupportsCertificate(&cfg.Certificates[i]) == nil {
				return &cfg.Certificates[i], nil
			}
		}
		return new(tls.Certificate), nil
	}
	over := tls.Client(conn, cfg)
	if err := over.HandshakeContext(ctx); err != nil || !asked {
		return err
	}
	_ = conn.SetReadDeadline(time.Now().Add(refusalTime)) // a connection that is closed says so when it is read
	if _, err := over.Read(make([]byte, 1)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return err
	}
	return nil
}

// connectThroughProxy has net/http connect, which knows the kinds of proxies, and closes the connection when it is there.
func (c *client) connectThroughProxy(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	transport := c.transport.Clone() // without connections
	defer transport.CloseIdleConnections()
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		connected = true
		_ = info.Conn.Close() // so that nothing is written
		cancel()
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodHead, c.target.String(), http.NoBody)
	if err != nil {
		return errors.New("not a URL")
	}
	resp, err := transport.RoundTrip(req)
	if err == nil {
		_ = resp.Body.Close()
	}
	if connected {
		return nil
	}
	return err
}

// reachProxy connects to the proxy of a sink whose destinations are not known; nil if it has none of its own.
func (c *client) reachProxy(ctx context.Context) error {
	by, err := c.proxyFor(&url.URL{Scheme: "https", Host: "destination.invalid"})
	if err != nil || by == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	port := map[string]string{"http": "80", "https": "443"}[by.Scheme]
	conn, err := c.transport.DialContext(ctx, "tcp", net.JoinHostPort(by.Hostname(), cmp.Or(by.Port(), port, "1080")))
	if err != nil {
		return fmt.Errorf("proxy: cannot connect: %s", c.scrub(err.Error()))
	}
	return conn.Close()
}

// CheckProxy connects to the proxy of the API, if its requests have URLs of their own and a proxy of the sink.
func (a *API) CheckProxy(ctx context.Context) error { return a.reachProxy(ctx) }
