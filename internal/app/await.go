package app

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

const (
	// awaitEvery is the pause between two tries, and firstPatience how long the first may take: what does not answer is named within that.
	awaitEvery    = 100 * time.Millisecond
	firstPatience = time.Second
)

// answered are the services that have answered since the start.
type answered struct{ redis, kafka atomic.Bool }

// await waits until the catalog is loaded, Redis and Kafka have answered, and the topic of the results exists, if one is
// configured: without them no job can be sent. All are asked at once, so that each that does not answer is named at once. It returns
// false if ctx ends first.
func (d *Daemon) await(ctx context.Context) bool {
	var asking sync.WaitGroup
	asking.Go(func() {
		d.ask(ctx, &d.answered.redis, d.limits.Ping, func(err error) { d.log.Warn("redis does not answer; retrying until it does", "error", err) })
	})
	asking.Go(func() {
		d.ask(ctx, &d.answered.kafka, func(ctx context.Context) error {
			_, err := d.parts.Kafka.Cluster(ctx)
			return BrokersFault(err)
		}, func(err error) { d.log.Warn("kafka does not answer; retrying until it does", "error", err) })
	})
	asking.Wait()
	for {
		if d.parts.Catalog.Ready() && (d.results == nil || d.results.Ready()) {
			d.lookForOthers(ctx)
			return ctx.Err() == nil
		}
		if retry.Sleep(ctx, awaitEvery) != nil {
			return false
		}
	}
}

// lookForOthers says if daemons of another installation use the same database.
func (d *Daemon) lookForOthers(ctx context.Context) {
	why, err := d.parts.Others(ctx, d.parts.Catalog.Installations)
	switch {
	case err != nil && ctx.Err() == nil:
		d.log.Warn("whether daemons of another installation use the same database could not be looked up", "error", err)
	case why != "":
		d.log.Error("the database is shared with another installation", "why", why)
	}
}

// ask asks a service until it answers or ctx ends. It tells the first failure.
func (d *Daemon) ask(ctx context.Context, answered *atomic.Bool, ping func(context.Context) error, tell func(error)) {
	var outage retry.Outage
	for {
		call, cancel := ctx, context.CancelFunc(func() {})
		if outage.Failures() == 0 {
			call, cancel = context.WithTimeout(ctx, firstPatience)
		}
		err := ping(call)
		cancel()
		if err == nil {
			answered.Store(true)
			return
		}
		if ctx.Err() != nil {
			return
		}
		if outage.Failed() {
			tell(err)
		}
		if retry.Sleep(ctx, awaitEvery) != nil {
			return
		}
	}
}
