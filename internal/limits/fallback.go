package limits

import (
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// Microseconds of store time.
const (
	// outageAfter is how long a store must have been silent before anything is granted without it. Shorter silences,
	// such as one lost packet, only make jobs wait: nobody has to find out what others did meanwhile.
	outageAfter = int64(500_000)
	// recheck is how soon a daemon asks again after a local answer, and so how soon it notices that the store is back.
	recheck = int64(250_000)
	// acquainted is how long a daemon must have asked for a campaign to know the others, and they it.
	acquainted = int64(2_000_000)
)

// localIncarnation marks the answers that were given without a store.
const localIncarnation = -1

// fallback grants without the store, as the policies of a campaign's quotas allow.
//
// Every answer of the store is looked at, so that when it fails the process knows the rate in force, how many daemons
// ask, and what is left of each window. A daemon then keeps a timeline of its own, at its damped share of the rate, and
// windows of its share of the limits, in a model.Store. Daemons do not hear of each other, so the sum of what they send
// stays within the limits only because of when they begin and end:
//
//   - They begin outageAfter, at least a horizon, and one slot after the first failure: no grant of the store is left.
//   - In the first span a window holds a daemon's share of the limit less its share of what may have been used. That is
//     what the last answer said and, from then to the first failure, all that the quota's campaigns can have been
//     granted.
//   - When the store is back, whoever comes first does not know what the others sent. What was granted locally is
//     charged before the first take, and until everybody has had the time to do so nobody gets slots (heldUntil).
//
// What is needed of the caller: an attempt to reach the store is under way or failed less than recheck before every local answer; what
// spent returns is charged before a take is tried, whether jobs wait or not, at least every recheck. The sum is not bounded against a daemon
// that is cut off from a store which goes on serving the others.
//
// The zero value is not usable. All methods may be called concurrently.
type fallback struct {
	log      *slog.Logger
	granted  *prometheus.CounterVec
	patience int64 // how long it takes at most to find out that an attempt failed
	shards   int

	mu        sync.Mutex // of everything below
	campaigns map[string]*seenCampaign
	quotas    map[string]*seenQuota
	groups    map[shardSet]*shardGroup
	owing     map[*seenQuota]bool // those with units to be charged
	pruned    int64
	local     *model.Store // of the outages that are under way
}

// newFallback makes a fallback for so many shards. patience is the longest time from an attempt to reach the store to
// its failure.
func newFallback(log *slog.Logger, r prometheus.Registerer, shards int, patience time.Duration) (*fallback, error) {
	f := &fallback{
		log: log, patience: patience.Microseconds(), shards: shards,
		granted: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "pacer_local_granted_total", Help: "Units granted while the quota store did not answer, by policy.",
		}, []string{"policy"}),
		campaigns: map[string]*seenCampaign{}, quotas: map[string]*seenQuota{},
		groups: map[shardSet]*shardGroup{}, owing: map[*seenQuota]bool{},
	}
	for _, p := range []string{delivery.PolicyLocalShare, delivery.PolicyOpen} {
		f.granted.WithLabelValues(p)
	}
	if err := r.Register(f.granted); err != nil {
		return nil, fmt.Errorf("register metrics of the local fallback: %w", err)
	}
	return f, nil
}

// binding tells whether the store holds a quota's windows to their limits.
func binding(q *delivery.Quota) bool {
	return len(q.Windows) > 0 && (q.Mode == "" || q.Mode == delivery.ModeStrict)
}

// policyOf is the strictest policy of the campaign's binding quotas; without any it is closed.
func policyOf(c *delivery.Campaign) string {
	policy := delivery.PolicyClosed
	for _, q := range c.Quotas {
		if !binding(q) {
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

// grant answers an ask that the store did not, at now, the store time as foretold by the caller. False: the policy does
// not allow it, or too little is known; the jobs wait.
func (f *fallback) grant(now int64, ask *delivery.Ask, out *delivery.Granted) bool {
	policy := policyOf(ask.Campaign)
	if policy == delivery.PolicyClosed {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.campaigns[ask.Campaign.ID]
	if v == nil {
		return false
	}
	if v.spec != ask.Campaign {
		f.link(v, ask.Campaign)
	}
	g := v.group
	f.fail(g, now)
	if !v.begin(ask) || now < g.failed+outageAfter {
		return false
	}
	for _, q := range v.quotas {
		if policy == delivery.PolicyLocalShare && q.at == 0 {
			return false // nobody knows what is left of it
		}
		q.begin(g.failed, max(v.count, g.daemons.most()), ask.Horizon+ask.LateTolerance)
	}
	f.announce(g, policy)
	f.take(now, v, ask, out)
	f.granted.WithLabelValues(policy).Add(float64(out.Units))
	return true
}

// take puts the ask to the local limiter.
func (f *fallback) take(now int64, v *seenCampaign, ask *delivery.Ask, out *delivery.Granted) {
	a := *ask
	a.Campaign = v.localCampaign(now, policyOf(ask.Campaign))
	a.HeldUntil = max(a.HeldUntil, v.last, v.start-v.share.Spacing())
	a.Gate = "" // the caller knows of the gates it has seen closed
	*out = f.local.Take(now, "local", []delivery.Ask{a}).Items[0]
	if out.Units > 0 {
		v.last = out.First.Advance(out.Units-1, out.Rate).Micros()
		for _, q := range v.quotas {
			q.unpaid, q.latest = q.unpaid+out.Units, out.GrantedAt
			q.widen = max(q.widen, a.Horizon+a.LateTolerance)
			f.owing[q] = true
		}
	}
	if out.Units < a.Want && (out.NextAt == 0 || out.NextAt > now+recheck) {
		out.NextAt = now + recheck
	}
	out.Revision, out.Daemons, out.Windows = v.inForce, v.count, nil
	out.From = delivery.Provenance{Shard: v.shard, Incarnation: localIncarnation, Campaign: ask.Campaign}
}

// heldUntil is the store time to tell the store in the place of ask.HeldUntil, at now: its timeline goes on after that.
// It is later while and just after the store did not answer, so that the local grants of all daemons have been used
// and charged before the store grants again. A daemon that is alone has nobody to wait for.
func (f *fallback) heldUntil(now int64, ask *delivery.Ask) int64 {
	if policyOf(ask.Campaign) == delivery.PolicyClosed {
		return ask.HeldUntil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	held, rate, shards, weight := ask.HeldUntil, ask.Campaign.Rate, f.shardsOf(ask.Campaign), heaviest(ask)
	if v := f.campaigns[ask.Campaign.ID]; v != nil {
		held, weight = max(held, v.last), max(weight, v.weight)
		shards |= shardBit(v.shard)
		if v.revision > ask.Campaign.Revision {
			rate = v.rate
		}
	}
	g := f.groups[shards]
	if g == nil || g.daemons.most() == 1 {
		return held
	}
	from, out := g.back, g.lasted
	if g.failing {
		from, out = now, out || now-g.before >= outageAfter
	}
	if !out {
		return held
	}
	gap := weight * shareOf(rate, g.daemons.most(), weight).Spacing()
	return max(held, from+f.patience+recheck+ask.Horizon+gap)
}

// spent is what was granted locally and must be charged to the windows of the shard's quotas, and forgets it. A window
// is charged no more than what can still lie in its span. What cannot be charged goes back with unspent.
func (f *fallback) spent(shard int) []charged {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []charged
	for q := range f.owing {
		if shardOf(q.spec, f.shards) != shard {
			continue
		}
		list = append(list, q.charges(f.local)...)
		q.unpaid, q.paidAt = 0, q.latest
		delete(f.owing, q)
	}
	return list
}

// owed lists the shards for which spent has something.
func (f *fallback) owed() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	seen := map[int]bool{}
	var shards []int
	for q := range f.owing {
		if shard := shardOf(q.spec, f.shards); !seen[shard] {
			seen[shard] = true
			shards = append(shards, shard)
		}
	}
	return shards
}

// unspent takes back charges that the store did not take.
func (f *fallback) unspent(list []charged) {
	f.mu.Lock()
	defer f.mu.Unlock()
	most := map[string]int64{}
	for _, c := range list {
		most[c.quota.ID] = max(most[c.quota.ID], c.units)
	}
	for id, units := range most {
		if q := f.quotas[id]; q != nil {
			q.unpaid += units
			f.owing[q] = true
		}
	}
}

// refund takes back a grant that was made locally, or the end of one. What has been charged meanwhile stays charged.
func (f *fallback) refund(g delivery.Grant) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v := f.campaigns[g.From.Campaign.ID]
	if v == nil || f.local == nil || g.Units <= 0 {
		return
	}
	local := &delivery.Campaign{ID: g.From.Campaign.ID}
	for _, spec := range g.From.Campaign.Quotas {
		q := f.quotas[spec.ID]
		if q == nil || !binding(spec) {
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
	f.local.Refund(0, []delivery.Grant{g})
}

// fail notes that the shards of a group did not answer.
func (f *fallback) fail(g *shardGroup, now int64) {
	g.latest = max(g.latest, now)
	if g.failing {
		return
	}
	idle := len(f.owing) == 0
	for _, o := range f.groups {
		idle = idle && !o.failing
	}
	if f.local == nil || idle {
		f.local = model.NewStore()
	}
	g.failing, g.failed, g.before = true, now, g.answered
}

// announce says once per outage and policy that a store is done without.
func (f *fallback) announce(g *shardGroup, policy string) {
	if g.announced[policy] {
		return
	}
	if g.announced == nil {
		g.announced = map[string]bool{}
	}
	g.announced[policy] = true
	if policy == delivery.PolicyOpen {
		f.log.Error("the quota store does not answer; quotas with policy open do not bind until it does")
		return
	}
	f.log.Warn("the quota store does not answer; daemons send their share of the last known rates",
		"daemons", g.daemons.most())
}
