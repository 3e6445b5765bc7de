package app

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
)

// catalogLate is how old the catalog may be while PostgreSQL answers: it is read every three seconds or so.
const catalogLate = 10 * time.Second

// storesOf implements view.Sources.Stores. Redis is asked once a second anyhow, and the catalog is read from PostgreSQL; Kafka is asked
// when somebody looks.
func (s *Services) storesOf(watched *stores, snapshot func() *delivery.Snapshot) func(context.Context) []view.Store {
	var kafkaAway atomic.Pointer[time.Time] // since when, as far as somebody has looked; nil: it answers
	return func(ctx context.Context) (list []view.Store) {
		now, away := time.Now(), *watched.away.Load()
		for i, since := range away {
			store := view.Store{Name: "Redis", Up: since.IsZero(), Since: utc(since)}
			if len(away) > 1 {
				store.Name = fmt.Sprintf("Redis, shard %d", i)
			}
			list = append(list, store)
		}
		catalog := view.Store{Name: "PostgreSQL"}
		if read := snapshot(); read != nil {
			if catalog.Up = now.Sub(read.LoadedAt) < catalogLate; !catalog.Up {
				catalog.Since = utc(read.LoadedAt)
			}
		}
		list = append(list, catalog)
		if s.Kafka == nil {
			return list
		}
		if _, err := s.Kafka.Counts(ctx, []string{requeue.DeadTopic(s.Topics.Prefix)}); err == nil {
			kafkaAway.Store(nil)
		} else {
			kafkaAway.CompareAndSwap(nil, &now)
		}
		kafka := view.Store{Name: "Kafka", Up: true}
		if since := kafkaAway.Load(); since != nil {
			kafka.Up, kafka.Since = false, utc(*since)
		}
		return append(list, kafka)
	}
}

// utc returns a time in UTC and whole seconds; nil for the zero time.
func utc(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC().Truncate(time.Second)
	return &at
}
