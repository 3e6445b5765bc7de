package app

import (
	"context"
	"iter"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// newJanitor makes what removes delivered jobs from lanes and timers; nil where they are to be kept.
func (p *Parts) newJanitor(client *kafka.Client) (*requeue.Janitor, error) {
	if p.KeepDelivered {
		return nil, nil
	}
	return requeue.NewJanitor(requeue.JanitorOptions{Client: client, Logger: p.Logger, Registerer: p.Registry})
}

// sweeper is who hears of what will not be read again; nil for nobody.
func (d *Daemon) sweeper() consumer.Janitor {
	if d.janitor == nil {
		return nil
	}
	return d.janitor
}

// blocking lists the campaigns whose jobs stay in ingress until they are sent.
func (d *Daemon) blocking() iter.Seq[string] {
	return func(yield func(string) bool) {
		s := d.parts.Catalog.Snapshot()
		if s == nil {
			return
		}
		for id, c := range s.Campaigns {
			if c.Overflow == delivery.OverflowBlock && !yield(id) {
				return
			}
		}
	}
}

// unpinner lets a campaign whose lane is drained go direct again.
type unpinner struct{ catalog Catalog }

// Drained implements consumer.Lanes.
func (u unpinner) Drained(ctx context.Context, campaign string, lane int) error {
	return u.catalog.Unpin(ctx, campaign, lane)
}

// Pinned implements consumer.Lanes.
func (u unpinner) Pinned(ctx context.Context, age time.Duration) (map[string]int, error) {
	return u.catalog.Pinned(ctx, age)
}
