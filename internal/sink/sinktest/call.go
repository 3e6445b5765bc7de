package sinktest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http2"
)

// Call is one request. Its handler answers it with Answer, with Begin, Body and End, or not at all.
type Call struct {
	ID         string // webhook-id
	N          int    // of all requests of the server, from 1
	Connection int    // from 1
	Header     http.Header
	Path       string        // with the query
	Payload    []byte        // the body
	Late       time.Duration // after which JSON sends the body of the answer

	exchanger
	raw   net.Conn // without TLS
	ended <-chan struct{}
}

// exchanger is the answer to one request, in one protocol.
type exchanger interface {
	// Begin writes the head of an answer whose body follows. The header is names and values in turn.
	Begin(status int, header ...string)
	// Body writes a part of the body. It fails when the client does not want it any more.
	Body(b []byte) error
	// End ends the body.
	End()
	// Gone is closed when the client has given the request up.
	Gone() <-chan struct{}
	// Cancelled reports whether the client of HTTP/2 has reset the request's stream. If it did so after the answer was written, the
	// answer came too late for it.
	Cancelled() bool
}

// GivenUp reports whether the client of HTTP/2 has given the request up. One of HTTP/1.1 cannot be asked while its connection is to
// be used again: false.
func (c *Call) GivenUp() bool {
	if _, ok := c.exchanger.(*stream); !ok {
		return false
	}
	select {
	case <-c.Gone():
		return true
	default:
		return false
	}
}

// Answer answers with a status and no body.
func (c *Call) Answer(status int, header ...string) {
	c.Begin(status, append(slices.Clone(header), "Content-Length", "0")...)
	c.End()
}

// Echo answers with a status, and repeats the request: its path and body, and its headers, in the body and in headers of the answer.
func (c *Call) Echo(status int) {
	text := c.Path + "\n" + string(c.Payload) + "\n" + strings.ReplaceAll(c.Path, "/", `\/`)
	for name, values := range c.Header {
		text += "\n" + name + ": " + strings.Join(values, ", ")
	}
	c.Begin(status, "Content-Type", "text/plain", "Location", c.Path, "Apns-Id", c.Path)
	_ = c.Body([]byte(text))
	c.End()
}

// Hang waits until the client gives up.
func (c *Call) Hang() {
	select {
	case <-c.Gone():
	case <-c.ended:
	}
}

// Reset breaks the connection off.
func (c *Call) Reset() {
	Reset(c.raw)
}

// Reset breaks a connection off, so that the other end is told that it was reset.
func Reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.Close()
}

// Close ends the connection.
func (c *Call) Close() { _ = c.raw.Close() }

// GoAway tells an HTTP/2 client that the connection ends, and which stream was the last that is processed: the last one so
// far, or, if this one is not processed, the one before it. Later ones are not looked at any more.
func (c *Call) GoAway(processed bool) { c.exchanger.(*stream).goAway(processed, 0) }

// GoAwayFor is GoAway with the code of an error.
func (c *Call) GoAwayFor(processed bool, code uint32) { c.exchanger.(*stream).goAway(processed, code) }

// Alert breaks TLS off by a fatal alert, which is not encrypted and so is itself an error for the client.
func (c *Call) Alert() { _, _ = c.raw.Write([]byte{21, 3, 3, 0, 2, 2, 40}); c.Close() }

// Refuse resets the stream of an HTTP/2 client with the code.
func (c *Call) Refuse(code uint32) { c.exchanger.(*stream).reset(code) }

// Limit tells an HTTP/2 client how many streams its connection may have from now on.
func (c *Call) Limit(streams uint32) {
	x := c.exchanger.(*stream).session
	x.mu.Lock()
	defer x.mu.Unlock()
	_ = x.framer.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: streams})
}

// exchange is a request in HTTP/1.1.
type exchange struct {
	conn   net.Conn
	in     *bufio.Reader
	body   bool // has a length that is not known
	closed bool // after this request
}

func (x *exchange) Begin(status int, header ...string) {
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	x.body = true
	for i := 0; i+1 < len(header); i += 2 {
		fmt.Fprintf(&b, "%s: %s\r\n", header[i], header[i+1])
		x.body = x.body && !strings.EqualFold(header[i], "Content-Length")
	}
	if x.body {
		b.WriteString("Transfer-Encoding: chunked\r\n")
	}
	b.WriteString("\r\n")
	_, _ = x.conn.Write([]byte(b.String()))
}

func (x *exchange) Body(b []byte) error {
	if x.body {
		b = fmt.Appendf(nil, "%x\r\n%s\r\n", len(b), b)
	}
	_, err := x.conn.Write(b)
	return err
}

func (x *exchange) End() {
	if x.body {
		_, _ = x.conn.Write([]byte("0\r\n\r\n"))
	}
}

func (x *exchange) Cancelled() bool { return false }

func (x *exchange) Gone() <-chan struct{} {
	x.closed = true
	gone := make(chan struct{})
	go func() {
		_, _ = x.in.Peek(1) // a client that waits for an answer sends nothing
		close(gone)
	}()
	return gone
}
