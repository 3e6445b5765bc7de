package pacer

import (
	"context"

	"github.com/pacer/pacer/internal/delivery"
)

// maxUnsent bounds what is remembered of units that were not sent; a round of the sweep hands them back.
const maxUnsent = 4096

// unsend notes units whose slots have passed without a job being sent. The slots are gone, but the windows of the quotas
// get the units back: a month's quota should not pay for a stalled processor.
func (p *Pacer) unsend(parts []delivery.Grant) {
	for _, part := range parts {
		if n := len(p.unsent); n > 0 && sameTake(&p.unsent[n-1], &part) {
			p.unsent[n-1].Units += part.Units
		} else if n < maxUnsent {
			p.unsent = append(p.unsent, part)
		}
	}
}

// sameTake tells whether two grants came from one ask.
func sameTake(a, b *delivery.Grant) bool {
	return a.GrantedAt == b.GrantedAt && a.From.Campaign == b.From.Campaign && a.From.Shard == b.From.Shard &&
		a.From.Incarnation == b.From.Incarnation
}

// returnUnsent hands back what was not sent since the last call.
func (p *Pacer) returnUnsent() {
	if len(p.unsent) == 0 {
		return
	}
	parts := p.unsent
	p.unsent = nil
	base := context.WithoutCancel(p.sendCtx)
	p.running.Go(func() {
		ctx, cancel := context.WithTimeout(base, takeTimeout)
		defer cancel()
		if err := p.opt.Limiter.Refund(ctx, parts); err != nil {
			p.log.Debug("units that were not sent count as if they were", "error", err)
		}
	})
}
