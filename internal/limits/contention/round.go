package contention

import (
	"cmp"
	"math"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// round is what is asked for at once.
type round struct {
	known  bool  // how much falls to the daemon
	alone  bool  // one campaign waits: nothing is shared out
	looked bool  // the store is asked how much falls to the daemon
	level  int64 // units that begin at less service are shared out,
	extra  int64 // and so many of those that begin at it
	demand int64 // of the campaigns asked for
	kept   int64 // when units that are kept for one that cannot ask now go to the others

	// Of all that wait.
	weights int64 // on this daemon, in parts
	hopes   int64 // what they could use
	due     int64 // when the last of them asks again
}

// begin begins a wave.
func (q *contention) begin(now, take int64) {
	w := round{
		known: q.looked > 0 && q.until == 0 && now < q.looked+q.grace && now > q.looked-q.grace,
		alone: len(q.waiting) == 1, kept: math.MaxInt64,
	}
	var list []*member
	interval := int64(0)
	if q.quota.Spend == delivery.SpendEven { // those who ask when what they need has come again lose nothing
		interval = q.quota.Interval()
	}
	reset := q.resetOf(q.window, now)
	for _, m := range q.waiting {
		if m.mayHope(now, q.grace) && (reset == 0 || m.due < reset) && (interval == 0 || (m.due-now-1)/interval < m.demand) {
			if m.asks != take {
				if m.demand == 1 && interval == 0 && now < q.next && q.next <= m.due {
					continue // what comes back until it asks will do
				}
				w.kept = min(w.kept, m.hopesUntil(q.grace)+1)
			}
			list = append(list, m)
			w.weights, w.hopes = w.weights+m.weight*weightScale/m.daemons, w.hopes+m.demand
			w.due = max(w.due, m.due)
		}
	}
	w.level, w.extra = levelOf(list, q.room)
	q.wave = w
}

// levelOf returns the highest service level that the room allows for the demand of all, and the units left at it.
func levelOf(list []*member, room int64) (level, extra int64) {
	if len(list) == 0 {
		return 0, room
	}
	low, high := list[0].service, list[0].service
	for _, m := range list {
		low, high = min(low, m.service), max(high, m.service+min(m.demand, room)*m.cost())
	}
	left := func(level int64) int64 {
		left := room
		for _, m := range list {
			if left -= min(m.demand, m.below(level)); left < 0 {
				break
			}
		}
		return left
	}
	for low < high {
		middle := low + (high-low+1)/2
		if left(middle) >= 0 {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low, left(low)
}

// decides compares two quotas of a campaign; the greater one orders its asks. It is the one of unknown room, else the one that more wait for.
func decides(a, b *contention) int {
	if a.wave.known == b.wave.known {
		return cmp.Compare(len(a.waiting), len(b.waiting))
	}
	if b.wave.known {
		return 1
	}
	return -1
}

// part is how many units fall to a member now.
func (q *contention) part(m *member) int64 {
	if q.wave.alone {
		return m.want
	}
	n := m.below(q.wave.level)
	if m.service+n*m.cost() == q.wave.level && q.wave.extra > 0 {
		n++
	}
	return n
}

// admits reports whether an ask is made now.
func (q *contention) admits(a *delivery.Ask) bool {
	return (q.wave.known || q.wave.alone) && q.part(q.waiting[a.Campaign.ID]) > 0
}

func (q *contention) admit(a *delivery.Ask) {
	m := q.waiting[a.Campaign.ID]
	m.part = q.part(m)
	if m.part > m.below(q.wave.level) {
		q.wave.extra--
	}
	q.wave.demand += min(m.part, m.demand)
	q.begun = max(q.begun, m.service)
}

// joint is an ask on behalf of all that wait.
func (x *ranked) joint() *delivery.Ask {
	own := *x.Own
	own.Joint = make([]delivery.Joint, len(own.Campaign.Quotas))
	for i, quota := range own.Campaign.Quotas {
		for _, q := range x.in {
			if q.quota.ID == quota.ID {
				own.Joint[i] = delivery.Joint{
					Cost: max(1, model.Cost(1)*weightScale/max(1, q.wave.weights)), All: q.wave.hopes, Left: q.wave.hopes - q.wave.demand, Due: q.wave.due,
				}
			}
		}
	}
	return &own
}

// look is an ask for nothing, which tells how much falls to the daemon.
func (x *ranked) look() *Contender {
	own := x.joint()
	own.Want, own.Weights = 0, nil
	return &Contender{Own: own, Out: &delivery.Granted{}}
}

// claim makes the ask that of one of those that wait: for its part.
func (x *ranked) claim() {
	own := x.joint()
	want := own.Want
	for _, q := range x.in {
		want = min(want, max(1, q.waiting[own.Campaign.ID].part))
	}
	if want < own.Want {
		_, own.Want = own.Jobs(want, math.MaxInt64)
	}
	own.More = own.More || own.Want < x.Own.Want
	x.Own = own
}
