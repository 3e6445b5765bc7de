// Package sink delivers jobs to their destinations: a router over the configured sinks, with one subpackage per kind
// of sink. A sink only returns a delivery.Result; the pacer decides about retries, gates and the outcome of a job.
package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

// Options configure a Router. They were found to be valid with the configuration.
type Options struct {
	Default    string           // the sink of campaigns that name none; "" for none
	Sinks      map[string]Entry // by name; the router keeps its own copy
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Router passes each job to the sink of its campaign, measures the call and isolates the daemon from a sink's faults
// (a panic, an endless detail). The set of sinks never changes, so all methods are safe for concurrent use without a
// lock. It does not enforce Capacity: the caller, who knows what is in flight, does.
//
// Run must be running for sinks with background work (the record file of a discard sink), and outlive the last
// Deliver; Close comes last.
type Router struct {
	fallback string // the name for which "" stands; "" if there is none
	routes   map[string]*route
	log      *slog.Logger
}

// route is a sink, with its metrics, which are looked up once so that a delivery needs no map access by label.
type route struct {
	name     string
	entry    Entry
	seconds  []prometheus.Histogram // by delivery.ResultClass
	inFlight prometheus.Gauge
	took     metric.Histogram // of all answers
	failure  atomic.Pointer[delivery.Failure]
}

// New makes a Router. It performs no I/O and starts nothing.
func New(opt Options) *Router {
	r := &Router{fallback: opt.Default, routes: make(map[string]*route, len(opt.Sinks)), log: opt.Logger}
	m := newMetrics(opt.Registerer)
	for name, e := range opt.Sinks {
		r.routes[name] = m.route(name, e)
	}
	return r
}

// Resolve returns the name of the configured sink for a campaign's sink ("" for the default one); ok is false if there
// is none.
func (r *Router) Resolve(name string) (resolved string, ok bool) {
	if name == "" {
		name = r.fallback
	}
	if _, ok = r.routes[name]; !ok {
		return "", false
	}
	return name, true
}

// Capacity returns how many deliveries to the sink this daemon may have in flight; ok is false if there is no such
// sink.
func (r *Router) Capacity(sink string) (maxInFlight int, ok bool) {
	rt, ok := r.routes[sink]
	if !ok {
		return 0, false
	}
	return rt.entry.MaxInFlight, true
}

// Destinations returns a function that finds the destination of a job in the sink if the job names none, "" for none. The function is nil
// if the sink has no destinations of its own, even if its jobs name some.
func (r *Router) Destinations(sink string) func(*delivery.Job) string {
	if rt, ok := r.routes[sink]; ok {
		return rt.entry.Sink.Destinations()
	}
	return nil
}

// names returns the names of the configured sinks in alphabetical order.
func (r *Router) names() []string { return slices.Sorted(maps.Keys(r.routes)) }

// Deliver passes the job to the named sink (a result of Resolve) and waits for the answer, whose Detail is one line of
// at most 200 bytes. If the sink does not exist or panics, the result is Temporary, so that the job is retried and in
// the end becomes a dead letter.
func (r *Router) Deliver(ctx context.Context, sink string, job *delivery.Job) delivery.Result {
	return r.Try(ctx, sink, job, nil)
}

// Try is Deliver for somebody who watches: it also records the request and its answer.
func (r *Router) Try(ctx context.Context, sink string, job *delivery.Job, shown *Exchange) delivery.Result {
	rt, ok := r.routes[sink]
	if !ok {
		r.log.Error("a job was routed to a sink that is not configured", "sink", sink, "campaign", job.Campaign)
		return delivery.Result{Class: delivery.Temporary, Detail: oneLine("sink "+sink+" is not configured", maxDetail)}
	}
	rt.inFlight.Inc()
	begun := time.Now()
	res := r.call(ctx, rt, job, shown)
	res.Took = time.Since(begun)
	rt.observe(ctx, res.Class, res.Took)
	rt.inFlight.Dec()
	if res.Detail != "" {
		res.Detail = oneLine(res.Detail, maxDetail)
	}
	if res.Class.Fails() {
		rt.failure.Store(&delivery.Failure{At: time.Now(), Detail: res.Detail})
	}
	if p := res.Provider; p != nil {
		res.Provider = &delivery.Provider{
			Code: oneLine(p.Code, delivery.MaxProviderText), MessageID: oneLine(p.MessageID, delivery.MaxProviderText), GoneSince: p.GoneSince,
			Answer: oneLine(p.Answer, delivery.MaxAnswer),
		}
	}
	res.Keep = res.Class == delivery.Rejected && rt.entry.KeepRejected
	return res
}

// call calls the sink and turns a panic into a result. The recovered value is only logged, because a detail is written
// to a dead letter, and the value may contain anything.
func (r *Router) call(ctx context.Context, rt *route, job *delivery.Job, shown *Exchange) (res delivery.Result) {
	defer func() {
		if v := recover(); v != nil {
			r.log.Error("a sink panicked; this is a bug in pacer", "sink", rt.name, "campaign", job.Campaign,
				"job", job.ID, "panic", fmt.Sprint(v), "stack", string(debug.Stack()))
			res = delivery.Result{Class: delivery.Temporary, Detail: "the sink panicked; the daemon's log says more"}
		}
	}()
	res = rt.entry.Sink.Deliver(ctx, job, shown)
	if int(res.Class) >= len(delivery.ResultClasses) {
		panic(fmt.Sprintf("result class %d does not exist", uint8(res.Class)))
	}
	return res
}

// Run runs the background work of the sinks and returns nil once ctx is cancelled, or earlier with the error of the
// first sink that cannot work at all. Deliver may be called before Run.
func (r *Router) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, name := range r.names() {
		g.Go(func() error {
			if err := r.routes[name].entry.Sink.Run(ctx); err != nil {
				return fmt.Errorf("sinks.%s: %w", name, err)
			}
			return nil
		})
	}
	g.Go(func() error { <-ctx.Done(); return nil })
	return g.Wait()
}

// Reread reads the files and secrets of all sinks again, and reports whether some have changed.
func (r *Router) Reread() (changed bool) {
	for _, rt := range r.routes {
		changed = rt.entry.Sink.Reread() || changed
	}
	return changed
}

// Close closes every sink. The last Deliver, and Run, must have returned.
func (r *Router) Close() error {
	var errs []error
	for _, name := range r.names() {
		if err := r.routes[name].entry.Sink.Close(); err != nil {
			errs = append(errs, fmt.Errorf("sinks.%s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

// maxDetail bounds Result.Detail in bytes: it is written to a record header.
const maxDetail = 200

// oneLine returns s as one line of printable text of at most limit bytes, cut between characters.
func oneLine(s string, limit int) string {
	if len(s) > 4*limit { // enough to fill the line
		s = s[:4*limit]
	}
	s = strings.Map(func(c rune) rune {
		switch {
		case c == utf8.RuneError:
			return '?'
		case c < ' ' || c == 0x7f || c == 0x85 || c == 0x2028 || c == 0x2029:
			return ' '
		}
		return c
	}, s)
	s = strings.TrimSpace(s)
	if len(s) <= limit {
		return s
	}
	end := limit - len("...")
	for end > 0 && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + "..."
}
