// Package contention shares what a quota grants a daemon among the daemon's campaigns that wait for it. For the store the daemon is one of
// those who compete (delivery.Joint). Which of its campaigns gets how much is decided here.
package contention

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

const (
	second = int64(time.Second / time.Microsecond)

	// waitingTTL is how long after its last ask a campaign counts as waiting, and exhaustedTTL how long after it was used up last a
	// quota is remembered. Microseconds.
	waitingTTL, exhaustedTTL = 15 * second, 60 * second
	// refusedFor is how long a refusal answers for others: units may be handed back.
	refusedFor = second
	// maxWaves is how often the store is asked within one take. Those that are left then ask again a quantum later.
	maxWaves = 8
	// weightScale is the weight of a campaign on one daemon, in parts.
	weightScale = 1000
)

// Quotas are the quotas that campaigns of this daemon wait for. For each the daemon has one claim in the store, in proportion to the
// weights of the waiting campaigns. It looks how much falls to it, and shares that out by the store's rule. Units go in the order of the
// service they bring to a campaign, by its weight. The part of a campaign that asks again soon is kept for it. Who has been served least
// is asked for first. A refusal answers for all who wait behind, without the store.
//
// A campaign that waits on several daemons counts for a part of its weight on each. The zero value is ready; the time is the
// store's. It is safe for concurrent use.
type Quotas struct {
	mu     sync.Mutex
	takes  int64                  // numbers them; under mu
	swept  int64                  // when those that are gone were removed last; under mu
	quotas map[string]*contention // that were used up lately, by id; under mu
}

// contention is who waits for one quota, and what the store said of it last.
type contention struct {
	quota   *delivery.Quota // of the revision of the last answer
	waiting map[string]*member
	weights int64 // of all that wait
	dearest int64 // service of a unit to the one of the least weight
	grace   int64 // how late one may be for the time it was told
	begun   int64 // the service at which the last one began that was asked for: where new ones begin
	refused int64 // when something was refused last
	window  int   // which refused it, or has least
	next    int64 // when more may fall to the daemon
	stopped int64 // the take in which nothing more is asked for

	at      int64 // of the last answer
	looked  int64 // when the store said last what falls to the daemon; 0: nothing is known of that
	room    int64 // and how much of it is left
	until   int64 // nothing remains before; 0: something did
	gap     int64 // the longest time without a unit in the last spans,
	gapAt   int64 // and when it began
	windows []delivery.WindowState

	wave round
}

// member is a campaign that waits for the quota.
type member struct {
	weight  int64
	want    int64 // units that it has jobs for
	demand  int64 // how many of them it could use: see uses
	cut     int64 // when it was to ask again after the quota refused it last
	due     int64 // when it was told to ask again: later, nothing is kept for it
	daemons int64 // on which it waits, this one included
	seen    int64
	service int64 // what it was granted, by weight
	asks    int64 // the take in which it has no answer yet
	part    int64 // what falls to it in this wave
}

// Contender is what the store is asked for a campaign, and the answer.
type Contender struct {
	Own     *delivery.Ask // nil: nothing is asked
	Out     *delivery.Granted
	Daemons int64 // on the campaign's timeline, as far as known
}

// Run asks the store by send, and answers the asks behind a refusal itself. Those that are not answered in the end could not be asked
// for.
func (c *Quotas) Run(list []*Contender, now int64, from delivery.Provenance, send func([]*Contender)) {
	take := c.join(list, now)
	for waves := 0; len(list) > 0; waves++ {
		if waves >= maxWaves {
			c.stop(list, take)
		}
		chosen, later := c.choose(list, now, take, from)
		if len(chosen) > 0 {
			send(chosen)
			if !c.learn(chosen, take) {
				return
			}
		}
		list = later
	}
}

// join notes who waits, and numbers the take.
func (c *Quotas) join(list []*Contender, now int64) (take int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takes++
	if now >= c.swept+second || now < c.swept {
		c.sweep(now)
	}
	if len(c.quotas) == 0 {
		return c.takes
	}
	for _, x := range list {
		c.joinAll(x.Own, now)
	}
	return c.takes
}

// joinAll lets a campaign that waits for one of its quotas wait for all. The store does not see the daemon's own answers for one quota,
// and would forget the daemon in the others.
func (c *Quotas) joinAll(a *delivery.Ask, now int64) {
	refused := int64(math.MinInt64)
	for _, quota := range a.Campaign.Quotas {
		if q := c.of(quota, a); q != nil {
			refused = max(refused, q.refused)
		}
	}
	if refused == math.MinInt64 {
		return
	}
	for _, quota := range a.Campaign.Quotas {
		if !binds(quota, a) {
			continue
		}
		q := c.of(quota, a)
		if q == nil {
			q = c.add(quota, 0)
		}
		q.join(a, now, c.takes)
		q.refused = max(q.refused, refused)
	}
}

func (c *Quotas) add(quota *delivery.Quota, window int) *contention {
	if c.quotas == nil {
		c.quotas = map[string]*contention{}
	}
	q := &contention{quota: quota, waiting: map[string]*member{}, window: window}
	c.quotas[quota.ID] = q
	return q
}

// sweep removes those that are gone. Under mu.
func (c *Quotas) sweep(now int64) {
	c.swept = now
	for id, q := range c.quotas {
		for campaign, m := range q.waiting {
			if now > m.seen+waitingTTL || now < m.seen {
				q.leave(campaign)
			}
		}
		if now > q.refused+exhaustedTTL || now < q.refused {
			delete(c.quotas, id)
		}
	}
}

// of is what is known of a quota that was used up lately; nil: it was not, or it does not limit the ask. Under mu.
func (c *Quotas) of(quota *delivery.Quota, a *delivery.Ask) *contention {
	q := c.quotas[quota.ID]
	if q == nil || !binds(quota, a) {
		return nil
	}
	if q.quota.Revision != quota.Revision {
		q.quota, q.until, q.looked, q.window, q.windows = quota, 0, 0, 0, nil
	}
	return q
}

// binds reports whether the quota limits what is asked for by what is counted in the store.
func binds(q *delivery.Quota, a *delivery.Ask) bool {
	return a.Want > 0 && !a.Campaign.Rate.Zero() && q.Strict() && q.Covers(a.Campaign.ID)
}

func (q *contention) leave(campaign string) {
	if m := q.waiting[campaign]; m != nil {
		q.weights -= m.weight
		delete(q.waiting, campaign)
	}
}

func (q *contention) join(a *delivery.Ask, now, take int64) {
	m := q.waiting[a.Campaign.ID]
	if m == nil {
		m = &member{daemons: 1, service: q.begun}
		q.waiting[a.Campaign.ID] = m
	}
	q.grace = 2 * a.Quantum
	m.asks = take
	q.weights -= m.weight
	m.weight, m.seen, m.due = max(1, a.Campaign.PriorityWeight), now, now
	q.weights += m.weight
	m.want = a.Want
	m.demand = q.uses(m, a, 0, now)
	// Units that were not asked for are not owed later, beyond what the window holds.
	q.dearest = max(q.dearest, m.cost())
	m.service = max(m.service, q.begun-min(q.quota.Windows[q.window].Limit, delivery.MaxGrant)*q.dearest)
}

// contended are the quotas that an ask waits for. Under mu.
func (c *Quotas) contended(a *delivery.Ask) (list []*contention) {
	for _, quota := range a.Campaign.Quotas {
		if q := c.of(quota, a); q != nil && q.waiting[a.Campaign.ID] != nil {
			list = append(list, q)
		}
	}
	return list
}

// ranked is a Contender with the quotas that it waits for.
type ranked struct {
	*Contender
	in      []*contention
	service int64 // of the quota that decides, beyond where new ones begin
}

// choose divides the list into contenders to ask for now, in their order, and later. It answers the others.
func (c *Quotas) choose(list []*Contender, now, take int64, from delivery.Provenance) (chosen, later []*Contender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var order []ranked
	begun := map[*contention]bool{}
	for _, x := range list {
		in := c.contended(x.Own)
		if len(in) == 0 {
			chosen = append(chosen, x)
			continue
		}
		if i := slices.IndexFunc(in, func(q *contention) bool { return q.answers(now, take) }); i >= 0 {
			answer(x, in, in[i], in[i].next, now, from)
			continue
		}
		for _, q := range in {
			if !begun[q] {
				begun[q] = true
				q.begin(now, take)
			}
		}
		by := slices.MaxFunc(in, decides)
		order = append(order, ranked{x, in, by.waiting[x.Own.Campaign.ID].service - by.begun})
	}
	slices.SortStableFunc(order, func(a, b ranked) int {
		return cmp.Or(cmp.Compare(a.service, b.service), cmp.Compare(a.Own.Campaign.ID, b.Own.Campaign.ID))
	})
	var first []ranked
	var looks []*Contender
	free := map[*contention]bool{} // have units after all: one that they were kept for is refused itself
	for _, x := range order {
		i := slices.IndexFunc(x.in, func(q *contention) bool { return !q.admits(x.Own) })
		switch {
		case i < 0:
			for _, q := range x.in {
				q.admit(x.Own)
			}
			first = append(first, x)
		case !x.in[i].wave.known && !x.in[i].wave.looked:
			for _, q := range x.in {
				q.wave.looked = true
			}
			looks, later = append(looks, x.look()), append(later, x.Contender)
		case x.in[i].wave.known && !free[x.in[i]]:
			answer(x.Contender, x.in, x.in[i], min(x.in[i].next, x.in[i].wave.kept), now, from) // what there is is kept for others
			for _, q := range x.in {
				free[q] = len(x.in) > 1 || free[q]
			}
		default:
			later = append(later, x.Contender)
		}
	}
	for _, x := range first {
		x.claim()
		chosen = append(chosen, x.Contender)
	}
	return append(chosen, looks...), later
}

// mayHope reports whether units are kept for the member.
func (m *member) mayHope(now, grace int64) bool {
	return m.demand > 0 && now <= m.hopesUntil(grace)
}

func (m *member) hopesUntil(grace int64) int64 { return min(m.due+grace, m.seen+waitingTTL) }

// cost is the service that a unit brings to the member. A campaign that waits on several daemons gets a part of its units on each.
func (m *member) cost() int64 { return model.Cost(m.weight) * m.daemons }

// below is how many of the member's units begin at less service.
func (m *member) below(level int64) int64 {
	cost := m.cost()
	return max(0, (level-m.service+cost-1)/cost)
}

// stop ends the take for those that are left, where the store said anything of their quota.
func (c *Quotas) stop(list []*Contender, take int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, x := range list {
		for _, q := range c.contended(x.Own) {
			if q.at > 0 {
				q.stopped = take
			}
		}
	}
}

// answers reports whether what was refused before answers an ask of now.
func (q *contention) answers(now, take int64) bool {
	return q.stopped == take || q.until > now && now < q.at+refusedFor && now > q.at-refusedFor
}
