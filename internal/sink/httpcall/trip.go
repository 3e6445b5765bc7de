package httpcall

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

// trip follows one request through net/http: whether anything of it may have reached the destination, and how often it
// was written.
//
// In HTTP/2, net/http writes a request again, on another connection, if the destination reports that it has not processed it. Either the
// stream was refused (REFUSED_STREAM), or the destination went away and named an earlier last stream (GOAWAY). Such a repeat is no
// duplicate, and belongs to the same slot. A trip allows one; net/http would go on. (It also repeats a stream reset with PROTOCOL_ERROR,
// which a destination must not answer to a request that it has processed.)
//
// In HTTP/1.1 a request goes to another connection only if nothing of it could be written to the first one, which had been kept open too
// long. A request that was written is never repeated: it has no header that marks it as idempotent for net/http.
type trip struct {
	client *Client
	Request
	body   bytes.Reader // of the first try
	hooks  httptrace.ClientTrace
	cancel context.CancelFunc

	written atomic.Bool // the header was written to the connection of this try; by a goroutine of net/http
	again   bool        // the request was written once more
	refused bool        // and was to be written a third time
	reused  bool        // the connection of this try had served another request

	release func(retire bool) // the connection, if it is one of a pool

	whole net.Conn   // of this try
	conn  *agingConn // the same, without TLS
}

// errRefused is the error of a request that would have to be written a third time.
var errRefused = errors.New("the request was sent twice, and processed neither time")

func (t *trip) trace() *httptrace.ClientTrace {
	t.hooks = httptrace.ClientTrace{GotConn: t.gotConn, WroteHeaders: func() { t.written.Store(true) }}
	return &t.hooks
}

// addBody adds the payload to the request. A GET has none, and is not written again by net/http, which repeats a GET that has
// been written if it has no body: it gets an empty one that cannot be read again.
func (t *trip) addBody(req *http.Request) {
	switch {
	case req.Method == http.MethodGet:
		t.Body = nil
		t.body.Reset(nil)
		req.Body = io.NopCloser(&t.body)
	case len(t.Body) == 0:
		req.Body = http.NoBody // an empty body instead of none would be sent chunked, which not every server accepts
	default:
		// net/http recognises a NopCloser around a bytes.Reader as data in memory, and then sends header and body in
		// one write instead of two.
		t.body.Reset(t.Body)
		req.Body, req.ContentLength = io.NopCloser(&t.body), int64(len(t.Body))
		req.GetBody = t.payloadAgain
	}
}

// repeat reports whether the request may be written now, as far as it has been written before.
func (t *trip) repeat() (allowed bool) {
	if !t.written.Swap(false) || !isHTTP2(t.whole) {
		return true // nothing has left this process yet
	}
	if t.again {
		t.refused = true
		return false
	}
	t.again = true
	t.client.Options.Resent.Add(1)
	return true
}

// payloadAgain is the request's GetBody: net/http calls it before it writes the request again.
func (t *trip) payloadAgain() (io.ReadCloser, error) {
	if !t.repeat() {
		return nil, errRefused
	}
	return io.NopCloser(bytes.NewReader(t.Body)), nil
}

// anew returns the request with its payload from the beginning.
func (t *trip) anew(req *http.Request) *http.Request {
	next := *req
	if len(t.Body) > 0 {
		next.Body = io.NopCloser(bytes.NewReader(t.Body))
	}
	return &next
}

// gotConn is called when the request is about to be written to a connection.
func (t *trip) gotConn(info httptrace.GotConnInfo) {
	if !t.repeat() { // without a payload, it is written again without GetBody
		t.cancel() // HTTP/2 looks at its context before it writes
	}
	t.end()
	t.reused, t.whole, t.conn = info.Reused, info.Conn, aging(info.Conn)
	if t.conn == nil {
		return
	}
	t.conn.use()
	if t.conn.old() && isHTTP2(info.Conn) {
		t.Header[keyConnection] = closing // HTTP/2 does not send it, and opens no further stream on this connection
	} else {
		delete(t.Header, keyConnection)
	}
}

var closing = []string{"close"}

// end is called when the answer has been read, or there is none.
func (t *trip) end() {
	if t.conn != nil {
		t.conn.leave(t.whole)
		t.conn = nil
	}
}

// closedIdle reports whether a request was not written because the connection that it got had been closed before. The
// error has no name outside of net/http, which repeats requests after it only if they are idempotent.
func closedIdle(err error) bool {
	return err.Error() == "http: server closed idle connection"
}

// inDoubt reports whether the destination may have processed the request that ended with err and without an answer.
func (t *trip) inDoubt(err error) bool {
	return t.written.Load() && !closedIdle(err)
}
