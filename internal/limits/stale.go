package limits

import (
	"log/slog"
	"sync"
)

const (
	// staleFor is how long the store may hold a newer revision of a row than the catalog before that is logged, and staleGap how
	// long it may go unnoticed meanwhile, in microseconds.
	staleFor = 20 * second
	staleGap = 15 * second
	// maxStale bounds the remembered rows.
	maxStale = 10_000
)

// staleRevision is a row that was asked for with a lower revision than the store holds.
type staleRevision struct {
	kind, id     string // kind is quota or campaign
	have, newest int64
}

// stale holds the rows with a newer revision in the store than in the catalog. Nothing is granted of such a quota, and the rate of such a
// campaign does not act. That passes once the daemon has read the catalog. It does not pass after a restore of the database from a
// backup, until its revisions are raised.
type stale struct {
	log *slog.Logger

	mu   sync.Mutex
	rows map[string]*staleRow // by kind and id; under mu
}

// staleRow is since when a row is stale, by the machine's uptime.
type staleRow struct {
	since, last int64
	said        bool
}

// note notes the stale rows of a take, and logs those that stay stale.
func (s *stale) note(list []staleRevision, now int64) {
	if len(list) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range list {
		row := s.rows[one.kind+" "+one.id]
		if row == nil || now > row.last+staleGap {
			if len(s.rows) >= maxStale {
				clear(s.rows)
			}
			row = &staleRow{since: now}
			s.rows[one.kind+" "+one.id] = row
		}
		if row.last = now; now >= row.since+staleFor && !row.said {
			row.said = true
			s.warn(one)
		}
	}
}

func (s *stale) warn(one staleRevision) {
	effect := "the quota grants nothing"
	if one.kind == "campaign" {
		effect = "the campaign is sent at a rate that is not in the catalog"
	}
	s.log.Warn("the quota store has seen a newer revision than the catalog has, as after a restore of the database",
		one.kind, one.id, "revision", one.have, "seen", one.newest, "effect", effect, "remedy", "run pacer migrate catch-up")
}
