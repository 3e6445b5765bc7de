package consumer

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// blockedProbe is how often refused jobs of ingress are offered without word of room: should it ever get lost, or
	// their campaign begin to use a lane, they wait this long and no longer.
	blockedProbe = 10 * time.Second
	// blockedPause is the least time between two offers of which the first moved nothing.
	blockedPause = 100 * time.Millisecond
	// maxBlockers bounds the campaigns that are remembered to have been warned about.
	maxBlockers = 1024
)

// blocks is what a source of ingress knows of jobs that stay there until they are sent (overflow block). Safe for use by
// several goroutines; the zero value is ready.
type blocks struct {
	mu     sync.Mutex
	onRoom chan struct{} // closed and forgotten at word of room; nil while nobody listens
	waits  bool          // the reader holds refused jobs and reads nothing
}

// listen returns a channel that is closed at the next word of room. Listen before an offer, and no word is missed.
func (b *blocks) listen() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return waitOn(&b.onRoom)
}

// granted is word of room.
func (b *blocks) granted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	signal(&b.onRoom)
}

func (b *blocks) setWaits(is bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waits = is
}

// still tells whether the reader may stand still.
func (b *blocks) still() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waits
}

// unblock offers the refused jobs again, at word of room and now and then, until all are taken. Nothing is read
// meanwhile: they are registered, and charged to the budget, and what comes after them stays in the log.
func (r *ingressReader) unblock(ctx context.Context) error {
	if len(r.refused) == 0 {
		return nil
	}
	r.metrics.blocked.Inc()
	defer r.metrics.blocked.Dec()
	r.src.blocks.setWaits(true)
	defer r.src.blocks.setWaits(false)
	probe := time.NewTicker(blockedProbe)
	defer probe.Stop()
	for {
		select {
		case <-r.room:
		case <-probe.C:
		case <-ctx.Done():
			return ctx.Err()
		}
		before := len(r.refused)
		if err := r.offerOnce(ctx, r.refused); err != nil {
			return err
		}
		switch len(r.refused) {
		case 0:
			return nil
		case before:
			if err := sleep(ctx, blockedPause); err != nil {
				return err
			}
		}
	}
}

// offerOnce offers the jobs, and keeps those that are refused for unblock.
func (r *ingressReader) offerOnce(ctx context.Context, jobs []*delivery.Job) (err error) {
	r.room = r.src.blocks.listen()
	r.refused, err = r.offer(ctx, jobs)
	return err
}

// blockers warns of campaigns that hold up others on their partition, once for each. Safe for use by several goroutines.
type blockers struct {
	log *slog.Logger

	mu   sync.Mutex
	said map[string]bool
}

func newBlockers(log *slog.Logger) *blockers { return &blockers{log: log, said: map[string]bool{}} }

// note looks whether a refused job has company in the partition, which then waits as well.
func (b *blockers) note(at partition, refused *delivery.Job, company ...[]*delivery.Job) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.said[refused.Campaign] || len(b.said) >= maxBlockers {
		return
	}
	for _, jobs := range company {
		for _, j := range jobs {
			if j.Campaign == refused.Campaign {
				continue
			}
			b.said[refused.Campaign] = true
			b.log.Warn("a campaign whose overflow is block holds up others on its partition",
				"campaign", refused.Campaign, "partition", at.String(), "other", j.Campaign,
				"remedy", "give it a topic of its own, or overflow lane")
			return
		}
	}
}
