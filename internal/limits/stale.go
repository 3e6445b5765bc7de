package limits

import (
	"log/slog"
	"sync"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// staleFor is how long the store may hold a newer revision of a quota than the catalog before it is said, and staleGap how
	// long that may not be noticed meanwhile, in microseconds.
	staleFor = 20 * second
	staleGap = 15 * second
)

// behindWindow stands in the replies of takes for the window, where the revision of the quota is an old one.
const behindWindow = 255

// staleRevision is a quota that was asked for, and the newer revision that the store holds of it.
type staleRevision struct {
	quota  string
	newest int64
}

// stale remembers the quotas of which the store holds a newer revision than the catalog. Nothing is granted of them. That passes
// once the catalog is loaded; it does not where the database was brought back from a backup, unless revisions are raised.
type stale struct {
	log *slog.Logger

	mu     sync.Mutex
	newest int64                  // revision that was seen in the store; under mu
	quotas map[string]*staleQuota // under mu
}

// staleQuota is since when a quota is stale, in the engine's local time.
type staleQuota struct {
	since, last int64
	said        bool
}

// note notes what a take was told of the quotas that it asked for, and says it of those that stay as they are.
func (s *stale) note(list []staleRevision, asked []*delivery.Quota, now int64) {
	if len(list) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range list {
		s.newest = max(s.newest, one.newest)
		q := s.quotas[one.quota]
		if q == nil || now > q.last+staleGap {
			if len(s.quotas) >= maxWarned {
				clear(s.quotas)
			}
			q = &staleQuota{since: now}
			s.quotas[one.quota] = q
		}
		if q.last = now; now >= q.since+staleFor && !q.said {
			q.said = true
			s.warn(one, asked)
		}
	}
}

func (s *stale) warn(one staleRevision, asked []*delivery.Quota) {
	var revision int64
	for _, q := range asked {
		if q.ID == one.quota {
			revision = q.Revision
		}
	}
	s.log.Warn("nothing is granted of a quota: the store has seen a newer revision of it than the catalog has, as after a restore of "+
		"the database", "quota", one.quota, "revision", revision, "seen", one.newest,
		"remedy", "daemons raise the revisions; if this stays, run pacer migrate up, then pacer quota touch "+one.quota)
}

// NewestSeen is the highest revision of a quota that the store has shown to be newer than the catalog's, 0 if none was.
func (e *Engine) NewestSeen() int64 {
	e.stale.mu.Lock()
	defer e.stale.mu.Unlock()
	return e.stale.newest
}
