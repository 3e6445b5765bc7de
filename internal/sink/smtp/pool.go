package smtp

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

const (
	keepEvery = 10 * time.Second // idle connections are looked at
	maxIdle   = 30 * time.Second // for which a connection is kept without a message: later, the server or a firewall may have ended it
)

// pool has the connections: at most as many as messages may be sent at once, since a connection takes one after the other. The one that
// was used last is used next, so that surplus ones get old.
//
// Safe for concurrent use. A lent connection belongs to its borrower and holds a slot. Idle connections hold none, and are at most as
// many as the free slots.
type pool struct {
	slots       chan struct{}
	maxAge      time.Duration // 0: any
	maxMessages int           // 0: any

	mu    sync.Mutex
	idle  []*conn
	epoch int // connections of an earlier one are not used any more
	ended bool
}

func newPool(size int, maxAge time.Duration, maxMessages int) *pool {
	return &pool{slots: make(chan struct{}, size), maxAge: maxAge, maxMessages: maxMessages}
}

// enter waits for a slot. leave gives it back.
func (p *pool) enter(ctx context.Context) error {
	select {
	case p.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pool) leave() { <-p.slots }

// take returns an idle connection; nil if there is none. The caller holds a slot.
func (p *pool) take(now time.Time) *conn {
	p.mu.Lock()
	var old []*conn
	var c *conn
	for c == nil && len(p.idle) > 0 {
		last := p.idle[len(p.idle)-1]
		p.idle = p.idle[:len(p.idle)-1]
		if p.done(last, now) {
			old = append(old, last)
		} else {
			c = last
		}
	}
	p.mu.Unlock()
	closeAll(old)
	return c
}

// now returns the epoch of connections that are made now.
func (p *pool) now() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.epoch
}

// put gives a connection back, or closes it. The caller holds a slot until then.
func (p *pool) put(c *conn, now time.Time) {
	p.mu.Lock()
	keep := !p.ended && !p.done(c, now)
	if keep {
		p.idle = append(p.idle, c)
	}
	p.mu.Unlock()
	if !keep {
		c.close()
	}
}

// done reports whether a connection has served its time.
func (p *pool) done(c *conn, now time.Time) bool {
	return c.broken || c.epoch != p.epoch || now.Sub(c.used) >= maxIdle || p.maxAge > 0 && now.Sub(c.born) >= p.maxAge ||
		p.maxMessages > 0 && c.messages >= p.maxMessages
}

// renew has other connections made. Those in use are closed after use.
func (p *pool) renew() {
	p.mu.Lock()
	old := p.idle
	p.idle = nil
	p.epoch++
	p.mu.Unlock()
	closeAll(old)
}

// end closes the idle connections, and those in use after use.
func (p *pool) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.renew()
}

// keep closes idle connections that have served their time, until ctx is cancelled.
func (p *pool) keep(ctx context.Context) {
	retry.Every(ctx, keepEvery, func(now time.Time) {
		p.mu.Lock()
		var old []*conn
		p.idle = slices.DeleteFunc(p.idle, func(c *conn) bool {
			over := p.done(c, now)
			if over {
				old = append(old, c)
			}
			return over
		})
		p.mu.Unlock()
		closeAll(old)
	})
}

func closeAll(conns []*conn) {
	for _, c := range conns {
		c.close()
	}
}
