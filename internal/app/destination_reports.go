package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
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
	// mostReports is how many destinations wait to be written; what is left out comes again with the next try of the destination. In one
	// write, so many are noted to fail or to work, and mostEnds are disabled.
	mostReports, mostEnds = 10_000, 100
)

// leastSeen is how long a daemon has itself seen a destination fail before it disables it for that, unless disable_after is shorter.
const leastSeen = time.Hour

// unseenFor is how long the snapshot may take to show what was noted.
const unseenFor = time.Minute

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
	now      func() time.Time
	wake     retry.Signal

	waiting atomic.Int64 // how many reports there are
	mu      sync.Mutex
	since   map[string]time.Time // to be noted; zero: it works
	noted   map[string]time.Time // when others were noted to fail or disabled, which the snapshot may not show yet; at most mostReports
	ends    map[string]ending    // to be disabled
	told    time.Time            // when it was last logged that one is disabled
}

// ending is why a destination is to be disabled, as it was at a revision.
type ending struct {
	revision int64
	reason   string
}

func (p *Parts) newDestinationReports() *destinationReports {
	r := &destinationReports{
		store: p.Catalog, log: p.Log, now: time.Now, wake: retry.NewSignal(), after: map[string]time.Duration{},
		endpoint: func(id string) *delivery.Destination { return p.Catalog.Snapshot().Destination(id) },
		since:    map[string]time.Time{}, noted: map[string]time.Time{}, ends: map[string]ending{},
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
	if _, ok := r.after[sink]; !ok {
		return nil
	}
	if e := r.endpoint(id); e != nil && !e.Disabled() {
		return e
	}
	return nil
}

// Fails implements pacer.DestinationReports.
func (r *destinationReports) Fails(sink, id string, since time.Time, detail string) {
	e := r.row(sink, id)
	if e == nil {
		return
	}
	if e.FailingSince == 0 {
		r.add(func() {
			if known, ok := r.since[id]; !ok || since.Before(known) { // a success stays: this failure may be older, and comes again
				r.since[id] = since
			}
		})
		return
	}
	at := e.FailingSince.Time()
	after := r.after[sink]
	if after == 0 || r.now().Sub(since) < min(after, leastSeen) {
		return // two short outages with no job between them are no long one
	}
	if r.now().Sub(at) >= after {
		r.end(e, fmt.Sprintf("has failed since %s, for %s; the last time: %s", at.UTC().Format(time.RFC3339), after, detail))
	}
}

// Gone implements pacer.DestinationReports.
func (r *destinationReports) Gone(sink, id, detail string) {
	if e := r.row(sink, id); e != nil {
		r.end(e, "it wants no more: "+detail)
	}
}

// Works implements pacer.DestinationReports. It is called with each job, and mostly there is nothing to say.
func (r *destinationReports) Works(sink, id string) {
	_, ok := r.after[sink]
	if e := r.endpoint(id); ok && e != nil && (e.FailingSince != 0 || e.Disabled()) { // maybe by a daemon that did not know of this yet
		r.add(func() { r.since[id] = time.Time{} }, id)
		return
	}
	if r.waiting.Load() == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.worked(id) {
		delete(r.since, id)
	}
	delete(r.ends, id)
	if at, ok := r.noted[id]; ok {
		delete(r.noted, id)
		if r.now().Sub(at) < unseenFor {
			r.since[id] = time.Time{}
			r.wake.Send()
		}
	}
	r.count()
}

// worked reports whether a success of the destination is still to be written. The caller holds the lock.
func (r *destinationReports) worked(id string) bool {
	at, ok := r.since[id]
	return ok && at.IsZero()
}

func (r *destinationReports) end(e *delivery.Destination, reason string) {
	r.add(func() {
		if !r.worked(e.ID) {
			r.ends[e.ID] = ending{e.Revision, reason}
		}
	})
}

// add adds a report, unless there are too many. Those that work are not disabled.
func (r *destinationReports) add(put func(), works ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range works {
		delete(r.ends, id)
	}
	if len(r.since)+len(r.ends) < mostReports {
		put()
	}
	r.count()
	r.wake.Send()
}

// count brings waiting up to date. The caller holds the lock.
func (r *destinationReports) count() {
	r.waiting.Store(int64(len(r.since) + len(r.ends) + len(r.noted)))
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

// write writes what there is to report. What is not written stays, unless there is something newer of the destination.
func (r *destinationReports) write(ctx context.Context) error {
	since, ends := r.take()
	if len(since) > 0 {
		if err := r.store.NoteFailing(ctx, since); err != nil {
			r.keep(since)
			return err
		}
	}
	for _, id := range ends {
		e, ok := r.takeEnd(id)
		if !ok {
			continue
		}
		done, err := r.store.DisableFailing(ctx, id, e.revision, e.reason)
		if err != nil {
			r.keep(nil)
			return err
		}
		if done {
			r.logFailure(id, e.reason)
		}
	}
	return nil
}

// take takes out what is noted next, and says which are disabled after that.
func (r *destinationReports) take() (since map[string]time.Time, ends []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id := range r.ends {
		if len(ends) == mostEnds {
			r.wake.Send()
			break
		}
		ends = append(ends, id)
		delete(r.since, id) // its revision would change
	}
	since, r.since = r.since, map[string]time.Time{}
	now := r.now()
	maps.DeleteFunc(r.noted, func(_ string, at time.Time) bool { return now.Sub(at) >= unseenFor })
	for id, at := range since {
		if !at.IsZero() && len(r.noted) < mostReports {
			r.noted[id] = now
		}
	}
	r.count()
	slices.Sort(ends)
	return since, ends
}

// takeEnd takes out why a destination is disabled; false if it has worked since.
func (r *destinationReports) takeEnd(id string) (e ending, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok = r.ends[id]; ok && len(r.noted) < mostReports {
		r.noted[id] = r.now() // a success that comes meanwhile, or before the snapshot shows that it is disabled, enables it again
	}
	delete(r.ends, id)
	r.count()
	return e, ok
}

// keep puts back what was not noted, and forgets which are to be disabled.
func (r *destinationReports) keep(since map[string]time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.ends)
	for id, at := range since {
		if _, newer := r.since[id]; newer && !at.IsZero() || !newer && len(r.since) >= mostReports {
			continue
		}
		r.since[id] = at
		r.wake.Send()
	}
	r.count()
}

// tellsEvery is how often it is logged that a destination is disabled: their rows say so of each.
const tellsEvery = time.Minute

func (r *destinationReports) logFailure(id, reason string) {
	now := r.now()
	if now.Sub(r.told) < tellsEvery {
		return
	}
	r.told = now
	r.log.Warn("a destination is disabled: its jobs wait until it is enabled with pacer destination enable; the next minute's are not logged, "+
		"pacer destination list shows all", "destination", id, "reason", reason)
}
