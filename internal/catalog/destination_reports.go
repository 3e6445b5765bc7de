package catalog

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

// FailingStore keeps what became of destinations; Postgres and Memory implement it.
type FailingStore interface {
	NoteFailing(ctx context.Context, since map[string]time.Time) error
	DisableFailing(ctx context.Context, id string, seen int64, reason string) (done bool, err error)
}

// DestinationReports writes which rows of pacer.destinations fail, and disables those that have failed for too long, or want no more. All
// daemons write into the same rows, so that a destination is disabled only if no daemon has had a success. While the store is away, reports
// of failures and successes are kept. Those of ends are dropped: another daemon may have had a success, and the next failure repeats them.
// Nothing waits for the store. Safe for concurrent use.
type DestinationReports struct {
	store FailingStore
	row   func(id string) *delivery.Destination
	after map[string]time.Duration // by sink: how long one fails before it is disabled; 0: for ever. Others have no rows
	log   *slog.Logger
	wake  retry.Signal

	disabled time.Time    // when Run last logged that one is disabled
	count    atomic.Int64 // of reports
	mu       sync.Mutex   // guards what follows
	reports  map[string]*report
}

// report is what is known of one destination and was not seen in its row yet. One of these is still to be written, or nothing.
type report struct {
	works   bool
	fails   time.Time // since when
	end     string    // why it is to be disabled
	seen    int64     // the revision of its row at its end
	written time.Time // when it was written that it fails or is disabled
}

// NewDestinationReports makes DestinationReports. after has the sinks that send to rows, and row returns one of the snapshot.
func NewDestinationReports(store FailingStore, row func(id string) *delivery.Destination, after map[string]time.Duration, log *slog.Logger) *DestinationReports {
	return &DestinationReports{store: store, row: row, after: after, log: log, wake: retry.NewSignal(), reports: map[string]*report{}}
}

// of returns the row of a destination, nil where there is nothing to report.
func (r *DestinationReports) of(sink, id string) *delivery.Destination {
	if _, ok := r.after[sink]; ok {
		return r.row(id)
	}
	return nil
}

// Fails implements pacer.DestinationReports.
func (r *DestinationReports) Fails(sink, id string, since time.Time, detail string) {
	e, after := r.of(sink, id), r.after[sink]
	switch {
	case e == nil || e.Disabled():
	case e.FailingSince == 0:
		r.change(id, func(p *report) {
			if !p.works && (p.fails.IsZero() || since.Before(p.fails)) { // a success stays: this failure may be older, and comes again
				p.fails = since
			}
		})
	case after == 0 || time.Since(since) < min(after, minSeen): // two short outages with no job between them are no long one
	case time.Since(e.FailingSince.Time()) >= after:
		r.end(e, fmt.Sprintf("has failed since %s, for %s; the last time: %s", e.FailingSince.Time().UTC().Format(time.RFC3339), after, detail))
	}
}

// Gone implements pacer.DestinationReports.
func (r *DestinationReports) Gone(sink, id, detail string) {
	if e := r.of(sink, id); e != nil && !e.Disabled() {
		r.end(e, "it wants no more: "+detail)
	}
}

func (r *DestinationReports) end(e *delivery.Destination, reason string) {
	r.change(e.ID, func(p *report) {
		if !p.works {
			p.end, p.seen = reason, e.Revision
		}
	})
}

// Works implements pacer.DestinationReports. It is called with each job, and mostly there is nothing to say.
func (r *DestinationReports) Works(sink, id string) {
	e := r.of(sink, id)
	failing := e != nil && (e.FailingSince != 0 || e.Disabled()) // disabled by a daemon that did not know of this yet
	if e == nil || !failing && r.count.Load() == 0 {
		return
	}
	r.change(id, func(p *report) { *p = report{works: failing || p.works || time.Since(p.written) < unseenFor} })
}

// change changes the report of a destination, unless there are too many. One that says nothing is forgotten.
func (r *DestinationReports) change(id string, change func(*report)) {
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
func (r *DestinationReports) Run(ctx context.Context) error {
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
		if r.count.Load() > 0 { // until the snapshot shows all of it: then it is forgotten
			r.wake.Send()
		}
		_ = retry.Sleep(ctx, wait)
	}
	return nil
}

// write writes what there is to report.
func (r *DestinationReports) write(ctx context.Context) error {
	since, ends := r.take()
	if len(since) > 0 {
		if err := r.store.NoteFailing(ctx, since); err != nil {
			r.restore(since)
			return err
		}
	}
	for _, id := range ends {
		var is report
		r.change(id, func(p *report) {
			if is = *p; is.end != "" { // else it has worked since
				*p = report{written: time.Now()} // a success that comes meanwhile enables it again
			}
		})
		if is.end == "" {
			continue
		}
		done, err := r.store.DisableFailing(ctx, id, is.seen, is.end)
		if err != nil {
			r.restore(nil)
			return err
		}
		if now := time.Now(); done && now.Sub(r.disabled) >= disabledEvery {
			r.disabled = now
			r.log.Warn("a destination is disabled: its jobs wait until it is enabled with pacer destination enable; the next minute's are not "+
				"logged, pacer destination list shows all", "destination", id, "reason", is.end)
		}
	}
	return nil
}

// take returns what is noted next, the zero time for one that works, and which are disabled after that. It forgets what the snapshot shows
// by now.
func (r *DestinationReports) take() (since map[string]time.Time, ends []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	since = map[string]time.Time{}
	for id, p := range r.reports {
		switch {
		case p.end != "": // that it fails is not noted: the revision of its row would change
			p.fails = time.Time{}
			ends = append(ends, id)
		case p.works:
			since[id] = time.Time{}
			delete(r.reports, id)
		case !p.fails.IsZero():
			since[id] = p.fails
			*p = report{written: time.Now()}
		case time.Since(p.written) >= unseenFor:
			delete(r.reports, id)
		}
	}
	r.count.Store(int64(len(r.reports)))
	slices.Sort(ends)
	return since, ends[:min(len(ends), maxEnds)]
}

// restore puts back what was not noted, unless something newer is known, and drops the ends.
func (r *DestinationReports) restore(since map[string]time.Time) {
	r.mu.Lock()
	for _, p := range r.reports {
		p.end = ""
	}
	r.mu.Unlock()
	for id, at := range since {
		r.change(id, func(p *report) {
			if at.IsZero() || !p.works && p.fails.IsZero() {
				*p = report{works: at.IsZero(), fails: at}
			}
		})
	}
}
