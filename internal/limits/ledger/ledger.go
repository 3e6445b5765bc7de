package ledger

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// Database is the data that survives a loss of the store: the epoch in force of each shard's data, and the quotas' use, to rebuild
// windows. It must be durable, and is shared by all daemons.
//
// Minutes are counted from the Unix epoch on the store's clock.
type Database interface {
	// Epoch is what is recorded of a shard, with epoch 0 for nothing.
	Epoch(ctx context.Context, shard int) (delivery.Incarnation, error)
	// ReplaceEpoch records next in place of the epoch old, if that is still recorded, and returns the epoch recorded
	// afterwards. The cause is informative only.
	ReplaceEpoch(ctx context.Context, shard int, old int64, next delivery.Incarnation, cause string) (int64, error)
	// WriteUsage sets the units that the node used, or may still use, of a quota in a minute, and keeps the later of each anchor and the
	// known one. It is atomic. It returns the shards whose recorded epoch is not the page's. If there are any, nothing is written.
	WriteUsage(ctx context.Context, page delivery.UsagePage) (stale []int, err error)
	// Usage is the units of the quotas in the minutes from sinceMinute on, of all nodes together, by minute. Reservations
	// that a checkpoint has replaced are left out.
	Usage(ctx context.Context, quotas []string, sinceMinute int64) ([]delivery.Usage, error)
	// Anchors are the known resets of the quotas' windows, past ones included.
	Anchors(ctx context.Context, quotas []string) ([]delivery.Anchor, error)
	// Checkpoints are those of quotas with unreplaced reservations in minutes from sinceMinute on. A quota without one has an empty one.
	Checkpoints(ctx context.Context, sinceMinute int64) ([]delivery.Checkpoint, error)
	// WriteCheckpoints puts what a shard's store has counted in place of what was reserved, each atomically. It does
	// nothing if epoch is not the recorded one, or if another checkpoint was written since Since.
	WriteCheckpoints(ctx context.Context, shard int, epoch int64, list []delivery.Checkpoint) error
	// PruneUsage deletes the minutes before one, and merges those before another to hours.
	PruneUsage(ctx context.Context, beforeMinute, mergeBefore int64) error
}

const (
	// longSpan divides windows: longer ones are rebuilt from the ledger, others wait for a span to pass.
	longSpan = delivery.LongSpan
	second   = int64(time.Second / time.Microsecond)
	// ledgerMinute is the ledger's unit of time in microseconds.
	ledgerMinute = int64(60_000_000)
)

// Options configure a reserve, a fence and a keeper of the same ledger. All but Records and Leads are required.
type Options struct {
	Records Database // nil: the store is not watched and nothing is kept
	Node    string   // the name of this process, never used by another
	// Quotas are those of the catalog; nil, unlike an empty list, says that it is not loaded yet.
	Quotas func() []*delivery.Quota
	// Now is the time of a shard's store, false before it is known.
	Now func(shard int) (int64, bool)
	// Leads reports whether this daemon is the one of the fleet that writes checkpoints; several do no harm. nil: it is.
	Leads      func() bool
	Shards     int
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// inLedger reports whether the use of a quota is kept: one with a long window, counted in the store.
func inLedger(q *delivery.Quota) bool {
	return q.Mode != delivery.ModeEventual && q.Exempt < 100 &&
		slices.ContainsFunc(q.Windows, func(w delivery.Window) bool { return w.Span > longSpan })
}
