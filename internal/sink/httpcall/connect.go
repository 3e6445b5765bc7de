package httpcall

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"golang.org/x/net/idna"

	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/sink/guard"
)

// Connect opens a connection as a request would, and closes it before a request is written. The error begins with "url: ", and quotes no
// secret of the client.
func (c *Client) Connect(ctx context.Context, to *url.URL) error {
	limited, cancel := context.WithTimeout(ctx, c.Options.Timeout)
	defer cancel()
	err := c.connect(limited, to)
	if err == nil {
		return nil
	}
	if detail, refused := guard.Refused(err); refused {
		return errors.New("url: " + c.Scrub(detail))
	}
	detail := describe(err, to.Host, c.Options.Timeout, errors.Is(limited.Err(), context.DeadlineExceeded))
	return errors.New("url: cannot connect: " + c.Scrub(detail))
}

// refusalTime is how long a server that has asked for a certificate may take to refuse it: in TLS 1.3 it does so after the
// client has finished the handshake.
const refusalTime = time.Second

var errCertificate = errors.New("it asks for a client certificate, and has closed the connection: check cert_file and key_file")

func (c *Client) connect(ctx context.Context, to *url.URL) error {
	host, err := idna.Lookup.ToASCII(to.Hostname())
	if err != nil {
		host = to.Hostname() // such as an address of IPv6
	}
	transport, asked := c.Transport.Clone(), false
	secure := transport.TLSClientConfig
	secure.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		if asked = true; len(secure.Certificates) > 0 {
			return &secure.Certificates[0], nil
		}
		return new(tls.Certificate), nil
	}
	conn, err := transport.NewClientConn(ctx, to.Scheme, at(to, host))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }() // nothing is under way on it
	for end := time.Now().Add(refusalTime); asked && time.Now().Before(end) && retry.Sleep(ctx, refusalTime/20) == nil; {
		if conn.Err() != nil {
			return errCertificate
		}
	}
	return nil
}

// ConnectProxy connects to the proxy of a sink whose destinations are not known; nil if it has none of its own.
func (c *Client) ConnectProxy(ctx context.Context) error {
	if c.Transport.Proxy == nil {
		return nil
	}
	by, err := c.Transport.Proxy(&http.Request{URL: &url.URL{Scheme: "https", Host: "destination.invalid"}})
	if err != nil || by == nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Options.Timeout)
	defer cancel()
	conn, err := c.Transport.DialContext(ctx, "tcp", at(by, by.Hostname()))
	if err != nil {
		return fmt.Errorf("proxy: cannot connect: %s", c.Scrub(err.Error()))
	}
	return conn.Close()
}
