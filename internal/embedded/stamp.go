package embedded

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// maxStampDelay bounds what is believed: a stamp from further back is one that the wall clock has stepped over.
const maxStampDelay = time.Second

// stampedListener hands out connections that know when the kernel got what was last read from them.
//
// The receiver shares its process, and often a busy machine, with everything that the demo runs. Between the arrival of
// a request and the moment its handler gets to look at the clock there may be milliseconds in which others ran, and a
// stream that was even would look bunched. The kernel's time of arrival has nothing of this.
type stampedListener struct{ net.Listener }

// Stamped makes a listener whose requests ArrivedAt can date, in a server whose ConnContext is WithConn.
func Stamped(l net.Listener) net.Listener { return stampedListener{l} }

func (l stampedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err // a net.Listener hands on the errors of the one it wraps
	}
	return newStampedConn(conn), nil
}

// stampedConn is a connection whose reads note how long ago the kernel had the last byte that they return.
type stampedConn struct {
	net.Conn
	stamps stamper
	at     atomic.Pointer[time.Time] // nil: not known
}

// note keeps the arrival time of the bytes just read, given as wall-clock time.
func (c *stampedConn) note(arrived, now time.Time) {
	delay := now.Round(0).Sub(arrived) // wall clock against wall clock
	if delay < 0 || delay > maxStampDelay {
		delay = 0
	}
	at := now.Add(-delay) // on the monotonic clock again
	c.at.Store(&at)
}

type connKey struct{}

// WithConn lets handlers find the connection of their request.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// ArrivedAt is when the kernel had the request, or now where it does not say.
func ArrivedAt(req *http.Request, now time.Time) time.Time {
	conn, ok := req.Context().Value(connKey{}).(*stampedConn)
	if !ok {
		return now
	}
	at := conn.at.Load()
	if at == nil || now.Sub(*at) > maxStampDelay {
		return now
	}
	return *at
}
