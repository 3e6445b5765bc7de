package consumer

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/retry"
)

// heart is the heartbeat of a reader, or of the goroutine that commits. It beats when a step begins that ends by itself, such as a
// fetch. It rests while its owner waits for something that may take any time: jobs, their time, room or memory.
type heart struct {
	name, place string

	mu    sync.Mutex
	at    time.Time // of the last beat; zero while it rests
	doing string    // what the step waits for
	told  bool      // that it stands still
}

// beat records that a step begins.
func (h *heart) beat(doing string) {
	now := time.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at, h.doing = now, doing
}

// rest records that no progress is due.
func (h *heart) rest() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.at = time.Time{}
}

// idle returns for how long the step lasts at now, and what it waits for; working is false while it rests.
func (h *heart) idle(now time.Time) (idle time.Duration, doing string, working bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.at.IsZero() {
		return 0, "", false
	}
	return now.Sub(h.at), h.doing, true
}

// labelGroup is the label value for the goroutine that commits.
const labelGroup = "group"

// heartbeats are those of all readers. Kafka's group does not notice a daemon whose work is stuck while the group's heartbeats
// continue, and its partitions would wait for ever. Safe for concurrent use. No lock of a partition is taken, so a deadlock there is
// noticed.
type heartbeats struct {
	log     *slog.Logger
	stalled *prometheus.GaugeVec // place
	bound   time.Duration        // of one step

	mu     sync.Mutex
	hearts map[*heart]bool
}

// begin adds a heart, until end.
func (b *heartbeats) begin(h *heart, name, place string) (end func()) {
	h.name, h.place = name, place
	h.beat("its first step")
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hearts[h] = true
	return func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.hearts, h)
		if h.told {
			h.told = false
			b.stalled.WithLabelValues(h.place).Dec()
		}
	}
}

// looksWithin is the number of looks within the bound.
const looksWithin = 8

// run looks periodically until ctx ends.
func (b *heartbeats) run(ctx context.Context) {
	last := time.Now()
	retry.Every(ctx, b.bound/looksWithin, func(time.Time) {
		now := time.Now() // a tick may be old
		if now.Sub(last) < b.bound/2 {
			b.look(now)
		} // else the process was suspended, or had no CPU: nothing could beat
		last = now
	})
}

// look logs and shows which hearts stand still at now, and which beat again.
func (b *heartbeats) look(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for h := range b.hearts {
		idle, doing, _ := h.idle(now)
		switch still := idle >= b.bound; {
		case still == h.told:
		case still:
			h.told = true
			b.stalled.WithLabelValues(h.place).Inc()
			b.log.Error("a partition makes no progress though it could; restart this process if that does not pass",
				"partition", h.name, "place", h.place, "waits_for", doing, "for", idle.Round(time.Millisecond))
		default:
			h.told = false
			b.stalled.WithLabelValues(h.place).Dec()
			b.log.Info("a partition that stood still moves on", "partition", h.name)
		}
	}
}

// still returns, at now, what stands still, and by how much it exceeds the bound: the goroutine that commits, or all readers that do
// not rest. It is "" while one of them works.
func (b *heartbeats) still(now time.Time) (why string, over time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	works := false
	for h := range b.hearts {
		idle, doing, working := h.idle(now)
		switch {
		case working && idle >= b.bound:
			if why == "" || h.place == labelGroup {
				why = fmt.Sprintf("%s has stood still for %s, waiting for %s", h.name, idle.Round(time.Second), doing)
				over = idle - b.bound
			}
			if h.place == labelGroup {
				return why, over
			}
		case working && h.place != labelGroup:
			works = true
		}
	}
	if works {
		return "", 0
	}
	return why, over
}

// Stalled describes in one line what makes no progress although it could, and by how much it exceeds Options.Watchdog. It is ""
// while some reader works.
func (c *Consumer) Stalled() (why string, over time.Duration) { return c.hearts.still(time.Now()) }
