package smtp

import (
	"slices"
	"sync"
	"time"
)

// Bounds on the use of a connection: later, the server or a firewall may have ended it.
const (
	maxIdle     = 30 * time.Second // without a message
	maxAge      = 5 * time.Minute
	maxMessages = 100
)

// pool has the idle connections. With those in use, they are at most as many as messages are sent at once, since a connection takes one
// after the other. The one that was used last is used next, so that surplus ones get old. Old ones are closed when one is needed.
//
// Safe for concurrent use. A connection that was taken belongs to the caller.
type pool struct {
	mu    sync.Mutex
	idle  []*conn
	ended bool
}

// take returns an idle connection; nil if there is none.
func (p *pool) take(now time.Time) (c *conn) {
	p.mu.Lock()
	var old []*conn
	p.idle = slices.DeleteFunc(p.idle, func(c *conn) bool {
		over := c.done(now)
		if over {
			old = append(old, c)
		}
		return over
	})
	if last := len(p.idle) - 1; last >= 0 {
		c, p.idle = p.idle[last], p.idle[:last]
	}
	p.mu.Unlock()
	closeAll(old)
	return c
}

// put gives a connection back, or closes it.
func (p *pool) put(c *conn, now time.Time) {
	p.mu.Lock()
	keep := !p.ended && !c.done(now)
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.close()
	}
}

// done reports whether a connection has served its time.
func (c *conn) done(now time.Time) bool {
	return c.broken || now.Sub(c.used) >= maxIdle || now.Sub(c.born) >= maxAge || c.messages >= maxMessages
}

// Close closes the idle connections, and those in use after use.
func (p *pool) Close() {
	p.mu.Lock()
	old := p.idle
	p.idle, p.ended = nil, true
	p.mu.Unlock()
	closeAll(old)
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.close()
	}
}
