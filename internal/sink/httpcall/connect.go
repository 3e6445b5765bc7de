package httpcall

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
	"strings"
	"time"

	"golang.org/x/net/idna"

	"github.com/pacer/pacer/internal/sink/guard"
)

// Connect opens a connection as a request would, and closes it before anything is written but what TLS and a proxy need.
//
// The error begins with "url: ", and does not quote what secrets replace.
func (c *Client) Connect(ctx context.Context, to *url.URL, secrets *strings.Replacer) error {
	limited, cancel := context.WithTimeout(ctx, c.Options.Timeout)
	defer cancel()
	by, err := c.proxyFor(to)
	switch {
	case err == nil && by != nil:
		err = c.connectThroughProxy(limited, to)
	case err == nil:
		err = c.connectDirectly(limited, to)
	}
	if err == nil {
		return nil
	}
	if detail, refused := guard.Refused(err); refused {
		return errors.New("url: " + c.Scrub(secrets.Replace(detail)))
	}
	return errors.New("url: cannot connect: " + c.Scrub(secrets.Replace(c.describe(err, to.Host, errors.Is(limited.Err(), context.DeadlineExceeded)))))
}

// proxyFor returns the proxy for an address; nil for none.
func (c *Client) proxyFor(u *url.URL) (*url.URL, error) {
	if c.Transport.Proxy == nil {
		return nil, nil
	}
	return c.Transport.Proxy(&http.Request{URL: u, Header: http.Header{}})
}

// refusalTime is how long a server that has asked for a certificate may take to refuse it: in TLS 1.3 it does so after the
// client has finished the handshake.
const refusalTime = time.Second

func (c *Client) connectDirectly(ctx context.Context, to *url.URL) error {
	host, err := idna.Lookup.ToASCII(to.Hostname())
	if err != nil {
		host = to.Hostname() // such as an address of IPv6
	}
	secure := to.Scheme == "https"
	port := "80"
	if secure {
		port = "443"
	}
	conn, err := c.Transport.DialContext(ctx, "tcp", net.JoinHostPort(host, cmp.Or(to.Port(), port)))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is under way on it
	if !secure {
		return nil
	}
	cfg := c.Transport.TLSClientConfig.Clone()
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
func (c *Client) connectThroughProxy(ctx context.Context, to *url.URL) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	transport := c.Transport.Clone() // without connections
	defer transport.CloseIdleConnections()
	connected := false
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		connected = true
		_ = info.Conn.Close() // so that nothing is written
		cancel()
	}}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, trace), http.MethodHead, to.String(), http.NoBody)
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

// ConnectProxy connects to the proxy of a sink whose destinations are not known; nil if it has none of its own.
func (c *Client) ConnectProxy(ctx context.Context) error {
	by, err := c.proxyFor(&url.URL{Scheme: "https", Host: "destination.invalid"})
	if err != nil || by == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Options.Timeout)
	defer cancel()
	port := map[string]string{"http": "80", "https": "443"}[by.Scheme]
	conn, err := c.Transport.DialContext(ctx, "tcp", net.JoinHostPort(by.Hostname(), cmp.Or(by.Port(), port, "1080")))
	if err != nil {
		return fmt.Errorf("proxy: cannot connect: %s", c.Scrub(err.Error()))
	}
	return conn.Close()
}
