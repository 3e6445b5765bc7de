package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
)

// Ledger is what outlives the store: which incarnation of each shard's data is in force, and what was used of the
// quotas, from which windows are rebuilt after a loss. It must be durable, and is shared by all daemons.
//
// Minutes are counted from the Unix epoch on the store's clock.
type Ledger interface {
	// Incarnation is the recorded incarnation of a shard, 0 for none.
	Incarnation(ctx context.Context, shard int) (int64, error)
	// ReplaceIncarnation records next in the place of old, if old is still recorded, and returns what is recorded
	// afterwards. The cause is for people.
	ReplaceIncarnation(ctx context.Context, shard int, old, next int64, cause string) (int64, error)
	// WriteUsage sets what the node used, or may still use, of a quota in a minute, and keeps the later of each anchor
	// and the known one. It does everything or nothing.
	WriteUsage(ctx context.Context, node string, usage []delivery.Usage, anchors []delivery.Anchor) error
	// Usage is the units of the quotas in the minutes from sinceMinute on, of all nodes together, by minute.
	Usage(ctx context.Context, quotas []string, sinceMinute int64) ([]delivery.Usage, error)
	// Anchors are the known resets of the quotas' windows, past ones included.
	Anchors(ctx context.Context, quotas []string) ([]delivery.Anchor, error)
	// PruneUsage forgets the minutes before one.
	PruneUsage(ctx context.Context, beforeMinute int64) error
}

const (
	// longSpan divides windows: longer ones are rebuilt from the ledger, others wait for a span to pass.
	longSpan = 2 * time.Minute
	// ledgerMinute is the ledger's unit of time in microseconds.
	ledgerMinute = int64(60_000_000)
)

// ledgerOptions configure a reserve and a guard over the same ledger.
type ledgerOptions struct {
	Ledger Ledger // nil: the store is not watched and nothing is kept
	Node   string // the name of this process, never used by another
	// Quotas are those of the catalog; nil, unlike an empty list, says that it is not loaded yet.
	Quotas func() []*delivery.Quota
	// Now is the time of a shard's store, false before it is known.
	Now        func(shard int) (int64, bool)
	Shards     int
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

func (o *ledgerOptions) validate() error {
	switch {
	case o.Node == "":
		return errors.New("limits: a ledger needs the name of the node")
	case o.Quotas == nil || o.Now == nil:
		return errors.New("limits: a ledger needs Quotas and Now")
	case o.Shards < 1:
		return errors.New("limits: a ledger needs at least one shard")
	case o.Registerer == nil:
		return errors.New("limits: a ledger needs a Registerer")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// register adds collectors to a registerer.
func register(r prometheus.Registerer, collectors ...prometheus.Collector) error {
	for _, c := range collectors {
		if err := r.Register(c); err != nil {
			return fmt.Errorf("register metrics of the ledger: %w", err)
		}
	}
	return nil
}

// inLedger tells whether the use of a quota is kept: one with a long window, counted in the store.
func inLedger(q *delivery.Quota) bool {
	if q.Mode == delivery.ModeEventual || q.Exempt >= 100 {
		return false
	}
	for _, w := range q.Windows {
		if w.Span > longSpan {
			return true
		}
	}
	return false
}
