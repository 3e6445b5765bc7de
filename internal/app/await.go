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
	if why := d.parts.Catalog.Snapshot().Installation.Other(d.parts.Installation()); why != "" {
		d.log.Error("the database is shared with another installation", "why", why)
	}
	return ctx.Err() == nil
}

// missing says what has to be there before a job can be sent, and is not; "" for nothing.
func (d *Daemon) missing() string {
	switch service := d.stores.missing(); {
	case !d.parts.Catalog.Ready():
		return "the catalog is not loaded: is PostgreSQL reachable, and migrated?"
	case d.parts.Topics.Results && !d.relay.Ready():
		return "the topic of the results has not been found: is Kafka reachable, and migrated?"
	case service != "":
		return service + " has not answered yet"
	}
	return ""
}
