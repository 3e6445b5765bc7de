package local

import (
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/shards"
)

// Microseconds of store time.
const (
	// outageAfter is how long a store must not have answered before anything is granted without it. Shorter
	// silences, such as one lost packet, only make jobs wait, and need no charging afterwards.
	outageAfter = int64(500_000)
	// Recheck is the time after which a daemon asks again after a local answer, and notices that the store is back.
	Recheck = int64(250_000)
	// acquainted is how long a daemon must have asked for a campaign before it and the other daemons
	// know of each other.
	acquainted = int64(2_000_000)
)

// Epoch marks the answers that were given without a store.
const Epoch = -1

// Fallback grants without the store, as the policies of a campaign's quotas allow.
//
// Every answer of the store is observed, so that when it fails the process knows the rate in force and what is left of
// each window. All daemons of the fleet are reckoned with, those as well that have no jobs of a campaign: they may get
// some. Their number is the largest of the last minutes. A daemon then keeps its own timeline, at its reduced share of the rate, and
// windows of its share of the limits, in a model.Store. Daemons do not communicate, so the sum of what they send stays
// within the limits only because of when they begin and end:
//
//   - They begin outageAfter, at least a horizon, and one slot after the first failure: no grant of the store is left
//     then.
//   - In the first span a window allows a daemon's share of the limit less its share of the units that may have been
//     used: the use in the last answer and, from then to the first failure, the most that the quota's campaigns can
//     have been granted.
//   - When the store is back, the first daemon to ask does not know what the others sent. Local grants are
//     charged before the first take, and no slots are granted until all daemons have had the time to do so
//     (LastGranted).
//
// Before every local answer, the caller must have an attempt to reach the store in flight, or one that failed less than Recheck before.
// It must charge the units returned by Spent before a take is tried. It must do so at least every Recheck, whether jobs wait or not. The
// sum is not bounded if a daemon is cut off from a store which still serves the others.
//
// The zero value is not usable. All methods may be called concurrently.
type Fallback struct {
	log      *slog.Logger
	granted  *prometheus.CounterVec
	fleet    func() int
	patience int64 // the longest time until an attempt is known to have failed

	mu        sync.Mutex // of everything below
	campaigns map[string]*seenCampaign
	quotas    map[string]*seenQuota
	shards    []seenShard
	owing     map[*seenQuota]bool // those with units to be charged
}

// Options configure a Fallback.
type Options struct {
	Shards   int
	Patience time.Duration // the longest time from an attempt to reach the store to its failure
	// Fleet is how many daemons there are, as far as known; 0: not at all. nil: only those count that are seen to ask for
	// the same campaigns.
	Fleet      func() int
	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// New makes a Fallback.
func New(o Options) *Fallback {
	if o.Fleet == nil {
		o.Fleet = func() int { return 0 }
	}
	f := &Fallback{
		log: o.Logger, fleet: o.Fleet, patience: o.Patience.Microseconds(), shards: make([]seenShard, o.Shards),
		granted: promauto.With(o.Registerer).NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_local_granted_total", Help: "Units granted while the quota store did not answer, by policy.",
		}, []string{"policy"}),
		campaigns: map[string]*seenCampaign{}, quotas: map[string]*seenQuota{},
		owing: map[*seenQuota]bool{},
	}
	for i := range f.shards {
		f.shards[i].local = model.NewStore()
	}
	for _, p := range []string{delivery.PolicyLocalShare, delivery.PolicyOpen} {
		f.granted.WithLabelValues(p)
	}
	return f
}

// binding reports whether the store enforces the limits of a quota's windows for a campaign.
func binding(q *delivery.Quota, campaign string) bool { return q.Strict() && q.Covers(campaign) }

// policyOf is the strictest policy of the campaign's binding quotas; without any it is closed.
func policyOf(c *delivery.Campaign) string {
	policy := delivery.PolicyClosed
	for _, q := range c.Quotas {
		if !binding(q, c.ID) {
			continue
		}
		switch q.OnStoreFailure {
		case delivery.PolicyOpen:
			if policy == delivery.PolicyClosed {
				policy = delivery.PolicyOpen
			}
		case delivery.PolicyLocalShare:
			policy = delivery.PolicyLocalShare
		default:
			return delivery.PolicyClosed
		}
	}
	return policy
}

// Grant answers an ask that the store did not answer, at now, the store time as predicted by the caller. It returns
// false if the policy does not allow it, or too little is known; the jobs wait then.
func (f *Fallback) Grant(now int64, ask *delivery.Ask, out *delivery.Granted) bool {
	policy := policyOf(ask.Campaign)
	if policy == delivery.PolicyClosed {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.campaign(ask.Campaign) // policyOf found a binding quota
	g := v.home
	f.fail(g, now)
	start, known := v.begin(ask)
	if !known || now < g.failed+outageAfter {
		return false
	}
	for _, q := range v.quotas {
		if policy == delivery.PolicyLocalShare && q.at == 0 {
			return false // it is not known what is left of it
		}
		q.begin(g.failed, g.daemons.max(), ask.Horizon+ask.LateTolerance)
	}
	f.announce(g, policy)
	a := *ask
	a.Campaign = v.localCampaign(now, policy)
	a.LastGranted = max(a.LastGranted, v.last, start-v.share.Spacing())
	a.Gate = "" // the caller knows of the gates it has seen closed
	f.take(now, v, a, out)
	out.From = delivery.Provenance{Shard: v.shard, Epoch: Epoch, Campaign: ask.Campaign}
	f.granted.WithLabelValues(policy).Add(float64(out.Units))
	return true
}

// take asks the local limiter.
func (f *Fallback) take(now int64, v *seenCampaign, a delivery.Ask, out *delivery.Granted) {
	*out = v.home.local.Take(now, "local", []delivery.Ask{a}).Items[0]
	if out.Units > 0 {
		v.last = out.First.Advance(out.Units-1, out.Rate).Micros()
		for _, q := range v.quotas {
			q.unpaid, q.latest = q.unpaid+out.Units, out.GrantedAt
			q.widen = max(q.widen, a.Horizon+a.LateTolerance)
			f.owing[q] = true
		}
	}
	if out.Units < a.Want && (out.NextAt == 0 || out.NextAt > now+Recheck) {
		out.NextAt = now + Recheck
	}
	out.Revision, out.Daemons, out.Windows = max(v.revision, v.spec.Revision), v.home.daemons.max(), nil
}

// LastGranted is the store time to send to the store in place of ask.LastGranted, at now: its timeline continues after
// that. It is later during and just after an outage, so that the local grants of all daemons have been used and charged
// before the store grants again. A daemon that is alone does not have to wait.
func (f *Fallback) LastGranted(now int64, ask *delivery.Ask) int64 {
	if policyOf(ask.Campaign) == delivery.PolicyClosed {
		return ask.LastGranted
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	held, rate, weight := ask.LastGranted, ask.Campaign.Rate, heaviest(ask)
	if v := f.campaigns[ask.Campaign.ID]; v != nil {
		held, weight = max(held, v.last), max(weight, v.weight)
		if v.revision > ask.Campaign.Revision {
			rate = v.rate
		}
	}
	shard, _ := f.homeOf(ask.Campaign) // policyOf found a binding quota
	g := &f.shards[shard]
	if g.daemons.max() == 1 {
		return held
	}
	from, out := g.back, g.lasted
	if g.failing {
		from, out = now, out || now-g.answered >= outageAfter
	}
	if !out {
		return held
	}
	gap := weight * shareOf(rate, g.daemons.max(), weight).Spacing()
	return max(held, from+f.patience+Recheck+ask.Horizon+gap)
}

// Spent is what was granted locally and must be charged to the windows of each shard's quotas, and forgets it. A window is charged no
// more than what can still lie in its span. Units that cannot be charged go back with unspent.
func (f *Fallback) Spent() [][]Charge {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.owing) == 0 {
		return nil
	}
	lists := make([][]Charge, len(f.shards))
	for q := range f.owing {
		shard := shards.Of(uint64(q.spec.Shard), len(f.shards))
		lists[shard] = append(lists[shard], q.charges(f.shards[shard].local)...)
		q.unpaid, q.before, q.paidAt = 0, q.paidAt, q.latest
	}
	clear(f.owing)
	return lists
}

// Charge is a local grant that has to be charged to the store: units of a quota, which may still be sent for Widen
// microseconds.
type Charge struct {
	Quota        *delivery.Quota
	Units, Widen int64
}

// Unspent takes back charges that the store did not take.
func (f *Fallback) Unspent(list []Charge) {
	f.mu.Lock()
	defer f.mu.Unlock()
	most := map[string]int64{}
	for _, c := range list {
		most[c.Quota.ID] = max(most[c.Quota.ID], c.Units)
	}
	for id, units := range most {
		if q := f.quotas[id]; q != nil {
			q.unpaid, q.paidAt = q.unpaid+units, q.before
			f.owing[q] = true
		}
	}
}

// Refund takes back a grant that was made locally, or the end of one. Units that have been charged meanwhile stay
// charged.
func (f *Fallback) Refund(g delivery.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.campaigns[g.From.Campaign.ID]
	if v == nil || g.Units <= 0 {
		return
	}
	local := &delivery.Campaign{ID: g.From.Campaign.ID}
	for _, spec := range g.From.Campaign.Quotas {
		q := f.quotas[spec.ID]
		if q == nil || !binding(spec, local.ID) {
			continue
		}
		local.Quotas = append(local.Quotas, q.counting())
		if g.GrantedAt > q.paidAt {
			q.unpaid = max(0, q.unpaid-g.Units)
		}
		if q.unpaid == 0 {
			delete(f.owing, q)
		}
	}
	g.Revision, g.From.Campaign = v.version, local
	v.home.local.Refund(0, []delivery.Grant{g})
}

// fail records that a shard did not answer.
func (f *Fallback) fail(g *seenShard, now int64) {
	g.latest = max(g.latest, now)
	if g.failing {
		return
	}
	g.failing, g.failed = true, now
}

// Forget drops the times of a shard whose clock has jumped. Its campaigns are to become acquainted anew; units to be charged stay.
func (f *Fallback) Forget(shard int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.shards[shard] = seenShard{local: f.shards[shard].local}
	for _, v := range f.campaigns {
		if v.shard == shard {
			v.first, v.at, v.last = 0, 0, 0
		}
	}
	for _, q := range f.quotas {
		if shards.Of(uint64(q.spec.Shard), len(f.shards)) == shard {
			q.at, q.failed, q.latest, q.paidAt = 0, 0, 0, 0
		}
	}
}

// announce logs once per outage and policy that grants are made without the store.
func (f *Fallback) announce(g *seenShard, policy string) {
	if g.announced[policy] {
		return
	}
	if g.announced == nil {
		g.announced = map[string]bool{}
	}
	g.announced[policy] = true
	if policy == delivery.PolicyOpen {
		f.log.Error("the quota store does not answer; quotas with policy open are not enforced until it does")
		return
	}
	f.log.Warn("the quota store does not answer; daemons send their share of the last known rates",
		"daemons", g.daemons.max())
}
