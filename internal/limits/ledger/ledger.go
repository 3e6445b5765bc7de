package ledger

import (
	"context"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/shards"
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
	// Join records that the node takes from the data of these epochs, at the time At. It returns, for each shard whose epoch is the
	// recorded one, up to when the ledger holds all that was taken, 0 if nothing is known. Others are not recorded.
	Join(ctx context.Context, node string, as []delivery.Taker) (written map[int]int64, err error)
	// Takers are the daemons that take from a shard's data, or did.
	Takers(ctx context.Context, shard int) ([]delivery.Taker, error)
	// Leave ends what was joined, and adds the use that the ledger lacks. With use, only nodes leave that took from another epoch than the
	// recorded one, and nothing is added unless one of them does.
	Leave(ctx context.Context, shard int, nodes []string, usage []delivery.Usage) error
	// WriteTaken adds what each quota was taken since it was written last, to the minute of the store's time at, and keeps the later of
	// each anchor and the known one. Of a quota that was never written, it adds what its windows count. The list has the quotas whose counts
	// changed after since, a time of the last write, or all with since 0. It returns false if epoch is not the recorded one, if a quota could
	// not be written now, or if the ledger lacks something from before since.
	WriteTaken(ctx context.Context, shard int, epoch, since, at int64, list []delivery.Taken, anchors []delivery.Anchor) (bool, error)
	// Usage is the units of the quotas in the minutes from sinceMinute on, by minute.
	Usage(ctx context.Context, quotas []string, sinceMinute int64) ([]delivery.Usage, error)
	// Anchors are the known resets of the quotas' windows, past ones included.
	Anchors(ctx context.Context, quotas []string) ([]delivery.Anchor, error)
}

const (
	second = int64(time.Second / time.Microsecond)
	// ledgerMinute is the ledger's unit of time in microseconds.
	ledgerMinute = int64(60_000_000)
	// goesOnFor is how long a daemon that cannot reach the ledger takes units of quotas with policy closed.
	goesOnFor = 130 * time.Second
)

// Options configure a Fence. All but Records, Rates and Leads are required.
type Options struct {
	Records Database // nil: the store is not watched and nothing is kept
	Node    string   // the name of this process, never used by another
	// Quotas are those of the catalog; nil, unlike an empty list, says that it is not loaded yet.
	Quotas func() []*delivery.Quota
	// Rates is the most units that the rates of campaigns allow in a time, by quota; nil: any number.
	Rates func(in time.Duration) map[string]int64
	// Now is the time of a shard's store, false before it is known.
	Now func(shard int) (int64, bool)
	// Horizon is how far ahead of a store's time this daemon lately asked for slots.
	Horizon func() time.Duration
	// Leads reports whether this daemon is the one of the fleet that writes what the store counts; several do no harm. nil: it is.
	Leads      func() bool
	Shards     int
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// quotasOf returns the quotas of a shard that match; nil, unlike an empty list, says that the catalog is not loaded yet.
func (g *Fence) quotasOf(shard int, match func(*delivery.Quota) bool) []*delivery.Quota {
	return slices.DeleteFunc(slices.Clone(g.opt.Quotas()), func(q *delivery.Quota) bool {
		return shards.Of(uint64(q.Shard), len(g.shards)) != shard || !match(q)
	})
}

// inLedger reports whether the use of a quota is kept: one with a long window, counted in the store.
func inLedger(q *delivery.Quota) bool {
	return q.Mode != delivery.ModeEventual && q.Exempt < 100 &&
		slices.ContainsFunc(q.Windows, func(w delivery.Window) bool { return w.Span > delivery.LongSpan })
}
