package eventual

import (
	"cmp"
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// Defaults of the settings.
const (
	DefaultSync      = time.Second
	DefaultLowBurst  = time.Second // use at the limit, reported twice a second, is ahead of it by up to half of one
	DefaultHighBurst = 2 * time.Second
)

const (
	// lostAfter is the number of syncs that may fail before the failure policies apply.
	lostAfter = 3
	// A quota is not reported after softIdle without an ask, and is removed after softForget. By then the roots have deleted the node's
	// counter (softKeep after its last report), so a new one may begin at 0.
	softIdle   = 10 * time.Minute
	softKeep   = time.Hour
	softForget = softIdle + 2*softKeep
	// softBatch is the largest number of quotas of one script.
	softBatch = 1_000
)

// Options configure eventual quotas.
type Options struct {
	// Roots are independent Redis servers. Each keeps all counters, so that all but one may be lost. They need not retry
	// by themselves and must honour deadlines (ClientOptions).
	Roots []redis.UniversalClient
	// KeyPrefix comes first in every key, inside the hash tag.
	KeyPrefix string
	// Node is the name of this process, unique for each start.
	Node string
	// Sync bounds the age of the counts that a daemon has of another, 1 s by default. Each daemon reports to every root
	// twice in that time, so that use is reported, and the report received, in time.
	Sync time.Duration
	// LowBurst and HighBurst bound how far use may be ahead of a window's limit, spread evenly over its span, expressed
	// as time at that limit: from LowBurst on a growing part is denied, from HighBurst on everything. A first unit is
	// always within both. By default 1 s and 2 s.
	LowBurst, HighBurst time.Duration
	Logger              *slog.Logger
	// Registerer receives the metrics.
	Registerer prometheus.Registerer

	now     func() time.Time // replaces time.Now in tests
	timeout time.Duration    // of a report; half of Sync, except in tests
}

func (o *Options) setDefaults() {
	o.Sync = cmp.Or(o.Sync, DefaultSync)
	o.timeout = cmp.Or(o.timeout, o.Sync/2)
	if o.LowBurst == 0 && o.HighBurst == 0 {
		o.LowBurst, o.HighBurst = DefaultLowBurst, DefaultHighBurst
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
}

// Quotas keeps quotas of mode eventual. A daemon counts its use in memory; asking does no I/O. About once a second each daemon sends its
// totals to several independent roots. Each root answers how far all daemons together are ahead of the limit. The daemon uses the answer
// of the root with the largest total. In between it adds its own use, and extrapolates the others'.
//
// Use ahead of the limit is kept as a debt, expressed as time at the limit. It falls with the clock, never below zero, so idle time gives
// no credit. Each window has one debt, and the window that allows the fewest units decides.
//
// All daemons together exceed limit * time / span + HighBurst by at most the published bound, and by a job that began within it. A daemon
// that is not alone never uses more than the whole rate by itself, except for a tenth of a sync. So the others miss at most that. Without
// timely counts of the others, a daemon uses only its part of the rate.
//
// The zero value is not usable. All methods may be called concurrently.
type Quotas struct {
	opt   Options
	base  time.Time // local times are nanoseconds since then
	roots []*root
	bound *prometheus.GaugeVec

	mu      sync.Mutex // of everything below, and of the quotas
	quotas  map[string]*soft
	failing int // roots that did not answer
	limits  softLimits
}

// root is one of the servers.
type root struct {
	client redis.UniversalClient
	index  int
	kick   retry.Signal // there is a quota the root has not been asked for
	outage retry.Outage
}

// New makes Quotas. It does no I/O.
func New(o Options) *Quotas {
	o.setDefaults()
	e := &Quotas{
		opt: o, base: o.now(), quotas: map[string]*soft{},
		limits: softLimits{low: int64(o.LowBurst), high: int64(o.HighBurst), sync: int64(o.Sync)},
		bound: promauto.With(o.Registerer).NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_eventual_overshoot_bound_units",
			Help: "How many units an eventual quota may be exceeded by: (daemons - 1) * rate * (sync + round trip).",
		}, []string{"quota"}),
	}
	for i, c := range o.Roots {
		e.roots = append(e.roots, &root{client: c, index: i, kick: retry.NewSignal()})
	}
	return e
}

// Run synchronises with the roots until ctx ends, and then once more, so that the other daemons get the final counts.
// A root that does not answer does not delay the others.
func (e *Quotas) Run(ctx context.Context) {
	var running sync.WaitGroup
	for _, r := range e.roots {
		running.Go(func() { e.syncRoot(ctx, r) })
	}
	running.Wait()
}

func (e *Quotas) syncRoot(ctx context.Context, r *root) {
	for ctx.Err() == nil {
		e.sync(ctx, r)
		// Daemons that were started together should not report together.
		timer := time.NewTimer(e.pause(rand.Int64N))
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-r.kick:
		}
		timer.Stop()
	}
	e.sync(context.WithoutCancel(ctx), r)
}

// pause is the time between two reports. Two of them, and the tenth of a sync that a daemon may be ahead by, are within
// Sync. random returns a number below its argument.
func (e *Quotas) pause(random func(int64) int64) time.Duration {
	most := e.opt.Sync * 45 / 100
	return most - time.Duration(random(int64(most)/5))
}

// now is the local time.
func (e *Quotas) now() int64 { return int64(e.opt.now().Sub(e.base)) }

// Allow takes up to want units of the quota and returns how many it took. Unused units are returned with GiveBack.
func (e *Quotas) Allow(q *delivery.Quota, want int64) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.soft(q)
	n := s.free(want, e.limits)
	s.take(n)
	return n
}

// Fits takes the units of as many jobs at the head of a queue as the quota allows, given their sizes, and returns the
// number of jobs. A job fits if its first unit does.
func (e *Quotas) Fits(q *delivery.Quota, sizes []int64) int {
	var want, used int64
	for _, n := range sizes {
		want += n
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.soft(q)
	room := s.free(max(want, 1), e.limits)
	jobs := 0
	for jobs < len(sizes) && used < room {
		used += sizes[jobs]
		jobs++
	}
	s.take(used)
	return jobs
}

// GiveBack returns units that were taken and not used.
func (e *Quotas) GiveBack(q *delivery.Quota, units int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.soft(q).take(-units)
}

// Wait returns approximately how long it will take until the quota allows anything, 0 if it does now, and the window that takes longest.
func (e *Quotas) Wait(q *delivery.Quota) (longest time.Duration, window int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	takes, window := e.soft(q).wait(e.limits)
	return time.Duration(takes), window
}

// soft returns the quota, updated to the newest revision and to now.
func (e *Quotas) soft(q *delivery.Quota) *soft {
	s, now := e.quotas[q.ID], e.now()
	reported := s != nil && time.Duration(now-s.asked) <= softIdle
	if s == nil {
		s = newSoft(q, now)
		e.quotas[q.ID] = s
	}
	if !reported {
		s.heard = now // no root was asked before
		for _, r := range e.roots {
			r.kick.Send()
		}
	}
	if q.Revision > s.quota.Revision {
		s.become(q)
	}
	s.asked = now
	s.advance(now, e.limits)
	return s
}
