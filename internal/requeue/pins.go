package requeue

import (
	"context"
	"hash/fnv"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Pins says which lane a campaign's jobs go to. The catalog implements it: it picks a lane for a campaign that
// has none and remembers it for every daemon.
type Pins interface {
	Pin(ctx context.Context, campaign string, lanes int) (lane int, err error)
}

const (
	pinTTL      = 2 * time.Second // how long a pin is used without asking again
	pinTimeout  = 500 * time.Millisecond
	maxKnownPin = 16_384 // campaigns remembered
)

// pinCache answers from memory for pinTTL, so that a lookup is not paid per job. While Pins fails it answers
// with the last lane it knew, or else with a hash of the campaign, which is the same on every daemon; a job in
// the wrong lane is handled right, only less evenly. Safe for concurrent use.
type pinCache struct {
	pins      Pins
	lanes     int
	logger    *slog.Logger
	fallbacks prometheus.Counter

	mu     sync.Mutex
	known  map[string]knownPin
	failed time.Time // when Pins failed last; zero: it answers
}

type knownPin struct {
	lane  int
	until time.Time
}

func newPinCache(pins Pins, lanes int, logger *slog.Logger, fallbacks prometheus.Counter) *pinCache {
	return &pinCache{pins: pins, lanes: lanes, logger: logger, fallbacks: fallbacks, known: make(map[string]knownPin)}
}

// lane returns the lane of the campaign, in [0, lanes).
func (c *pinCache) lane(ctx context.Context, campaign string) int {
	now := time.Now()
	c.mu.Lock()
	pin, ok := c.known[campaign]
	down := !c.failed.IsZero() && now.Sub(c.failed) < pinTTL
	c.mu.Unlock()
	if ok && now.Before(pin.until) {
		return pin.lane
	}
	if c.pins == nil {
		return hashPartition(campaign, c.lanes)
	}
	if down {
		return c.fallback(campaign, pin, ok)
	}

	asking, cancel := context.WithTimeout(ctx, pinTimeout)
	lane, err := c.pins.Pin(asking, campaign, c.lanes)
	cancel()
	if err != nil {
		if ctx.Err() == nil {
			c.outage(now, err)
		}
		return c.fallback(campaign, pin, ok)
	}
	lane = ((lane % c.lanes) + c.lanes) % c.lanes
	c.remember(campaign, knownPin{lane: lane, until: now.Add(pinTTL)}, now)
	return lane
}

func (c *pinCache) fallback(campaign string, pin knownPin, known bool) int {
	c.fallbacks.Inc()
	if known {
		return pin.lane
	}
	return hashPartition(campaign, c.lanes)
}

func (c *pinCache) outage(now time.Time, err error) {
	c.mu.Lock()
	first := c.failed.IsZero()
	c.failed = now
	c.mu.Unlock()
	if first {
		c.logger.Warn("lanes cannot be looked up; campaigns without a known one get one by hash", "error", err)
	}
}

func (c *pinCache) remember(campaign string, pin knownPin, now time.Time) {
	c.mu.Lock()
	recovered := !c.failed.IsZero()
	c.failed = time.Time{}
	if len(c.known) >= maxKnownPin {
		for id, k := range c.known {
			if now.After(k.until) {
				delete(c.known, id)
			}
		}
		if len(c.known) >= maxKnownPin {
			clear(c.known)
		}
	}
	c.known[campaign] = pin
	c.mu.Unlock()
	if recovered {
		c.logger.Info("lanes can be looked up again")
	}
}

// hashPartition spreads keys over n partitions; every daemon gets the same answer. FNV-1a, 64 bits.
func hashPartition(key string, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails, by its own documentation
	return int(h.Sum64() % uint64(n))
}
