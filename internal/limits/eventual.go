package limits

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	defaultSync      = time.Second
	defaultLowBurst  = time.Second // use at the limit, reported twice a second, is ahead of it by up to half of one
	defaultHighBurst = 2 * time.Second
	// lostAfter is how many syncs may fail before the failure policies apply.
	lostAfter = 3
	// A quota that nobody asked for in softIdle is not reported, and forgotten after softForget: by then the roots have
	// forgotten the node's counter (softKeep after its last report), so that a new one may begin at 0.
	softIdle   = 10 * time.Minute
	softKeep   = time.Hour
	softForget = softIdle + 2*softKeep
	// softBatch is how many quotas one script serves at most.
	softBatch = 1_000
)

// EventualOptions configure eventual quotas.
type EventualOptions struct {
	// Roots are independent Redis servers. Each keeps all counters, so that all but one may be lost. They need not retry
	// by themselves and must honour deadlines (ClientOptions).
	Roots []redis.UniversalClient
	// KeyPrefix comes first in every key, inside the hash tag.
	KeyPrefix string
	// Node names this process, uniquely for each start.
	Node string
	// Sync is how old what a daemon knows of another may be, 1 s by default. Each reports to every root twice in it, so
	// that use is reported, and the report heard of, in time.
	Sync time.Duration
	// LowBurst and HighBurst say how far use may be ahead of a window's limit, spread evenly over its span, as the time
	// in which the limit allows that much: from LowBurst on a growing part is denied, from HighBurst on everything. A
	// unit more than nothing is always within both. By default 1 s and 2 s.
	LowBurst, HighBurst time.Duration
	Logger              *slog.Logger
	// Registerer receives the metrics.
	Registerer prometheus.Registerer

	now     func() time.Time // in the place of time.Now, in tests
	timeout time.Duration    // of a report; half of Sync, but in tests
}

func (o *EventualOptions) validate() error {
	if o.Sync == 0 {
		o.Sync = defaultSync
	}
	if o.LowBurst == 0 && o.HighBurst == 0 {
		o.LowBurst, o.HighBurst = defaultLowBurst, defaultHighBurst
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.now == nil {
		o.now = time.Now
	}
	if o.timeout == 0 {
		o.timeout = o.Sync / 2
	}
	switch {
	case len(o.Roots) == 0:
		return errors.New("limits: Roots is empty; eventual quotas need at least one Redis server")
	case o.Node == "":
		return errors.New("limits: Node is missing")
	case o.Registerer == nil:
		return errors.New("limits: Registerer is missing")
	case o.Sync < 10*time.Millisecond || o.Sync > time.Minute:
		return errors.New("limits: Sync must be between 10ms and 1m")
	case o.LowBurst < 0 || o.HighBurst < o.LowBurst || o.HighBurst > time.Hour:
		return errors.New("limits: HighBurst must be between LowBurst and 1h, and LowBurst not negative")
	}
	return nil
}

// eventual keeps quotas of mode eventual. What a daemon used it counts in memory; asking touches no network. About once
// a second each daemon sends its totals to several independent roots and hears from each how far all daemons together
// are ahead of the limit; it goes by the root whose total is largest. In between it reckons with its own use and with
// the others' use so far.
//
// How far use is ahead is kept as a debt, the time in which the limit allows as much: it falls with the clock, never
// below nothing, so that idle time is no credit. A window is one debt, and the window that allows fewest units wins.
//
// All daemons together exceed limit * time / span + HighBurst by at most what the published bound says, and by a job
// that began within it: a daemon that is not alone never uses more than the whole rate by itself, but for a tenth of a
// sync, so that is all that the others do not know of; and when it does not hear of them in time, its part of the rate.
//
// The zero value is not usable. All methods may be called concurrently.
type eventual struct {
	opt   EventualOptions
	base  time.Time // local times are nanoseconds since then
	roots []*root
	bound *prometheus.GaugeVec

	mu      sync.Mutex // of everything below, and of the quotas
	quotas  map[string]*soft
	failing int // roots that did not answer
	rtt     int64
}

// root is one of the servers.
type root struct {
	client  redis.UniversalClient
	index   int
	kick    chan struct{} // there is a quota the root has not been asked for
	failing bool          // under the mutex of eventual
}

func newEventual(o EventualOptions) (*eventual, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	e := &eventual{
		opt: o, base: o.now(), quotas: map[string]*soft{},
		bound: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "pacer_eventual_overshoot_bound_units",
			Help: "How many units an eventual quota may be exceeded by: (daemons - 1) * rate * (sync + round trip).",
		}, []string{"quota"}),
	}
	for i, c := range o.Roots {
		e.roots = append(e.roots, &root{client: c, index: i, kick: make(chan struct{}, 1)})
	}
	if err := o.Registerer.Register(e.bound); err != nil {
		return nil, fmt.Errorf("register metrics of eventual quotas: %w", err)
	}
	return e, nil
}

// run synchronises with the roots until ctx ends, and then once more, so that what was used last is known to the other
// daemons. A root that does not answer does not hold up the others.
func (e *eventual) run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, r := range e.roots {
		running.Go(func() { e.follow(ctx, r) })
	}
	running.Wait()
	return nil
}

func (e *eventual) follow(ctx context.Context, r *root) {
	for ctx.Err() == nil {
		e.sync(ctx, r)
		// Daemons that were started together should not report together.
		timer := time.NewTimer(e.pause())
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
// Sync.
func (e *eventual) pause() time.Duration {
	most := e.opt.Sync * 45 / 100
	return most - time.Duration(rand.Int64N(int64(most)/5))
}

// now is the local time.
func (e *eventual) now() int64 { return int64(e.opt.now().Sub(e.base)) }

// allow takes up to want units of the quota and returns how many it took. What is not used goes back with giveBack.
func (e *eventual) allow(q *delivery.Quota, want int64) int64 {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.soft(q, now)
	n := s.room(want, e.limits())
	s.take(n)
	return n
}

// fits takes the units of as many of the jobs at the head of a queue, whose sizes are given, as the quota allows, and
// returns how many jobs that is. A job fits if its first unit does.
func (e *eventual) fits(q *delivery.Quota, sizes []int64) int {
	now := e.now()
	var want, used int64
	for _, n := range sizes {
		want += n
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.soft(q, now)
	room := s.room(max(want, 1), e.limits())
	jobs := 0
	for jobs < len(sizes) && used < room {
		used += sizes[jobs]
		jobs++
	}
	s.take(used)
	return jobs
}

// giveBack returns units that were taken and not used.
func (e *eventual) giveBack(q *delivery.Quota, units int64) {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.soft(q, now).take(-units)
}

// wait is how long it will take, about, until the quota allows anything; 0 if it does now.
func (e *eventual) wait(q *delivery.Quota) time.Duration {
	now := e.now()
	e.mu.Lock()
	defer e.mu.Unlock()
	return time.Duration(e.soft(q, now).wait(e.limits()))
}

// limits are what the decisions of all quotas go by.
func (e *eventual) limits() softLimits {
	return softLimits{low: int64(e.opt.LowBurst), high: int64(e.opt.HighBurst), sync: int64(e.opt.Sync), rtt: e.rtt}
}

// soft finds the quota, brought to the newest revision and to now.
func (e *eventual) soft(q *delivery.Quota, now int64) *soft {
	s := e.quotas[q.ID]
	if s == nil {
		s = newSoft(q, now)
		e.quotas[q.ID] = s
		for _, r := range e.roots {
			select {
			case r.kick <- struct{}{}:
			default:
			}
		}
	}
	if q.Revision > s.quota.Revision {
		s.become(q)
	}
	s.asked = now
	s.advance(now, e.limits())
	return s
}
