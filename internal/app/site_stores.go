package app

import (
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

// catalogLate is how old the catalog may be while PostgreSQL answers: it is read every three seconds or so.
const catalogLate = 10 * time.Second

// list returns the services and whether they answer, for those who look. PostgreSQL answers if the catalog was read lately.
func (s *stores) list(snapshot func() *delivery.Snapshot) (list []view.Store) {
	now := time.Now()
	s.mu.Lock()
	away := slices.Clone(s.shards.since)
	s.mu.Unlock()
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
	if s.kafka != nil {
		since := s.KafkaAway()
		list = append(list, view.Store{Name: "Kafka", Up: since.IsZero(), Since: utc(since)})
	}
	return list
}

// utc returns a time in UTC and whole seconds; nil for the zero time.
func utc(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	at = at.UTC().Truncate(time.Second)
	return &at
}
