package consumer

import (
	"sync"

	"github.com/pacer/pacer/internal/delivery"
)

// passage tells the janitor how far the lanes and timers of a generation have been dealt with: as far as the broker has
// acknowledged a commit and the positions kept elsewhere have followed. Both are what a next owner may go on from, so
// neither ever points to what was removed. Safe for use by several goroutines; nil does nothing.
type passage struct {
	janitor Janitor

	mu    sync.Mutex
	acked map[partition]int64 // the offsets whose commit was acknowledged
}

// passage begins with the offsets that the group has committed already.
func (g *generation) passage(starts map[partition]start) *passage {
	if g.opt.Janitor == nil {
		return nil
	}
	p := &passage{janitor: g.opt.Janitor, acked: map[partition]int64{}}
	for at, from := range starts {
		if place, _ := g.opt.place(at.topic); place != delivery.FromIngress && from.committed {
			p.acked[at] = from.offset
		}
	}
	return p
}

// acknowledged notes that the broker has acknowledged a commit.
func (p *passage) acknowledged(at partition, offset int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked[at] = offset
}

// kept hears that the position of a lane or a timer is kept elsewhere, or need not be.
func (p *passage) kept(at partition, offset int64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	acked, ok := p.acked[at]
	p.mu.Unlock()
	if ok {
		p.janitor.Passed(at.topic, at.id, min(acked, offset))
	}
}
