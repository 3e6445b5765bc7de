package progress

import (
	"context"
	"log/slog"
	"time"

	"github.com/pacer/pacer/internal/retry"
)

// compareEvery is the interval of comparisons of the database's revisions with those that were seen of it.
const compareEvery = 10 * time.Second

// revisions notices that the database was brought back from a backup. Daemons and the quota store use the highest revision
// that they have seen; the exchange remembers it beyond the life of every daemon.
type revisions struct {
	exchange Exchange
	store    Store
	log      *slog.Logger
	outage   retry.Outage
}

// compare has the database give new revisions if its own are behind; mine is what this daemon has seen.
func (r *revisions) compare(ctx context.Context, mine int64) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	seen, err := r.exchange.Newest(ctx, mine)
	behind := false
	if err == nil {
		behind, err = r.store.CatchUp(ctx, seen)
	}
	switch {
	case err != nil:
		if r.outage.Failed() {
			r.log.Warn("the revisions of the database cannot be compared with those seen before; if it was brought back from a backup, "+
				"later changes of campaigns and quotas do not act until they are", "error", err)
		}
		return
	case behind:
		r.log.Error("the database is older than what was seen of it, as after a restore from a backup; all campaigns and quotas were "+
			"given new revisions, so that changes act", "seen", seen,
			"remedy", "compare rates, quotas and states with what they should be: changes since the backup are lost")
	}
	r.outage.Worked()
}
