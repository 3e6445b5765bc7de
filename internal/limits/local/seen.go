package local

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/shards"
)

const (
	// recently is how long the largest number of daemons seen counts at least, and how old an answer may be when the store fails;
	// microseconds.
	recently = int64(60_000_000)
	// unseenAfter is how long a campaign is kept after it was last asked for; microseconds.
	unseenAfter = int64(600_000_000)
	// A daemon uses nine tenths of its share of a rate or a limit.
	damped, dampedOf = 9, 10
)

// homeOf returns the shard of a campaign's binding quotas; false if there is none.
func (f *Fallback) homeOf(c *delivery.Campaign) (shard int, ok bool) {
	for _, q := range c.Quotas {
		if binding(q, c.ID) {
			return shards.Of(uint64(q.Shard), len(f.shards)), true
		}
	}
	return 0, false
}

// seenShard records when a shard answered and failed, and how many daemons there were then. All times are store time, in
// microseconds.
type seenShard struct {
	answered  int64 // the latest answer; in an outage, the last one before it
	failing   bool
	failed    int64           // the first failure of the latest outage
	latest    int64           // the latest failure
	back      int64           // the first answer after it
	lasted    bool            // a daemon may have granted locally in it
	daemons   recent          // of the fleet
	announced map[string]bool // policies that were logged
	pruned    int64           // when its campaigns that are not asked for were forgotten last
	local     *model.Store    // grants of the latest outages, on the shard's clock
}

// recent is the largest of the numbers seen in the last one to two spans of recently. since is store time, in
// microseconds.
type recent struct{ current, previous, since int64 }

func (r *recent) observe(now, n int64) {
	switch age := now - r.since; {
	case age >= 2*recently:
		*r = recent{since: now}
	case age >= recently:
		*r = recent{previous: r.current, since: now}
	}
	r.current = max(r.current, n)
}

func (r *recent) max() int64 { return max(1, r.current, r.previous) }

// seenCampaign is a campaign as of the store's last answer, and its local share since the store failed. All times are
// store time, in microseconds.
type seenCampaign struct {
	spec      *delivery.Campaign // as last asked for
	home      *seenShard
	quotas    []*seenQuota // the binding ones
	shard     int
	rate      delivery.Rate
	revision  int64 // of rate
	first, at int64 // the first of the answers that came without a long pause, and the latest
	weight    int64 // the heaviest job whose slots may not have passed
	heavy     recent

	share   delivery.Rate // of this daemon, in an outage
	version int64         // of share
	last    int64         // the latest slot granted locally
}

// seenQuota is a quota as of the store's last answer, and the units taken from it locally. All times are store time,
// in microseconds.
type seenQuota struct {
	spec  *delivery.Quota // the newest seen
	users map[string]*seenCampaign
	at    int64   // of the latest answer
	used  []int64 // units used in that answer, per window

	failed  int64   // the outage of the fields below, identified by its first failure
	count   int64   // number of daemons
	taken   []int64 // this daemon's share of what may have been used, per window
	release []int64 // when these have left the window

	unpaid int64 // units granted locally and not yet charged
	latest int64 // when units were last granted locally
	paidAt int64 // grants up to then have been charged
	before int64 // the same without the latest charge
	widen  int64 // microseconds by which units may be sent later than granted
}

// Observe records an answer of the store. Items that were not answered are skipped.
func (f *Fallback) Observe(asks []delivery.Ask, reply *delivery.TakeReply) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range asks {
		if g := &reply.Items[i]; g.GrantedAt > 0 && g.From.Epoch != Epoch {
			f.see(&asks[i], g)
		}
	}
	for _, c := range reply.Clocks {
		g := &f.shards[c.Shard]
		f.answer(g, c.Now)
		if c.Now-g.pruned >= recently {
			g.pruned = c.Now
			f.prune(g, c.Now)
		}
	}
}

func (f *Fallback) see(ask *delivery.Ask, g *delivery.Granted) {
	v, now := f.campaign(ask.Campaign), g.GrantedAt
	if v == nil {
		return
	}
	if now-v.at > recently {
		v.first = now
	}
	v.at, v.rate, v.revision = now, g.Rate, g.Revision
	v.heavy.observe(now, heaviest(ask))
	if v.weight*v.rate.Spacing() < recently {
		v.weight = 1
	}
	v.weight = max(v.weight, v.heavy.max())
	f.answer(v.home, now)
	v.home.daemons.observe(now, g.Daemons)
	for _, w := range g.Windows {
		for _, q := range v.quotas {
			if q.spec.ID == w.Quota && w.Window < len(q.used) {
				q.at, q.used[w.Window] = now, max(0, q.spec.Windows[w.Window].Limit-w.Remaining)
			}
		}
	}
}

// campaign returns what is known of a campaign in the shard of its binding quotas; nil if it has none. Nothing is known yet of one that
// has moved there: the shards have different clocks, and the other one's answers say nothing about this one.
func (f *Fallback) campaign(c *delivery.Campaign) *seenCampaign {
	v := f.campaigns[c.ID]
	if v != nil && v.spec == c {
		return v
	}
	shard, bound := f.homeOf(c)
	if v != nil {
		f.unlink(v)
	}
	if !bound {
		return nil
	}
	if v == nil || v.home != &f.shards[shard] {
		v = &seenCampaign{home: &f.shards[shard], shard: shard, weight: 1}
	}
	f.link(v, c)
	return v
}

// unlink forgets a campaign.
func (f *Fallback) unlink(v *seenCampaign) {
	for _, q := range v.quotas {
		delete(q.users, v.spec.ID)
	}
	delete(f.campaigns, v.spec.ID)
}

// link connects a campaign to its quotas.
func (f *Fallback) link(v *seenCampaign, c *delivery.Campaign) {
	f.campaigns[c.ID] = v
	v.spec, v.quotas = c, nil
	for _, spec := range c.Quotas {
		if !binding(spec, c.ID) {
			continue
		}
		q := f.quotas[spec.ID]
		if q == nil {
			q = &seenQuota{spec: spec, users: map[string]*seenCampaign{}, used: make([]int64, len(spec.Windows))}
			f.quotas[spec.ID] = q
		}
		q.become(spec)
		q.users[c.ID] = v
		v.quotas = append(v.quotas, q)
	}
}

// become applies a newer definition. A new window counts as full until an answer says otherwise.
func (q *seenQuota) become(spec *delivery.Quota) {
	if spec == q.spec || spec.Revision < q.spec.Revision {
		return
	}
	used := make([]int64, len(spec.Windows))
	for i, w := range spec.Windows {
		used[i] = w.Limit
		for j, o := range q.spec.Windows {
			if o.Span == w.Span && j < len(q.used) {
				used[i] = q.used[j]
			}
		}
	}
	q.spec, q.used, q.failed = spec, used, 0
}

// answer records that a shard answers.
func (f *Fallback) answer(g *seenShard, now int64) {
	switch {
	case g.failing && now <= g.latest:
		return // from before the failure
	case g.failing:
		g.failing, g.back = false, now
		g.lasted = g.lasted || now-g.answered >= outageAfter
		if len(g.announced) > 0 {
			f.log.Info("the quota store answers again", "outage", time.Duration(now-g.failed)*time.Microsecond)
		}
		g.announced = nil
	case g.lasted && now-g.back > recently:
		g.lasted = false
	}
	g.answered = max(g.answered, now)
	g.daemons.observe(now, int64(f.fleet()))
}

// prune removes campaigns of a shard, and quotas, that have not been asked for within unseenAfter. It forgets local grants once all are
// charged, and no charge of them can be under way, which may fail.
func (f *Fallback) prune(g *seenShard, now int64) {
	for _, v := range f.campaigns {
		if v.home == g && now-v.at > unseenAfter && !g.failing {
			f.unlink(v)
		}
	}
	for id, q := range f.quotas {
		if len(q.users) == 0 && q.unpaid == 0 {
			delete(f.quotas, id)
		}
	}
	if len(f.owing) == 0 && !g.failing && !g.lasted {
		g.local = model.NewStore()
	}
}

// begin updates the campaign's share of the rate in an outage. It returns the time before which no slot may be, and whether enough is known
// to grant any.
func (v *seenCampaign) begin(ask *delivery.Ask) (start int64, ok bool) {
	g, rate := v.home, v.rate
	if v.spec.Revision > v.revision {
		rate = v.spec.Rate
	}
	v.weight = max(v.weight, heaviest(ask))
	share := shareOf(rate, g.daemons.max(), v.weight)
	if share != v.share || v.version == 0 {
		v.share = share
		v.version++
	}
	known := g.answered-v.at <= recently && v.at-v.first >= acquainted
	return g.failed + max(ask.Horizon, outageAfter) + v.weight*share.Spacing(), known && !share.Zero()
}

// localCampaign is the campaign for the local limiter: with this daemon's share of the rate and limits.
func (v *seenCampaign) localCampaign(now int64, policy string) *delivery.Campaign {
	c := &delivery.Campaign{ID: v.spec.ID, Revision: v.version, Rate: v.share, PriorityWeight: v.spec.PriorityWeight}
	for _, q := range v.quotas {
		local := q.counting()
		if policy != delivery.PolicyOpen {
			for i, w := range q.spec.Windows {
				local.Windows[i].Limit = q.share(now, i, w.Limit)
			}
		}
		c.Quotas = append(c.Quotas, local)
	}
	return c
}

// begin determines the quota's share in an outage that began at failed, if it is new.
func (q *seenQuota) begin(failed, daemons, widen int64) {
	if q.failed == failed && q.count >= daemons {
		return
	}
	q.failed, q.count = failed, daemons
	since := time.Duration(max(0, failed-q.at)+widen) * time.Microsecond
	var unseen int64
	for _, v := range q.users {
		rate := max(v.rate.UnitsIn(since), v.spec.Rate.UnitsIn(since))
		unseen = min(unseen+min(rate, model.MaxLimit)+min(v.spec.Burst, model.MaxLimit)+v.weight, model.MaxLimit)
	}
	q.taken, q.release = nil, nil
	for i, w := range q.spec.Windows {
		used := min(q.used[i]+unseen, w.Limit)
		q.taken = append(q.taken, (used+daemons-1)/daemons)
		q.release = append(q.release, failed+w.Span.Microseconds()+widen)
	}
}

// share is how many units of a window with the limit this daemon may have granted locally within its span.
func (q *seenQuota) share(now int64, window int, limit int64) int64 {
	n := limit * damped / dampedOf / q.count
	if now < q.release[window] {
		n -= q.taken[window]
	}
	return max(0, n)
}

// counting returns the quota for the local limiter, with windows that count without a limit. They are sliding windows, because their
// bound implies that of every other algorithm.
func (q *seenQuota) counting() *delivery.Quota {
	local := &delivery.Quota{ID: q.spec.ID}
	for _, w := range q.spec.Windows {
		w = delivery.Window{Span: w.Span, Limit: model.MaxLimit, Algorithm: delivery.AlgorithmSliding}
		local.Windows = append(local.Windows, w)
	}
	return local
}

// charges returns the units not charged yet, for each window at most as many as its span can hold.
func (q *seenQuota) charges(local *model.Store) []Charge {
	var list []Charge
	for i, state := range local.Peek(0, []*delivery.Quota{q.counting()}) {
		units := min(q.unpaid, model.MaxLimit-state.Remaining)
		if n := len(list); n > 0 && list[n-1].Units == units {
			list[n-1].Quota.Windows = append(list[n-1].Quota.Windows, q.spec.Windows[i])
			continue
		}
		if units > 0 {
			part := *q.spec
			part.Windows = []delivery.Window{q.spec.Windows[i]}
			list = append(list, Charge{Quota: &part, Units: units, Widen: q.widen})
		}
	}
	return list
}

// heaviest returns the weight of the heaviest job asked for.
func heaviest(ask *delivery.Ask) int64 {
	most := int64(1)
	for _, w := range ask.Weights {
		most = max(most, w)
	}
	return most
}

// shareOf returns each daemon's rate for jobs of up to the given weight. All together stay at or below the rate in the long run. In any
// second they send at most what the rate's own timeline would. Daemons that do not communicate may all send at once, so a rate of fewer
// units a second than there are other daemons cannot be shared: the zero Rate.
func shareOf(r delivery.Rate, daemons, weight int64) delivery.Rate {
	second := (r.UnitsIn(time.Second) + weight - daemons*(weight-1)) / daemons
	if second <= 0 {
		return delivery.Rate{}
	}
	hourly := min(r.UnitsIn(1_000_000*time.Hour)*damped/(dampedOf*daemons), second*3_600_000_000) // millionths of a unit
	for unit := int64(10); hourly/unit >= maxDigits; unit *= 10 {
		hourly -= hourly % unit
	}
	share, _ := delivery.NewRate(hourly, time.Hour) // slower than the slowest rate is the zero Rate, too
	return share
}

// maxDigits bounds the digits of a share: a rate takes no more.
const maxDigits = 10_000_000_000
