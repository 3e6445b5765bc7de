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
	failPause   = time.Second      // until a job is tried again while its shard does not answer
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

// Checker delivers jobs through other sinks as far as the keyed quotas of their campaigns allow. Reserve gives turns to jobs that wait in a
// queue, so that one that has to wait for its keys does so elsewhere, once; a turn is only a hint. Deliver counts a job just before it is
// sent. All quotas of a job allow it, or none counts it.
//
// Both may be called by any number of goroutines while Run runs.
type Checker struct {
	Sinks // provides Resolve and Capacity

	options Options
	shards  []*shard // for what is sent, then for turns: reading a backlog must not delay what is sent
	waits   *waits
	takes   sync.Map // of *delivery.Job to the *group that is not answered: until then no other is asked, which would meet its units
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
	g := newGroup()
	for _, q := range campaign.Keyed {
		value := j.KeyAt(sink, q.Per)
		if value == "" || !q.Binds() {
			continue
		}
		k := &check{
			group: g, what: what, id: idOf(q.ID, value), quota: q, value: value, units: j.Weight, most: forever, turned: what == take && j.HadTurn(),
			spec: spec(q.WindowsOf(value), now, campaign.ZoneOf(j)), from: millis(q.Keys[value].HeldUntil),
		}
		switch {
		case q.MaxWait == 0:
			k.most, k.turned = 0, true
		case q.MaxWait > 0:
			k.most = max(1, (q.MaxWait - now.Sub(j.FirstRead)).Milliseconds())
		}
		if q.OnStoreFailure == delivery.PolicyClosed {
			for _, w := range q.WindowsOf(value) {
				k.lost = max(k.lost, w.Span)
			}
			k.from = max(k.from, millis(c.options.Snapshot().Stores[c.shardOf(k)].Add(k.lost)))
		}
		g.checks = append(g.checks, k)
	}
	return g
}

// ask sends the checks to their shards.
func (c *Checker) ask(groups ...*group) {
	parts := make([][]*check, len(c.shards))
	for _, g := range groups {
		g.left.Store(int32(len(g.checks)))
		for _, k := range g.checks {
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

// Refuse marks the jobs that lack a key of a keyed quota, or are heavier than a window of it allows.
func (c *Checker) Refuse(jobs []*delivery.Job) {
	for _, j := range jobs {
		if campaign, sink := c.limited(j); campaign != nil && !j.Duplicate && !j.Cancelled && campaign.Status == delivery.StatusActive && !campaign.Rate.Zero() {
			j.Flaw = flaw(campaign, sink, j)
		}
	}
}

// Reserve reserves turns for the jobs that have to wait for their keys, and returns these, and those that may not wait so long.
func (c *Checker) Reserve(ctx context.Context, asks []delivery.TurnAsk) map[*delivery.Job]delivery.Turn {
	now, waits := time.Now(), map[*delivery.Job]delivery.Turn{}
	var groups []*group
	for _, a := range asks {
		if g := c.checks(turn, a.Campaign, a.Sink, a.Job, now); len(g.checks) > 0 && !c.failing(g) { // others must not wait for these
			g.job, g.late = a.Job, c.giveBack
			groups = append(groups, g)
		}
	}
	c.ask(groups...)
	ctx, cancel := context.WithTimeout(ctx, turnTimeout)
	defer cancel()
	for _, g := range groups {
		if !g.await(ctx) || g.failure() != nil {
			continue // Deliver decides
		}
		switch by, wait, capped := g.verdict(); {
		case capped:
			c.waits.refuse(by)
			waits[g.job] = delivery.Turn{Due: now.Add(wait), Capped: by.quota.ID}
		case wait > 0:
			c.waits.add(by, now.Add(wait))
			waits[g.job] = delivery.Turn{Due: now.Add(wait)}
		}
	}
	return waits
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

// cap records which quota the job may not wait for, and when it would be allowed.
func (c *Checker) cap(j *delivery.Job, by *check, wait time.Duration, now time.Time) {
	c.waits.refuse(by)
	j.Capped, j.Reason, j.Due = true, by.quota.ID, now.Add(wait)
}

// Deliver sends the job if its keyed quotas allow it now. The class of the result is the sink's, Withheld or Capped.
func (c *Checker) Deliver(ctx context.Context, sink string, j *delivery.Job) delivery.Result {
	campaign, at := c.limited(j)
	if campaign == nil || at != sink {
		return c.atSlot(ctx, sink, j)
	}
	begun := time.Now()
	g := c.checks(take, campaign, sink, j, begun)
	if len(g.checks) == 0 {
		return c.atSlot(ctx, sink, j)
	}
	failing := c.failing(g)
	if failing && g.open() {
		c.ask(g) // it counts once Redis answers, and shows that it does
		return c.atSlot(ctx, sink, j)
	}
	if j.SendBy == 0 {
		j.SendBy = delivery.StampOf(begun.Add(batchTimeout))
	}
	g.late = func(g *group) {
		c.giveBack(g)
		c.takes.Delete(j)
	}
	waiting, cancel := context.WithDeadline(ctx, j.SendBy.Time())
	defer cancel()
	if before, late := c.takes.Load(j); late {
		select {
		case <-before.(*group).done: // and its units are given back
		case <-waiting.Done():
			return delivery.Result{Class: delivery.Withheld}
		}
	}
	c.takes.Store(j, g)
	c.ask(g)
	if !g.await(waiting) {
		if failing {
			return delivery.Result{Class: delivery.Withheld, RetryAfter: failPause}
		}
		return delivery.Result{Class: delivery.Withheld}
	}
	c.takes.Delete(j)
	by, wait, capped := g.verdict()
	now := time.Now()
	switch {
	case g.failure() != nil:
		c.giveBack(g)
		return delivery.Result{Class: delivery.Withheld, RetryAfter: failPause}
	case capped:
		c.giveBack(g)
		c.cap(j, by, wait, now)
		return delivery.Result{Class: delivery.Capped}
	case wait > 0:
		c.giveBackIf(g, (*check).counted)
		c.waits.add(by, now.Add(wait))
		j.Turned = true
		return delivery.Result{Class: delivery.Withheld, RetryAfter: wait, Reason: delivery.ReasonKey}
	}
	ended := awaitSlot(ctx, j)
	if j.SendBy = min(j.SendBy, delivery.StampOf(g.sendBy())); ended != nil || time.Now().After(j.SendBy.Time()) {
		c.giveBack(g)
		return delivery.Result{Class: delivery.Withheld}
	}
	r := c.Sinks.Deliver(ctx, sink, j)
	sent := r.Class <= delivery.Interrupted
	c.giveBackIf(g, func(k *check) bool {
		return !sent || k.quota.Deliveries && r.Class != delivery.Delivered && r.Class != delivery.Pending && r.Class != delivery.Interrupted
	})
	if r.Class == delivery.Throttled && r.RetryAfter > 0 {
		c.hold(g, r)
	}
	return r
}

// atSlot sends a job that no key keeps from being sent.
func (c *Checker) atSlot(ctx context.Context, sink string, j *delivery.Job) delivery.Result {
	if awaitSlot(ctx, j) != nil {
		return delivery.Result{Class: delivery.Withheld}
	}
	return c.Sinks.Deliver(ctx, sink, j)
}

// awaitSlot waits until the job may be sent, well below delivery.KeyMargin. It returns the context's error if ctx ends first.
func awaitSlot(ctx context.Context, j *delivery.Job) error {
	if j.SendWithin == 0 {
		return nil
	}
	return retry.Sleep(ctx, time.Until(j.SendFrom()))
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
	k.group, k.what, k.most = newGroup(), "hold", millis(time.Now().Add(r.RetryAfter))
	c.ask(k.group.of(&k))
}

// giveBack gives up what a job was given and does not use.
func (c *Checker) giveBack(g *group) { c.giveBackIf(g, func(*check) bool { return true }) }

// giveBackIf hands the units of some of the checks back, and gives up their turns.
func (c *Checker) giveBackIf(g *group, which func(*check) bool) {
	back := newGroup()
	for _, k := range g.checks {
		b := *k
		switch b.group = back; {
		case k.err != nil || !which(k):
			continue
		case k.counted():
			b.what, b.most = "back", -k.answer
		case k.reserved() > 0:
			b.what, b.most = "leave", k.reserved() // it is the last one until then, since some time has passed
		default:
			continue
		}
		back.checks = append(back.checks, &b)
	}
	c.ask(back)
}

var (
	errLate  = errors.New("the check waited for too long")
	errShort = errors.New("the script did not answer all checks")
	errLost  = errors.New("the shard's data is being looked for or rebuilt")
)
