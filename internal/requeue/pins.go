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
	"github.com/pacer/pacer/internal/retry"
)

// Pins returns the lanes of campaigns, of which each wants a number. The catalog implements it: it chooses lanes for
// campaigns that have too few and stores them for every daemon. If all lanes of a campaign are to be avoided, it gets
// another.
type Pins interface {
	Pin(ctx context.Context, wanted map[string]int, lanes int, avoid []int) (map[string][]int, error)
}

const (
	pinTTL      = 2 * time.Second // how long the answer of Pins is used, if the campaign's pin is not known by then
	pinTimeout  = 2 * time.Second // Pins needs five round trips for new campaigns
	maxKnownPin = 16_384          // campaigns remembered
)

// pinCache finds the lanes of campaigns. Most are known: current are the pins that every daemon sees. Pins is asked once
// for all others of a batch, and for those with fewer lanes than they need; its answers are remembered until current can
// have them. While Pins fails, a campaign gets the last lanes that were known, or else those that follow a hash of it,
// which are the same on every daemon; a job in the wrong lane is still processed correctly, only spread less evenly. Safe
// for concurrent use.
type pinCache struct {
	pins      Pins                        // nil: none
	current   func(campaign string) []int // nil: none has any
	stripes   func(campaign string) int   // how many lanes it needs; nil: one
	lanes     int
	logger    *slog.Logger
	fallbacks prometheus.Counter

	outage retry.Outage
	failed atomic.Pointer[time.Time] // when Pins last failed; nil if it works

	mu    sync.Mutex
	known map[string]knownPins
}

type knownPins struct {
	lanes []int
	until time.Time
}

func newPinCache(opts *Options, fallbacks prometheus.Counter) *pinCache {
	return &pinCache{
		pins: opts.Pins, current: opts.Pinned, stripes: opts.Stripes, lanes: opts.Topics.Lanes, logger: opts.Logger,
		fallbacks: fallbacks, known: make(map[string]knownPins),
	}
}

// find returns the lanes of each campaign, at least one: in [0, lanes), and none of those to avoid unless that is all of
// them.
func (c *pinCache) find(ctx context.Context, campaigns []string, avoid []int) map[string][]int {
	now := time.Now()
	found := make(map[string][]int, len(campaigns))
	wanted := make(map[string]int)
	for _, id := range campaigns {
		lanes, enough := c.lookUp(id, avoid, now)
		if found[id] = lanes; !enough {
			wanted[id] = c.wants(id)
		}
	}
	if len(wanted) == 0 {
		return found
	}
	pinned := c.ask(ctx, wanted, avoid, now)
	for id := range wanted {
		lanes := leaveOut(pinned[id], avoid)
		switch {
		case len(lanes) > 0:
			found[id] = lanes
		case len(found[id]) > 0:
		case len(pinned[id]) > 0:
			found[id] = pinned[id]
		default:
			found[id] = c.fallback(id, avoid)
		}
	}
	return found
}

// wants returns how many lanes a campaign needs.
func (c *pinCache) wants(campaign string) int {
	if c.stripes == nil {
		return 1
	}
	return max(1, min(c.stripes(campaign), c.lanes))
}

// knows reports whether the lanes of a campaign are known, as many as it needs.
func (c *pinCache) knows(campaign string, now time.Time) bool {
	_, enough := c.lookUp(campaign, nil, now)
	return enough
}

// lookUp returns the known lanes of a campaign that are not to be avoided, and whether Pins need not be asked for more.
func (c *pinCache) lookUp(campaign string, avoid []int, now time.Time) (lanes []int, enough bool) {
	all := 0
	if c.current != nil {
		set := c.inRange(c.current(campaign))
		lanes, all = leaveOut(set, avoid), len(set)
	}
	c.mu.Lock()
	pins, asked := c.known[campaign]
	c.mu.Unlock()
	if asked = asked && now.Before(pins.until); asked {
		if set := leaveOut(pins.lanes, avoid); len(set) > len(lanes) {
			lanes = set
		}
	}
	return lanes, len(lanes) > 0 && (asked || all >= c.wants(campaign))
}

// leaveOut returns the lanes that are not to be avoided.
func leaveOut(lanes, avoid []int) []int {
	avoided := func(lane int) bool { return slices.Contains(avoid, lane) }
	if !slices.ContainsFunc(lanes, avoided) {
		return lanes
	}
	return slices.DeleteFunc(slices.Clone(lanes), avoided)
}

// inRange returns lanes in [0, lanes).
func (c *pinCache) inRange(lanes []int) []int {
	if !slices.ContainsFunc(lanes, func(lane int) bool { return lane < 0 || lane >= c.lanes }) {
		return lanes
	}
	lanes = slices.Clone(lanes)
	for i, lane := range lanes {
		lanes[i] = ((lane % c.lanes) + c.lanes) % c.lanes
	}
	slices.Sort(lanes)
	return slices.Compact(lanes)
}

// ask asks Pins; without an answer it returns nil.
func (c *pinCache) ask(ctx context.Context, wanted map[string]int, avoid []int, now time.Time) map[string][]int {
	failed := c.failed.Load()
	if c.pins == nil || failed != nil && now.Sub(*failed) < pinTTL {
		return nil
	}
	asking, cancel := context.WithTimeout(ctx, pinTimeout)
	defer cancel()
	pins, err := c.pins.Pin(asking, wanted, c.lanes, avoid)
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
	for id, lanes := range pins {
		pins[id] = c.inRange(lanes)
	}
	c.remember(pins, now)
	return pins
}

// fallback returns lanes without Pins: those that were known, or else as many as the campaign needs, from its hash on.
func (c *pinCache) fallback(campaign string, avoid []int) []int {
	if c.pins != nil {
		c.fallbacks.Inc()
	}
	c.mu.Lock()
	pins := c.known[campaign]
	c.mu.Unlock()
	if lanes := leaveOut(pins.lanes, avoid); len(lanes) > 0 {
		return lanes
	}
	hash := broker.HashPartition(campaign, c.lanes)
	lanes := make([]int, 0, c.wants(campaign))
	for k := range c.wants(campaign) {
		lanes = append(lanes, (hash+k)%c.lanes)
	}
	if lanes = leaveOut(lanes, avoid); len(lanes) == 0 {
		lanes = []int{without(avoid, hash, c.lanes)}
	}
	slices.Sort(lanes)
	return lanes
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

func (c *pinCache) remember(pins map[string][]int, now time.Time) {
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
	for id, lanes := range pins {
		c.known[id] = knownPins{lanes: lanes, until: now.Add(pinTTL)}
	}
}
