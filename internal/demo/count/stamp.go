package count

import (
	"context"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// maxStampDelay bounds the age of a stamp that is used: an older one means that the wall clock has been stepped.
const maxStampDelay = time.Second

// stampedListener returns connections that know when the kernel received what was last read from them.
//
// The receiver shares its process, and often a busy machine, with everything that the demo runs. Milliseconds may pass
// between the arrival of a request and the moment its handler reads the clock, and an even stream would look bunched.
// The kernel's time of arrival does not contain this delay.
type stampedListener struct{ net.Listener }

// Stamped wraps a listener for use with ArrivedAt, in a server whose ConnContext is WithConn.
func Stamped(l net.Listener) net.Listener { return stampedListener{l} }

func (l stampedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err // a net.Listener passes on the errors of the one it wraps
	}
	return newStampedConn(conn), nil
}

// stampedConn is a connection whose reads record when the kernel received the last byte that they return.
type stampedConn struct {
	net.Conn
	stamps stamper
	at     atomic.Pointer[time.Time] // nil: unknown
}

// note records the arrival time of the bytes just read, given as wall-clock time.
func (c *stampedConn) note(arrived, now time.Time) {
	delay := now.Round(0).Sub(arrived) // wall clock against wall clock
	if delay < 0 || delay > maxStampDelay {
		delay = 0
	}
	at := now.Add(-delay) // on the monotonic clock again
	c.at.Store(&at)
}

type connKey struct{}

// WithConn makes the connection of a request available to its handler.
func WithConn(ctx context.Context, conn net.Conn) context.Context {
	return context.WithValue(ctx, connKey{}, conn)
}

// ArrivedAt returns when the kernel received the request, or now if that is unknown.
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
