package requeue

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// Pins returns the lanes of campaigns. The catalog implements it: it chooses lanes for campaigns that have none and
// stores them for every daemon. A pin to a lane that is to be avoided is replaced.
type Pins interface {
	Pin(ctx context.Context, campaigns []string, lanes int, avoid []int) (map[string]int, error)
}

const (
	pinTTL      = 2 * time.Second // how long the answer of Pins is used, if the campaign's pin is not known by then
	pinTimeout  = 2 * time.Second // Pins needs five round trips for new campaigns
	maxKnownPin = 16_384          // campaigns remembered
)

// pinCache finds the lanes of campaigns. Most are known: current is the pin that every daemon sees. Pins is asked once
// for all others of a batch, and its answers are remembered until current can have them. While Pins fails, a campaign gets
// the last lane that was known, or else a hash of it, which is the same on every daemon; a job in the wrong lane is still
// processed correctly, only spread less evenly. Safe for concurrent use.
type pinCache struct {
	pins      Pins                      // nil: none
	current   func(campaign string) int // delivery.NoLane if the campaign has none; nil: none has
	lanes     int
	logger    *slog.Logger
	fallbacks prometheus.Counter

	outage retry.Outage
	failed atomic.Pointer[time.Time] // when Pins last failed; nil if it works

	mu    sync.Mutex
	known map[string]knownPin
}

type knownPin struct {
	lane  int
	until time.Time
}

func newPinCache(opts *Options, fallbacks prometheus.Counter) *pinCache {
	return &pinCache{
		pins: opts.Pins, current: opts.Pinned, lanes: opts.Topics.Lanes, logger: opts.Logger, fallbacks: fallbacks,
		known: make(map[string]knownPin),
	}
}

// find returns the lane of each campaign: in [0, lanes), and none of those to avoid unless that is all of them.
func (c *pinCache) find(ctx context.Context, campaigns []string, avoid []int) map[string]int {
	now := time.Now()
	found := make(map[string]int, len(campaigns))
	var unknown []string
	for _, id := range campaigns {
		if lane, ok := c.lookUp(id, avoid, now); ok {
			found[id] = lane
		} else {
			unknown = append(unknown, id)
		}
	}
	if len(unknown) == 0 {
		return found
	}
	pinned := c.ask(ctx, unknown, avoid, now)
	for _, id := range unknown {
		lane, ok := pinned[id]
		if !ok {
			lane = c.fallback(id, avoid)
		}
		found[id] = lane
	}
	return found
}

// knows reports whether the lane of a campaign is known.
func (c *pinCache) knows(campaign string, now time.Time) bool {
	_, ok := c.lookUp(campaign, nil, now)
	return ok
}

// lookUp returns the pin of a campaign, if one is known that is not to be avoided.
func (c *pinCache) lookUp(campaign string, avoid []int, now time.Time) (lane int, ok bool) {
	if c.current != nil {
		lane = c.current(campaign)
		if lane != delivery.NoLane && !slices.Contains(avoid, c.inRange(lane)) {
			return c.inRange(lane), true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	pin, ok := c.known[campaign]
	return pin.lane, ok && now.Before(pin.until) && !slices.Contains(avoid, pin.lane)
}

func (c *pinCache) inRange(lane int) int { return ((lane % c.lanes) + c.lanes) % c.lanes }

// ask asks Pins; without an answer it returns nil.
func (c *pinCache) ask(ctx context.Context, campaigns []string, avoid []int, now time.Time) map[string]int {
	failed := c.failed.Load()
	if c.pins == nil || failed != nil && now.Sub(*failed) < pinTTL {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	pins, err := c.pins.Pin(asking, campaigns, c.lanes, avoid)
	if err != nil {
		if ctx.Err() == nil {
			c.failed.Store(&now)
			if c.outage.Failed() {
				c.logger.Warn("lanes cannot be looked up; campaigns without a known one get one by hash", "error", err)
			}
		}
		return nil
	}
	c.failed.Store(nil)
	if _, over := c.outage.Worked(); over {
		c.logger.Info("lanes can be looked up again")
	}
	for id, lane := range pins {
		pins[id] = c.inRange(lane)
	}
	c.remember(pins, now)
	return pins
}

// fallback returns a lane without Pins.
func (c *pinCache) fallback(campaign string, avoid []int) int {
	if c.pins != nil {
		c.fallbacks.Inc()
	}
	c.mu.Lock()
	pin, ok := c.known[campaign]
	c.mu.Unlock()
	if ok && !slices.Contains(avoid, pin.lane) {
		return pin.lane
	}
	return without(avoid, broker.HashPartition(campaign, c.lanes), c.lanes)
}

// without returns the first of n partitions, from id on, that is not to be avoided; id if all are.
func without(avoid []int, id, n int) int {
	for k := range n {
		if next := (id + k) % n; !slices.Contains(avoid, next) {
			return next
		}
	}
	return id
}

func (c *pinCache) remember(pins map[string]int, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known)+len(pins) > maxKnownPin {
		for id, k := range c.known {
			if now.After(k.until) {
				delete(c.known, id)
			}
		}
		if len(c.known)+len(pins) > maxKnownPin {
			clear(c.known)
		}
	}
	for id, lane := range pins {
		c.known[id] = knownPin{lane: lane, until: now.Add(pinTTL)}
	}
}
