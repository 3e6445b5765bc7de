package app

import (
	"context"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// historyEvery is how often the leader adds to the history of campaigns, pruneEvery how often it prunes it, and pruneUsageEvery how often
	// it prunes the use of quotas.
	historyEvery    = 10 * time.Second
	pruneEvery      = 5 * time.Minute
	pruneUsageEvery = time.Hour
)

// historyStore keeps the history of campaigns; catalog.Postgres and catalog.Memory implement it.
type historyStore interface {
	AddHistory(ctx context.Context, allowed func(campaign string) float64) error
	PruneHistory(ctx context.Context, now time.Time) error
	PruneUsage(ctx context.Context, now time.Time) error
	History(ctx context.Context, of catalog.HistoryOf) ([]catalog.HistoryStep, error)
}

// keepHistory keeps the history of campaigns, and that of the use of quotas short, while this daemon leads. Two leaders do no harm: each adds only what none has added.
func (d *Daemon) keepHistory(ctx context.Context) error {
	return keepHistory(ctx, d.parts.Catalog, d.progress.Leads, d.allowedJobs, func(err error) {
		d.log.Warn("the history of campaigns is not kept; trying again", "error", err)
	})
}

func keepHistory(ctx context.Context, store historyStore, leads func() bool, allowed func(string) float64, warn func(error)) error {
	var outage retry.Outage
	var usagePruned time.Time
	for pruned := time.Now(); retry.Sleep(ctx, historyEvery) == nil; {
		if !leads() {
			continue
		}
		err := store.AddHistory(ctx, allowed)
		if err == nil && time.Since(pruned) >= pruneEvery {
			pruned, err = time.Now(), store.PruneHistory(ctx, time.Now())
		}
		if err == nil && time.Since(usagePruned) >= pruneUsageEvery {
			usagePruned, err = time.Now(), store.PruneUsage(ctx, time.Now())
		}
		switch {
		case err == nil:
			outage.Worked()
		case ctx.Err() == nil && outage.Failed():
			warn(err)
		}
	}
	return nil
}

// allowedJobs returns the jobs per second that the schedule of a campaign allows now.
func (d *Daemon) allowedJobs(campaign string) float64 {
	c := d.parts.Catalog.Snapshot().Campaign(campaign)
	if c == nil {
		return 0
	}
	return view.Allowed(c, time.Now()) / d.progress.MeanWeight(campaign)
}
