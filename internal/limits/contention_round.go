package limits

import (
	"cmp"
	"math"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// round is what is asked for at once.
type round struct {
	known  bool  // how much there is
	left   int   // how many campaigns are asked for if it is not
	ahead  bool  // it is not, and some of it is owed to a campaign that cannot ask now, before those that do
	looked bool  // the store is asked how much there is
	level  int64 // units that begin at less service are shared out,
	extra  int64 // and so many of those that begin at it
	demand int64 // of the campaigns asked for

	// Of all that wait.
	weights int64 // on this daemon, in parts
	hopes   int64 // what they could use
}

// begin begins a wave.
func (q *contention) begin(now, take int64, waves int) {
	w := round{known: q.until <= now && q.room > 0 && now < q.at+q.grace, left: maxOwnClaims << waves}
	var list []*member
	absent, present, interval := int64(math.MaxInt64), int64(math.MinInt64), int64(0)
	if q.quota.Spend == delivery.SpendEven { // those who ask when what they need has come again lose nothing
		interval = q.quota.Interval()
	}
	reset := q.resetOf(q.window, now)
	steps := model.Step(q.quota.Windows[q.window]) > 1 // many units come back at once, and soon again
	for _, m := range q.waiting {
		if m.mayHope(now, q.grace) && (reset == 0 || m.due < reset) && (interval == 0 || (m.due-now-1)/interval < m.demand) {
			first := int64(0) // units that it can be granted in this take
			if m.asks == take {
				if present, first = max(present, m.service), m.demand; !steps {
					first = m.soon
				}
			}
			if first < m.demand { // a whole unit is owed, not a part of one
				absent = min(absent, m.service+(first+1)*model.Cost(m.weight))
			}
			list = append(list, m)
			w.weights, w.hopes = w.weights+m.weight*weightScale/m.daemons, w.hopes+m.demand
		}
	}
	room := q.room
	if !w.known {
		room = delivery.MaxGrant
	}
	for _, window := range q.quota.Windows {
		limit := min(window.Limit, delivery.MaxGrant)
		if w.known && q.quota.Spend == delivery.SpendEven {
			limit = 1 + limit*q.ahead/window.Span.Microseconds() // what comes while slots are granted ahead
		}
		if !w.known || q.quota.Spend == delivery.SpendEven {
			room = min(room, limit)
		}
	}
	w.ahead = !w.known && absent < present
	w.level, w.extra = levelOf(list, room)
	q.wave = w
}

// levelOf returns the highest service level that the room allows for the demand of all, and the units left at it.
func levelOf(list []*member, room int64) (level, extra int64) {
	if len(list) == 0 {
		return 0, room
	}
	low, high := list[0].service, list[0].service
	for _, m := range list {
		low, high = min(low, m.service), max(high, m.service+min(m.demand, room)*model.Cost(m.weight))
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

// decides compares two crowds of a campaign; the greater one orders its asks. It is the one of unknown room, since only its first members
// ask, else the larger one.
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
	n := m.below(q.wave.level)
	if m.service+n*model.Cost(m.weight) == q.wave.level && q.wave.extra > 0 {
		n++
	}
	return n
}

// admits reports whether an ask is made now.
func (q *contention) admits(a *delivery.Ask) bool {
	if q.wave.ahead {
		return false
	}
	if q.wave.known {
		return q.part(q.waiting[a.Campaign.ID]) > 0
	}
	return q.wave.left > 0
}

func (q *contention) admit(a *delivery.Ask) {
	m := q.waiting[a.Campaign.ID]
	m.part = q.part(m)
	if m.part > m.below(q.wave.level) {
		q.wave.extra--
	}
	q.wave.left, q.wave.demand = q.wave.left-1, q.wave.demand+m.demand
	q.begun = max(q.begun, m.service)
}

// joint is an ask on behalf of all that wait.
func (x *ranked) joint() *delivery.Ask {
	own := *x.own
	own.Joint = make([]delivery.Joint, len(own.Campaign.Quotas))
	for i, quota := range own.Campaign.Quotas {
		for _, q := range x.in {
			if q.quota.ID == quota.ID {
				own.Joint[i] = delivery.Joint{
					Cost: max(1, model.Cost(1)*weightScale/max(1, q.wave.weights)), All: q.wave.hopes, Left: q.wave.hopes - q.wave.demand,
				}
			}
		}
	}
	return &own
}

// peekNext is an ask for nothing, which tells how much there is.
func (x *ranked) peekNext() *contender {
	own := x.joint()
	own.Want, own.Weights = 0, nil
	return &contender{own: own, out: &delivery.Granted{}}
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
	x.limited = x.limited || own.Want < x.own.Want
	x.own = own
}
