package app

import (
	"context"

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

// blocks tells whether a campaign's jobs stay in ingress until they are sent.
func (d *Daemon) blocks(campaign string) bool {
	c := d.parts.Catalog.Snapshot().Campaign(campaign)
	return c != nil && c.Overflow == delivery.OverflowBlock
}

// unpinner lets a campaign whose lane is drained go direct again.
type unpinner struct{ catalog Catalog }

// Drained implements consumer.Lanes.
func (u unpinner) Drained(ctx context.Context, campaign string, lane int) error {
	return u.catalog.Unpin(ctx, campaign, lane)
}
