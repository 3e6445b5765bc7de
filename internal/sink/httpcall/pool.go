package httpcall

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/http2"
)

// pool is a few connections of HTTP/2. Each takes no more requests than the destination allows at the moment. When a destination lowers
// its limit, net/http opens more connections, and it assumes a hundred requests on a new connection until it learns the limit. Here a new
// connection takes one request until that is answered, and callers beyond the limits wait.
//
// A request is written once more, on another connection, where the destination has certainly not processed it: its stream
// was refused, or the destination went away and named a last stream before it.
type pool struct {
	transport *http.Transport
	scheme    string
	address   string // host:port
	size      int
	resent    *atomic.Uint64
	changed   atomic.Pointer[chan struct{}] // closed when a connection may take more, or has ended

	mu      sync.Mutex
	conns   []*pooled
	dialled int // being opened
	ended   bool
}

// pooled is a connection. Its fields are guarded by the pool's lock.
type pooled struct {
	*http.ClientConn
	users   int
	warm    bool // a request has been answered, so the destination has told its limit
	silent  int  // requests in a row that got no answer in time
	retired bool // takes no more requests, and is closed after the last
	// starting is the request whose header is being written, nil for none. A connection starts one at a time: net/http counts
	// requests that have not begun among those in flight, and if the limit is lowered below their number, each waits for
	// the others for ever.
	starting *start
}

// start stands for a request that has a place on a connection.
type start struct{ written atomic.Bool }

// errBusy is why a request got no connection.
var errBusy = errors.New("all connections were in use, and no other could be opened in time")

// mute is how many requests in a row a connection may leave unanswered.
const mute = 3

func newPool(transport *http.Transport, scheme, address string, size int, resent *atomic.Uint64) *pool {
	transport.Protocols = new(http.Protocols)
	transport.Protocols.SetHTTP2(true)
	p := &pool{transport: transport, scheme: scheme, address: address, size: size, resent: resent}
	none := make(chan struct{})
	p.changed.Store(&none)
	return p
}

// signal wakes who waits for a connection. It takes no lock, since connections call it while they are asked.
func (p *pool) signal() {
	next := make(chan struct{})
	close(*p.changed.Swap(&next))
}

// do sends the request. release is to be called once the answer has been read. Without an answer, inDoubt reports whether the
// destination may have processed the request.
func (p *pool) do(req *http.Request) (resp *http.Response, release func(retire bool), inDoubt bool, err error) {
	for again := false; ; again = true {
		c, begun, err := p.acquire(req.Context())
		if err != nil {
			return nil, nil, false, err
		}
		hooks := &httptrace.ClientTrace{WroteHeaders: func() { begun.written.Store(true); p.started(c, begun) }}
		resp, err := c.RoundTrip(req.WithContext(httptrace.WithClientTrace(req.Context(), hooks)))
		p.started(c, begun)
		if err == nil {
			return resp, func(retire bool) { p.leave(c, answered, retire) }, false, nil
		}
		how := failed
		if errors.Is(req.Context().Err(), context.DeadlineExceeded) {
			how = unheard
		}
		p.leave(c, how, false)
		unprocessed := notProcessed(err)
		if !unprocessed || again || req.Context().Err() != nil {
			return nil, nil, begun.written.Load() && !unprocessed, err
		}
		if begun.written.Load() {
			p.resent.Add(1)
		}
		if req.GetBody != nil {
			if req.Body, err = req.GetBody(); err != nil {
				return nil, nil, false, err
			}
		}
	}
}

// notProcessed reports whether the destination has certainly not processed a request that ended with err. Two of these errors
// have no name outside of net/http.
func notProcessed(err error) bool {
	var stream http2.StreamError
	if errors.As(err, &stream) {
		return stream.Code == http2.ErrCodeRefusedStream
	}
	switch err.Error() {
	case "http2: client conn not usable", "http2: Transport received Server's graceful shutdown GOAWAY":
		return true
	}
	return false
}

// acquire returns a connection that will take one request more. It waits for two thirds of the time that there is: a request that is
// written later may be processed, and its answer come too late.
func (p *pool) acquire(caller context.Context) (*pooled, *start, error) {
	begun, ctx := &start{}, caller
	if end, ok := caller.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(caller, time.Until(end)*2/3)
		defer cancel()
	}
	for {
		changed := *p.changed.Load() // before looking: what changes from now on is not missed
		c, dial := p.choose(begun)
		if c != nil {
			return c, begun, nil
		}
		if dial {
			if err := p.dial(ctx); err != nil {
				return nil, nil, err
			}
			continue
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, nil, cmp.Or(caller.Err(), errBusy)
		}
	}
}

// started is called when the header of a request was written, or will not be.
func (p *pool) started(c *pooled, begun *start) {
	p.mu.Lock()
	first := c.starting == begun
	if first {
		c.starting = nil
	}
	p.mu.Unlock()
	if first {
		p.signal()
	}
}

// choose reserves a request on the connection with the most room; dial reports whether another one may be opened.
func (p *pool) choose(begun *start) (c *pooled, dial bool) {
	var ended []*pooled
	defer func() {
		for _, c := range ended {
			_ = c.Close()
		}
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns = slices.DeleteFunc(p.conns, func(c *pooled) bool {
		// A destination that has gone away (GOAWAY) may leave the connection open, but takes no request on it.
		over := c.Err() != nil || c.users == 0 && c.InFlight() == 0 && c.Available() == 0
		if over {
			ended = append(ended, c)
		}
		return over
	})
	best := 0
	for _, candidate := range p.conns {
		if n := candidate.Available(); n > best && candidate.starting == nil && (candidate.warm || candidate.users == 0) {
			c, best = candidate, n
		}
	}
	if c != nil && c.Reserve() == nil {
		c.users++
		c.starting = begun
		return c, false
	}
	if len(p.conns)+p.dialled >= p.size {
		return nil, false
	}
	p.dialled++
	return nil, true
}

func (p *pool) dial(ctx context.Context) error {
	conn, err := p.transport.NewClientConn(ctx, p.scheme, p.address)
	p.mu.Lock()
	p.dialled--
	if err == nil {
		conn.SetStateHook(func(*http.ClientConn) { p.signal() })
		p.conns = append(p.conns, &pooled{ClientConn: conn})
	}
	p.mu.Unlock()
	p.signal()
	return err
}

// ending is how a request ended.
type ending uint8

const (
	answered ending = iota
	unheard         // no answer in time
	failed
)

// leave is called when a request on the connection has ended; retire takes the connection out of use.
func (p *pool) leave(c *pooled, how ending, retire bool) {
	p.mu.Lock()
	c.users--
	switch how {
	case answered:
		c.warm, c.silent = true, 0
	case unheard:
		c.silent++
	}
	c.retired = c.retired || retire || c.silent >= mute || p.ended
	over := c.retired && c.users == 0
	if c.retired {
		p.conns = slices.DeleteFunc(p.conns, func(o *pooled) bool { return o == c })
	}
	p.mu.Unlock()
	if over {
		_ = c.Close()
	}
	p.signal()
}

// close closes the connections, those in use and those that are being opened after their last request.
func (p *pool) close() {
	p.mu.Lock()
	conns := p.conns
	p.conns, p.ended = nil, true
	idle := slices.DeleteFunc(slices.Clone(conns), func(c *pooled) bool { return c.users > 0 })
	p.mu.Unlock()
	for _, c := range idle {
		_ = c.Close()
	}
}
