package view

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

const (
	// countsFor is the largest age of the database's counts while a page is open, or shareOfTime times as long as reading them takes.
	// countsIdle is that without an open page.
	countsFor  = 5 * time.Second
	countsIdle = time.Minute
	// rateOver is over how long rates are measured.
	rateOver = 5 * time.Second
)

// counts are what the database has counted of campaigns.
type counts struct {
	rows     map[string]*catalog.CampaignRow // read last
	readOnly string                          // why nothing can be changed
	err      error                           // of the last try
	triedAt  time.Time                       // when that was over
	took     time.Duration                   // to read them; 0: that failed
}

// read reads them. After a failure those that were read last stay.
func (c *counts) read(ctx context.Context, from Catalog) {
	var rows []catalog.CampaignRow
	asked := time.Now()
	c.took = 0
	if rows, c.err = from.ListCampaigns(ctx); c.err == nil {
		c.took, c.rows = time.Since(asked), make(map[string]*catalog.CampaignRow, len(rows))
		for i := range rows {
			c.rows[rows[i].ID] = &rows[i]
		}
	}
	if why, err := from.ReadOnly(ctx); err == nil {
		c.readOnly = why
	}
	c.triedAt = time.Now() // also of a failure: a database that hangs is not asked each time
}

// gather asks all sources side by side; the counts may be as old as fresh.
func (l *Watcher) gather(ctx context.Context, now time.Time, fresh time.Duration) *evidence {
	counting, stop := context.WithTimeout(ctx, l.within())
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, sourceTimeout)
	defer cancel()
	e := &evidence{now: now, snapshot: l.sources.Snapshot()}
	var fleetErr, gatesErr, windowsErr error
	var all sync.WaitGroup
	if l.sources.Fleet != nil {
		all.Go(func() { e.fleet, fleetErr = l.sources.Fleet(ctx) })
	}
	if l.sources.Gates != nil {
		all.Go(func() { e.gates, gatesErr = l.sources.Gates(ctx) })
	}
	if l.sources.Windows != nil && e.snapshot != nil {
		all.Go(func() {
			var states []delivery.WindowState
			if states, windowsErr = l.sources.Windows(ctx, e.snapshot.Shared()); states != nil { // otherwise nothing is known
				e.windows = hold.Windows(states)
			}
		})
	}
	if l.sources.Catalog != nil && now.Sub(l.counts.triedAt) >= fresh {
		all.Go(func() { l.counts.read(counting, l.sources.Catalog) })
	}
	all.Wait()
	for _, fault := range []struct {
		what string
		err  error
	}{{"redis, for what daemons report", fleetErr}, {"redis, for gates", gatesErr}, {"redis, for quotas", windowsErr}, {"PostgreSQL, for counts", l.counts.err}} {
		if fault.err != nil {
			e.faults = append(e.faults, fmt.Sprintf("%s: %s", fault.what, fault.err))
		}
	}
	switch {
	case l.sources.Windows == nil:
		e.uncounted = "redis.addrs is not set; set it to see what is left"
	case cmp.Or(windowsErr, fleetErr) != nil:
		e.uncounted = fmt.Sprintf("redis.addrs: the quota store does not answer: %s", cmp.Or(windowsErr, fleetErr))
	}
	if gatesErr != nil {
		e.gates, e.ungated = nil, gatesErr.Error()
	}
	if fleetErr != nil {
		e.fleet, e.storeDown = nil, true
	}
	e.rows, e.readOnly = l.counts.rows, l.counts.readOnly
	e.earlier = l.remember(e.fleet, now)
	return e
}

// remember keeps what the fleet says for some seconds, and returns what it said some seconds ago; nil if that is not known.
func (l *Watcher) remember(f *Fleet, now time.Time) *Fleet {
	if f != nil && (len(l.fleets) == 0 || f.At.After(l.fleets[len(l.fleets)-1].At.Add(watchedEvery/2))) {
		l.fleets = append(l.fleets, f)
	}
	for len(l.fleets) > 0 && now.Sub(l.fleets[0].At) > 3*rateOver {
		l.fleets = l.fleets[1:]
	}
	for len(l.fleets) > 2 && now.Sub(l.fleets[1].At) >= rateOver {
		l.fleets = l.fleets[1:]
	}
	if len(l.fleets) < 2 {
		return nil
	}
	return l.fleets[0]
}
