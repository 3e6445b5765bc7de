package keyed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/shards"
)

const (
	turnTimeout = 2 * batchTimeout // of turns, which jobs can do without
	turn, take  = "turn", "take"   // see check.what
	settling    = "settling"
	failPause   = time.Second // until a job is tried again while its shard does not answer

	// openAfter is how long a shard must have failed until quotas that are open let jobs pass. Lost data mostly limits again sooner: jobs that
	// passed meanwhile would come on top of what a key may be sent once more.
	openAfter = time.Second
)

// Sinks deliver jobs.
type Sinks interface {
	// Resolve returns the id of the configured sink for a campaign's sink name ("" for the default).
	Resolve(name string) (id string, ok bool)
	// Capacity returns how many calls of the sink may be in flight in this daemon.
	Capacity(id string) (inFlight int, ok bool)
	Deliver(ctx context.Context, id string, job *delivery.Job) delivery.Result
}

// Options of a Checker. All are required.
type Options struct {
	Sinks     Sinks
	Shards    *shards.Set
	KeyPrefix string
	Snapshot  func() *delivery.Snapshot // nil before the first
	// Epoch returns the epoch of a shard's data that is in force, 0 for any; false while none is known to be.
	Epoch      func(shard int) (epoch int64, known bool)
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// Checker says of jobs whether the keyed quotas of their campaigns allow them, and delivers them through other sinks. Reserve gives turns to jobs
// that wait in a queue, so that one that has to wait for its keys does so elsewhere, once; a turn is only a hint. Count counts a job whose slot is
// about to come. Deliver and Release end that: what is counted for a job that is not sent, or does not count, is given back. All quotas of a job
// allow it, or none counts it.
//
// All may be called by any number of goroutines while Run runs.
type Checker struct {
	Sinks // provides Resolve and Capacity

	options Options
	shards  []*shard // for what is sent, then for turns: reading a backlog must not delay what is sent
	waits   *waits
	slow    retry.Outage // answers that come too late
	counted sync.Map     // of *delivery.Job to the *group that counted it, until it is sent or given back
}

// New makes a Checker. It connects to nothing.
func New(o Options) *Checker {
	c := &Checker{Sinks: o.Sinks, options: o, waits: newWaits(o.Registerer)}
	o.Registerer.MustRegister(c.waits)
	for _, log := range []*slog.Logger{o.Logger, slog.New(slog.DiscardHandler)} {
		for i := range o.Shards.Count() {
			c.shards = append(c.shards, newShard(shard{client: o.Shards.Master(i), number: i, prefix: o.KeyPrefix, epochOf: o.Epoch, log: log.With("shard", i)}))
		}
	}
	return c
}

// Waits returns how the quotas let jobs wait, those with the most waiting jobs first.
func (c *Checker) Waits() []delivery.KeyWaits { return c.waits.list(time.Now()) }

// Run exchanges data with Redis until ctx ends, then sends what still waits and returns nil. It must outlive the last Deliver.
func (c *Checker) Run(ctx context.Context) error {
	var running sync.WaitGroup
	for _, s := range c.shards {
		running.Go(func() { s.Run(ctx) })
	}
	running.Wait()
	return nil
}

// limited returns the campaign of a job and its sink if keyed quotas limit the job; nil otherwise.
func (c *Checker) limited(j *delivery.Job) (campaign *delivery.Campaign, sink string) {
	if campaign = c.options.Snapshot().Campaign(j.Campaign); campaign == nil || len(campaign.Keyed) == 0 || j.State != nil || j.Flaw != nil {
		return nil, ""
	}
	sink, _ = c.Resolve(campaign.Sink)
	return campaign, sink
}

// checks returns a check of each quota that limits the job. Of a turn it reads only what does not change while the job waits.
func (c *Checker) checks(what string, campaign *delivery.Campaign, sink string, j *delivery.Job, now time.Time) *group {
	g := &group{margin: delivery.KeyMargin(time.Hour), ends: now.Add(time.Hour)}
	for _, q := range campaign.Keyed {
		value := j.KeyAt(sink, q.Per)
		if value == "" || !q.Binds() {
			continue
		}
		windows, ends := spec(q.WindowsOf(value), now, campaign.ZoneOf(j))
		g.ends = earlier(g.ends, ends)
		k := &check{
			group: g, what: what, id: idOf(q.ID, value), quota: q, value: value, units: j.Weight, most: forever, turned: what == take && j.HadTurn(),
			spec: windows, held: q.Keys[value].HeldUntil.Sub(now),
		}
		switch {
		case q.MaxWait == 0:
			k.most, k.turned = 0, true
		case q.MaxWait > 0:
			k.most = max(1, (q.MaxWait - now.Sub(j.FirstRead)).Milliseconds())
		}
		for _, w := range q.WindowsOf(value) {
			if g.margin = min(g.margin, delivery.KeyMargin(w.Span)); q.OnStoreFailure == delivery.PolicyClosed {
				k.lost = max(k.lost, widened(w))
			}
		}
		if k.lost > 0 {
			k.from = c.options.Snapshot().Stores[c.shardOf(k)].Add(k.lost)
		}
		g.checks = append(g.checks, k)
	}
	return g
}

// ask sends the checks to their shards, but for those of values that are held.
func (c *Checker) ask(groups ...*group) {
	parts := make([][]*check, len(c.shards))
	for _, g := range groups {
		g.left.Store(int32(len(g.checks)))
		for _, k := range g.checks {
			if k.held > 0 {
				k.holds()
				continue
			}
			at := c.shardOf(k)
			if k.what == turn {
				at += len(c.shards) / 2
			}
			parts[at] = append(parts[at], k)
		}
	}
	for i, part := range parts {
		if len(part) > 0 {
			c.shards[i].Add(part...)
		}
	}
}

func (c *Checker) shardOf(k *check) int { return k.id.shard(len(c.shards) / 2) }

// failing reports whether a shard of a check does not answer.
func (c *Checker) failing(g *group) bool {
	return slices.ContainsFunc(g.checks, func(k *check) bool { return c.shards[c.shardOf(k)].Failing() })
}

// passes reports whether the quota of a check lets jobs pass although it cannot be asked.
func (c *Checker) passes(k *check) bool {
	return k.held <= 0 && k.quota.OnStoreFailure == delivery.PolicyOpen && (errors.Is(k.err, errForeign) || c.shards[c.shardOf(k)].FailsFor() >= openAfter)
}

// Refuse marks the jobs that lack a key of a keyed quota, or are heavier than a window of it allows.
func (c *Checker) Refuse(jobs []*delivery.Job) {
	for _, j := range jobs {
		if campaign, sink := c.limited(j); campaign != nil && !j.Duplicate && !j.Cancelled && campaign.Status == delivery.StatusActive && !campaign.Rate.Zero() {
			j.Flaw = flaw(campaign, sink, j)
		}
	}
}

// Reserve reserves turns for the jobs that have to wait for their keys. It answers each once, at once or from another goroutine, within a second; the
// answer is empty if the job need not wait. leave gives the turn up.
func (c *Checker) Reserve(asks []delivery.KeyAsk, answer func(a delivery.KeyAsk, told delivery.KeyAnswer, leave func())) {
	now := time.Now()
	var groups []*group
	for _, a := range asks {
		g := c.checks(turn, a.Campaign, a.Sink, a.Job, now)
		leave := func() { c.ask(g.returns(nil)) }
		if len(g.checks) == 0 || c.failing(g) { // Count decides
			answer(a, delivery.KeyAnswer{}, leave)
			continue
		}
		g.by = now.Add(turnTimeout)
		g.ended = func(g *group) {
			var told delivery.KeyAnswer
			if by, wait, capped := g.verdict(); g.failure(c.passes) != nil {
				leave()
			} else if capped || wait > 0 {
				told = c.waits.tell(by, wait, capped)
			}
			answer(a, told, leave)
		}
		groups = append(groups, g)
	}
	c.ask(groups...)
}

// Count asks the keys of a job whose slot is about to come; answer is called once, at once or from another goroutine, within a second. If the job
// was counted, Deliver or Release is to be called.
func (c *Checker) Count(a delivery.KeyAsk, answer func(delivery.KeyAnswer)) {
	now := time.Now()
	g, passing := c.checks(take, a.Campaign, a.Sink, a.Job, now), &group{}
	g.checks = slices.DeleteFunc(g.checks, func(k *check) bool {
		passes := c.passes(k)
		if passes {
			k.group, passing.checks = passing, append(passing.checks, k)
		}
		return passes
	})
	c.ask(passing) // they count once Redis answers, and show that it does
	if len(g.checks) == 0 {
		answer(delivery.KeyAnswer{SendBy: delivery.StampOf(now.Add(g.margin))})
		return
	}
	g.job, g.by = a.Job, now.Add(g.margin)
	g.ended = func(g *group) { answer(c.decide(g)) }
	c.ask(g)
}

// decide returns what the keys of a job have answered.
func (c *Checker) decide(g *group) delivery.KeyAnswer {
	by, wait, capped := g.verdict()
	switch err := g.failure(c.passes); {
	case errors.Is(err, errLate) && !c.failing(g):
		return c.late(g, false)
	case err != nil:
		c.ask(g.returns(nil))
		return delivery.KeyAnswer{Wait: failPause, Reason: delivery.ReasonRetry}
	case capped || wait > 0:
		c.ask(g.returns(func(k *check) bool { return capped || k.counted() }))
		return c.waits.tell(by, wait, capped)
	}
	until := g.sendBy()
	if time.Now().After(until) {
		return c.late(g, true)
	}
	if time.Since(g.checks[0].asked) < delivery.LeastKeyMargin { // in time for any window
		c.slow.Worked()
	}
	c.counted.Store(g.job, g)
	return delivery.KeyAnswer{SendBy: delivery.StampOf(until)}
}

// lateInARow is how many answers in a row the log reports that come too late: more than a daemon asks at once, which may all meet one pause, or midnight.
const lateInARow = 1000

// late has a job asked about again that was answered too late, whether it was counted or not.
func (c *Checker) late(g *group, counted bool) delivery.KeyAnswer {
	if c.slow.Failed(); c.slow.Failures() == lateInARow {
		c.options.Logger.Warn("keyed quotas are answered too late, and their jobs are asked about again: bring Redis nearer, or set longer windows",
			"quota", g.checks[0].quota.ID, "answered_within", g.margin)
	}
	c.ask(g.returns(nil))
	return delivery.KeyAnswer{Late: counted}
}

// flaw returns why no quota will ever allow the job; nil otherwise.
func flaw(campaign *delivery.Campaign, sink string, j *delivery.Job) *delivery.Flaw {
	for _, q := range campaign.Keyed {
		switch value := j.KeyAt(sink, q.Per); {
		case !q.Binds() || q.Pass && value == "":
		case value == "" && q.Per != delivery.PerDestination:
			return &delivery.Flaw{Defect: delivery.ReasonMissingKey, Detail: fmt.Sprintf("quota %s is kept by %s: publish the job with the header %s%s, or set "+
				"keyless of the quota to pass", q.ID, q.Per, delivery.HeaderKey, q.Per)}
		case value != "" && j.Weight > lightest(q.WindowsOf(value)):
			return &delivery.Flaw{Defect: delivery.ReasonOverweight, Detail: fmt.Sprintf("its weight %d is above a limit of quota %s", j.Weight, q.ID)}
		}
	}
	return nil
}

// end returns what has counted the job, nil if nothing has, and forgets it.
func (c *Checker) end(j *delivery.Job) *group {
	g, _ := c.counted.LoadAndDelete(j)
	counted, _ := g.(*group)
	return counted
}

// Release gives back what was counted for a job that is not sent.
func (c *Checker) Release(j *delivery.Job) {
	if g := c.end(j); g != nil {
		c.ask(g.returns(nil))
	}
}

// Deliver sends the job, which was counted if its campaign has keyed quotas. The class of the result is the sink's.
func (c *Checker) Deliver(ctx context.Context, sink string, j *delivery.Job) delivery.Result {
	g := c.end(j)
	r := c.Sinks.Deliver(ctx, sink, j)
	if g == nil {
		return r
	}
	sent := r.Class <= delivery.Interrupted
	c.ask(g.returns(func(k *check) bool {
		return !sent || k.quota.Deliveries && r.Class != delivery.Delivered && r.Class != delivery.Pending && r.Class != delivery.Interrupted
	}))
	if r.Class == delivery.Throttled && r.RetryAfter > 0 {
		c.hold(g, r)
	}
	return r
}

// hold holds the key that a throttled answer is about, from now on: the destination, or else the recipient. It is held for all daemons.
func (c *Checker) hold(g *group, r delivery.Result) {
	about := slices.DeleteFunc(slices.Clone(g.checks), func(k *check) bool {
		return (k.quota.Per == delivery.PerDestination) != (r.Scope == delivery.ScopeDestination)
	})
	if r.Scope == delivery.ScopeCampaign || len(about) != 1 { // of several keys, none is known to be meant
		return
	}
	k := *about[0]
	k.group, k.what, k.most = &group{checks: []*check{&k}}, "hold", r.RetryAfter.Milliseconds()
	c.ask(k.group)
}

var (
	errLate    = errors.New("the check waited for too long")
	errShort   = errors.New("the script did not answer all checks")
	errLost    = errors.New("the shard's data is being looked for or rebuilt")
	errForeign = errors.New("another program has overwritten the key's hash: delete it")
)
