package app

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/progress"
)

// newProgress needs the pacer and the consumer.
func (d *Daemon) newProgress() (*progress.Tracker, error) {
	return progress.New(progress.Options{
		Daemon: daemonName(), Work: work{d.pacer, d.consumer}, Store: d.parts.Catalog, Snapshot: d.parts.Catalog.Snapshot,
		Board:   progress.NewRedisBoard(d.parts.Redis.Master(0), d.parts.KeyPrefix),
		Windows: d.glances.windows, Logger: d.log, Registerer: d.parts.Registry,
	})
}

// work is what this daemon does, as two of its parts know it.
type work struct {
	*pacer.Pacer
	consumer *consumer.Consumer
}

func (w work) Backlog() delivery.LanesBacklog { return w.consumer.Backlog() }

// glances reads windows for the gauges of quotas and remembers what they said, so that forecasts need not ask again.
type glances struct {
	limits.Glancer
	last atomic.Pointer[glance]
}

type glance struct {
	windows []delivery.WindowState
	at      time.Time
}

// Glance implements limits.Glancer.
func (g *glances) Glance(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, error) {
	windows, err := g.Glancer.Glance(ctx, quotas)
	g.last.Store(&glance{windows, time.Now()})
	return windows, err
}

// glanceAge is how old windows may be for a forecast.
const glanceAge = 5 * time.Second

func (g *glances) windows() []delivery.WindowState {
	if last := g.last.Load(); last != nil && time.Since(last.at) < glanceAge {
		return last.windows
	}
	return nil
}

// daemonName tells daemons apart on the board they share.
func daemonName() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	return hex.EncodeToString(id[:])
}
