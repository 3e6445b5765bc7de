package app

import (
	"context"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

// awaitEvery is the pause between two looks at what is missing.
const awaitEvery = 20 * time.Millisecond

// await waits until the catalog is loaded, Redis and Kafka have answered, and the topic of the results exists, if one is
// configured: without them no job can be sent. It returns false if ctx ends first.
func (d *Daemon) await(ctx context.Context) bool {
	for d.missing() != "" {
		if retry.Sleep(ctx, awaitEvery) != nil {
			return false
		}
	}
	d.lookForOthers(ctx)
	return ctx.Err() == nil
}

// missing says what has to be there before a job can be sent, and is not; "" for nothing.
func (d *Daemon) missing() string {
	switch service := d.stores.missing(); {
	case !d.parts.Catalog.Ready():
		return "the catalog is not loaded: is PostgreSQL reachable, and migrated?"
	case d.results != nil && !d.results.Ready():
		return "the topic of the results has not been found: is Kafka reachable, and migrated?"
	case service != "":
		return service + " has not answered yet"
	}
	return ""
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
