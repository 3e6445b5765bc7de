package app

import (
	"context"
	"time"

	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/dedupe"
	"github.com/pacer/pacer/internal/delivery"
)

// Dedupe are the settings of the dedupe ledger, which lives in Parts.Redis; the zero value is no ledger.
type Dedupe struct {
	TTL  time.Duration // how long delivered jobs are remembered
	Open bool          // jobs are sent while the ledger does not answer
}

// newDedupe makes the ledger of delivered jobs, nil where none is kept.
func (d *Daemon) newDedupe() (*dedupe.Ledger, error) {
	set := d.parts.Dedupe
	if set.TTL == 0 {
		return nil, nil
	}
	timeouts := make(map[string]time.Duration, len(d.parts.Sinks))
	for name, e := range d.parts.Sinks {
		timeouts[name] = e.Timeout
	}
	return dedupe.New(dedupe.Options{
		Sinks: d.sinks, Shards: d.parts.Redis, KeyPrefix: d.parts.KeyPrefix, TTL: set.TTL, Open: set.Open, Timeouts: timeouts,
		Known:  func(campaign string) bool { return d.parts.Catalog.Snapshot().Campaign(campaign) != nil },
		Logger: d.parts.Logger, Registerer: d.parts.Registry,
	})
}

// sifting stands between the consumer and whoever takes the jobs where delivered ones are remembered: those are known
// before they wait for a slot.
type sifting struct {
	consumer.Handler
	ledger *dedupe.Ledger
}

// Offer implements consumer.Handler.
func (s sifting) Offer(ctx context.Context, jobs []*delivery.Job) (refused []*delivery.Job, err error) {
	s.ledger.Sift(ctx, jobs)
	return s.Handler.Offer(ctx, jobs)
}
