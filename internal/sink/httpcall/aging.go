package httpcall

import (
	"crypto/tls"
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// agingConn is a connection that is used until an instant, and then replaced, so that the addresses of a destination
// that has moved are looked up again. In HTTP/1.1 it is closed by the first request that ends after that instant. In
// HTTP/2 the first request after it is the last one on it, and net/http closes it when its streams have ended.
type agingConn struct {
	net.Conn
	until  time.Time     // zero: for as long as it works
	closed chan struct{} // closed with it, or when that has begun
	once   sync.Once

	mu    sync.Mutex
	users int // requests that have got it and have not ended; in HTTP/1.1 more than one only while it is handed on
}

func newAging(conn net.Conn, maxAge time.Duration) *agingConn {
	c := &agingConn{Conn: conn, closed: make(chan struct{})}
	if maxAge > 0 {
		c.until = time.Now().Add(lifetime(maxAge))
	}
	return c
}

// answerWait is how long an answer is looked for that came before its request was written whole.
const answerWait = time.Second

// Write reports an error of a request once the connection has been closed, which net/http does when it has read to its end. On an
// error of writing it would give up, and lose the answer of a destination that has refused the request and closed the connection
// before it had read all of it.
func (c *agingConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	if err != nil && c.inUse() {
		select {
		case <-c.closed:
		case <-time.After(answerWait):
		}
	}
	return n, err
}

// SetWriteDeadline is called by TLS alone, before it says that it closes the connection. For that nothing waits.
func (c *agingConn) SetWriteDeadline(t time.Time) error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.SetWriteDeadline(t)
}

// Close implements net.Conn.
func (c *agingConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func (c *agingConn) inUse() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.users > 0
}

// lifetime is how long a connection is used: up to a fifth less than maxAge, so that connections opened together are
// not replaced together.
func lifetime(maxAge time.Duration) time.Duration { return maxAge - rand.N(maxAge/5+1) }

func (c *agingConn) old() bool { return !c.until.IsZero() && time.Now().After(c.until) }

// use is called by a request before it writes.
func (c *agingConn) use() {
	c.mu.Lock()
	c.users++
	c.mu.Unlock()
}

// leave is called when the request has ended. It closes an old connection of HTTP/1.1: one that net/http has handed on
// meanwhile has another user, or is closed before that user writes, whose request then goes to another connection.
func (c *agingConn) leave(whole net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.users--
	if c.users == 0 && c.old() && !isHTTP2(whole) {
		_ = whole.Close()
	}
}

// aging returns the connection below that of a request, which may be one of TLS; nil if connections do not age.
func aging(conn net.Conn) *agingConn {
	for {
		switch c := conn.(type) {
		case *agingConn:
			return c
		case *tls.Conn:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}

func isHTTP2(conn net.Conn) bool {
	c, ok := conn.(*tls.Conn)
	return ok && c.ConnectionState().NegotiatedProtocol == "h2"
}
