package app

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

const (
	// reportsEvery is the least time between two writes of what became of destinations.
	reportsEvery = time.Second
	// maxReports is how many destinations are remembered; those left out come again with their next try. One write disables maxEnds.
	maxReports, maxEnds = 10_000, 100
	// minSeen is how long a daemon has itself seen a destination fail before it disables it for that, unless disable_after is shorter.
	minSeen = time.Hour
	// unseenFor is how long the snapshot may take to show what was written.
	unseenFor = time.Minute
	// disabledEvery is how often it is logged that a destination is disabled: their rows say so of each.
	disabledEvery = time.Minute
)

// reportsBackoff is the delay between writes that fail.
var reportsBackoff = retry.Backoff{Initial: reportsEvery, Max: 30 * time.Second, Jitter: 0.2}

// failingStore keeps what became of destinations.
type failingStore interface {
	NoteFailing(ctx context.Context, since map[string]time.Time) error
	DisableFailing(ctx context.Context, id string, seen int64, reason string) (done bool, err error)
}

// destinationReports writes down which destinations of pacer.destinations fail, and disables those that have failed for too long, or want no
// more. All daemons write into the same rows, so a success of any of them counts for all: a destination is disabled if none has had
// one. While the store is away, it keeps since when they fail and which work again, but not which are to be disabled: others may have had
// a success meanwhile, and the next try that fails says it again. Nothing waits for the store.
type destinationReports struct {
	store    failingStore
	endpoint func(id string) *delivery.Destination
	after    map[string]time.Duration // by sink: how long one fails before it is disabled; 0: for ever. Others have no rows
	log      *slog.Logger
	wake     retry.Signal

	count    atomic.Int64 // of reports
	mu       sync.Mutex
	reports  map[string]*report
	disabled time.Time // when it was last logged that one is disabled
}

// report is what is known of one destination, and not in its row, or not seen there.
type report struct {
	pending bool      // since is to be written
	since   time.Time // when it began to fail; zero: it works
	end     string    // why it is to be disabled; "": it is not
	seen    int64     // the revision of its row at its end
	written time.Time // when it was written that it fails or is disabled
}

// works reports whether a success is still to be written.
func (p *report) works() bool { return p.pending && p.since.IsZero() }

func (p *Parts) newDestinationReports() *destinationReports {
	r := &destinationReports{
		store: p.Catalog, log: p.Log, wake: retry.NewSignal(), after: map[string]time.Duration{}, reports: map[string]*report{},
		endpoint: func(id string) *delivery.Destination { return p.Catalog.Snapshot().Destination(id) },
	}
	for name, e := range p.Sinks {
		if e.Destinations {
			r.after[name] = e.DisableAfter
		}
	}
	return r
}

// row returns the row of a destination, nil where there is nothing to report.
func (r *destinationReports) row(sink, id string) *delivery.Destination {
	if _, ok := r.after[sink]; ok {
		return r.endpoint(id)
	}
	return nil
}

// Fails implements pacer.DestinationReports.
func (r *destinationReports) Fails(sink, id string, since time.Time, detail string) {
	e, after := r.row(sink, id), r.after[sink]
	switch {
	case e == nil || e.Disabled():
	case e.FailingSince == 0:
		r.change(id, func(p *report) {
			if !p.pending || !p.works() && since.Before(p.since) { // a success stays: this failure may be older, and comes again
				p.pending, p.since = true, since
			}
		})
	case after == 0 || time.Since(since) < min(after, minSeen): // two short outages with no job between them are no long one
	case time.Since(e.FailingSince.Time()) >= after:
		r.end(e, fmt.Sprintf("has failed since %s, for %s; the last time: %s", e.FailingSince.Time().UTC().Format(time.RFC3339), after, detail))
	}
}

// Gone implements pacer.DestinationReports.
func (r *destinationReports) Gone(sink, id, detail string) {
	if e := r.row(sink, id); e != nil && !e.Disabled() {
		r.end(e, "it wants no more: "+detail)
	}
}

func (r *destinationReports) end(e *delivery.Destination, reason string) {
	r.change(e.ID, func(p *report) {
		if !p.works() {
			p.end, p.seen = reason, e.Revision
		}
	})
}

// Works implements pacer.DestinationReports. It is called with each job, and mostly there is nothing to say.
func (r *destinationReports) Works(sink, id string) {
	e := r.row(sink, id)
	failing := e != nil && (e.FailingSince != 0 || e.Disabled()) // disabled by a daemon that did not know of this yet
	if e == nil || !failing && r.count.Load() == 0 {
		return
	}
	r.change(id, func(p *report) {
		works := failing || p.works() || time.Since(p.written) < unseenFor
		*p = report{pending: works}
	})
}

// change changes the report of a destination, unless there are too many. One that says nothing is forgotten.
func (r *destinationReports) change(id string, change func(*report)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p, known := r.reports[id]
	if !known {
		if len(r.reports) >= maxReports {
			return
		}
		p = &report{}
	}
	change(p)
	if *p == (report{}) {
		delete(r.reports, id)
	} else {
		r.reports[id] = p
		r.wake.Send()
	}
	r.count.Store(int64(len(r.reports)))
}

// Run writes reports until ctx ends.
func (r *destinationReports) Run(ctx context.Context) error {
	var outage retry.Outage
	for ctx.Err() == nil {
		select {
		case <-r.wake:
		case <-ctx.Done():
			return nil
		}
		wait := reportsEvery
		if err := r.write(ctx); err != nil && ctx.Err() == nil {
			if outage.Failed() {
				r.log.Warn("which destinations fail is not written down; it is tried again, and jobs are sent as before", "error", err)
			}
			wait = reportsBackoff.Delay(outage.Failures())
		} else if _, over := outage.Worked(); over {
			r.log.Info("which destinations fail is written down again")
		}
		_ = retry.Sleep(ctx, wait)
	}
	return nil
}

// write writes what there is to report.
func (r *destinationReports) write(ctx context.Context) error {
	since, ends := r.take()
	if len(since) > 0 {
		if err := r.store.NoteFailing(ctx, since); err != nil {
			r.keep(since)
			return err
		}
	}
	for _, id := range ends {
		var reason string
		var seen int64
		r.change(id, func(p *report) {
			if reason, seen = p.end, p.seen; reason != "" { // else it has worked since
				*p = report{written: time.Now()} // a success that comes meanwhile enables it again
			}
		})
		if reason == "" {
			continue
		}
		done, err := r.store.DisableFailing(ctx, id, seen, reason)
		if err != nil {
			r.keep(nil)
			return err
		}
		if now := time.Now(); done && now.Sub(r.disabled) >= disabledEvery {
			r.disabled = now
			r.log.Warn("a destination is disabled: its jobs wait until it is enabled with pacer destination enable; the next minute's are not "+
				"logged, pacer destination list shows all", "destination", id, "reason", reason)
		}
	}
	return nil
}

// take returns what is noted next, and which are disabled after that. It forgets what the snapshot shows by now.
func (r *destinationReports) take() (since map[string]time.Time, ends []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	since = map[string]time.Time{}
	for id, p := range r.reports {
		switch {
		case p.end != "":
			p.pending = false // the revision of its row would change
			if ends = append(ends, id); len(ends) > maxEnds {
				r.wake.Send()
			}
		case p.works():
			since[id] = p.since
			delete(r.reports, id)
		case p.pending:
			since[id] = p.since
			p.pending, p.written = false, time.Now()
		case time.Since(p.written) >= unseenFor:
			delete(r.reports, id)
		}
	}
	r.count.Store(int64(len(r.reports)))
	slices.Sort(ends)
	return since, ends[:min(len(ends), maxEnds)]
}

// keep puts back what was not noted, unless there is something newer, and forgets which are to be disabled.
func (r *destinationReports) keep(since map[string]time.Time) {
	r.mu.Lock()
	for _, p := range r.reports {
		p.end = ""
	}
	r.mu.Unlock()
	for id, at := range since {
		r.change(id, func(p *report) {
			if !p.pending || at.IsZero() {
				*p = report{pending: true, since: at}
			}
		})
	}
}
