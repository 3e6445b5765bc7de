package eventual

import (
	"math"
	"math/bits"

	"github.com/pacer/pacer/internal/delivery"
)

// softLimits are the bounds and times common to all eventual quotas, in nanoseconds. rtt is the last round trip to a root.
type softLimits struct{ low, high, sync, rtt int64 }

// soft is an eventual quota in this process. All times are local (Quotas.now), in nanoseconds.
type soft struct {
	quota   *delivery.Quota
	windows []*softWindow
	total   int64 // units used by this process; falls only by units given back
	asked   int64 // when the quota was last asked for
	at      int64 // the time up to which the debts are computed
	lost    bool  // no root has answered for too long

	heard   int64 // when the last report with an answer was sent; when reports began if none has had one since
	synced  bool  // a root has answered
	cluster int64 // total of all nodes in the last answer, units
	known   int64 // part of this process in cluster, units
	nodes   int64 // daemons in the last answer, at least 1

	// Use of the other daemons: others units in over nanoseconds, since the totals of ref.
	others, over int64
	ref          struct{ at, cluster, own int64 }
}

// softWindow is a window's debt: the time its limit takes to allow the units of use ahead of it, in nanoseconds.
type softWindow struct {
	span, limit int64 // nanoseconds, units
	debt        int64
	private     int64 // debt of this process alone, nanoseconds
	carry       int64 // fraction of a unit left over from the denied part
}

func newSoft(q *delivery.Quota, now int64) *soft {
	s := &soft{quota: q, at: now, nodes: 1}
	s.become(q)
	return s
}

// become applies a new definition and keeps the debts of its windows.
func (s *soft) become(q *delivery.Quota) {
	var windows []*softWindow
	for _, w := range q.Windows {
		n := &softWindow{span: int64(w.Span), limit: w.Limit}
		for _, o := range s.windows {
			if o.span == n.span {
				n.debt, n.private = o.debt, o.private
			}
		}
		windows = append(windows, n)
	}
	s.quota, s.windows = q, windows
}

// advance computes the debts at now: they fall with time, and the other daemons are assumed to continue at their rate.
// The private debt falls at the whole rate while the counts of the others are fresh, and at this process's part of it
// afterwards.
func (s *soft) advance(now int64, l softLimits) {
	passed := max(0, now-s.at)
	informed := min(passed, max(0, s.heard+l.sync+l.rtt-s.at))
	s.at = max(s.at, now)
	for _, w := range s.windows {
		w.private = max(0, w.private-informed-(passed-informed)/s.nodes)
		if w.limit <= 0 {
			continue
		}
		theirs := int64(0)
		if s.over > 0 {
			theirs = mulDiv(w.cost(s.others), passed, s.over)
		}
		w.debt = max(0, add(w.debt, theirs)-passed)
	}
	if s.lost = now-s.heard > lostAfter*l.sync; s.lost {
		s.others, s.over = 0, 0
	}
}

// free returns how many of want units may be used now.
func (s *soft) free(want int64, l softLimits) int64 {
	n := max(0, want)
	for _, w := range s.windows {
		switch {
		case w.limit <= 0:
			return 0
		case !s.lost:
			n = min(n, w.free(n, l), s.private(w, l))
		case s.quota.OnStoreFailure == delivery.PolicyOpen:
		case s.quota.OnStoreFailure == delivery.PolicyLocalShare && s.synced: // otherwise the share is not known
			n = min(n, s.private(w, l))
		default:
			return 0
		}
	}
	return n
}

// free returns how many of want units the debt allows: all below low, a decreasing part of them from there to high.
func (w *softWindow) free(want int64, l softLimits) int64 {
	low := max(l.low, w.cost(1))
	high := max(l.high, low)
	free := w.units(low - w.debt)
	if want <= free {
		return want
	}
	from := max(w.debt, low)
	rest := min(want-free, w.units(high-from))
	if rest == 0 || high == low {
		return free
	}
	hi, lo := bits.Mul64(uint64(rest), uint64(high-from))
	lo, c := bits.Add64(lo, uint64(w.carry)%uint64(high-low), 0)
	part, carry := bits.Div64(hi+c, lo, uint64(high-low)) // rest * (high-from) / (high-low) < 2^63
	w.carry = int64(carry)
	return free + int64(part)
}

// allowed returns the bound on the private debt, in nanoseconds. A daemon that is alone may use the whole burst; one that
// is not follows the rate, except for a tenth of a sync, since the others learn of its use only later.
func (s *soft) allowed(w *softWindow, l softLimits) int64 {
	if s.synced && s.nodes == 1 {
		return max(l.high, w.cost(1))
	}
	return max(l.sync/10, w.cost(1))
}

// private returns how many units this process may use before it gets counts of the others.
func (s *soft) private(w *softWindow, l softLimits) int64 {
	return w.units(s.allowed(w, l) - w.private)
}

// wait returns approximately how long it takes until a unit may be used, in nanoseconds, and the window that takes longest.
func (s *soft) wait(l softLimits) (longest int64, window int) {
	for i, w := range s.windows {
		takes := int64(0)
		switch {
		case w.limit <= 0 || s.lost && s.quota.OnStoreFailure != delivery.PolicyOpen:
			takes = l.sync
		case !s.lost:
			takes = max(add(w.debt, w.cost(1))-max(l.high, w.cost(1)), add(w.private, w.cost(1))-s.allowed(w, l))
		}
		if takes > longest {
			longest, window = takes, i
		}
	}
	return longest, window
}

// take counts used units; a negative number gives units back.
func (s *soft) take(units int64) {
	units = max(units, -s.total)
	s.total = add(s.total, units)
	for _, w := range s.windows {
		if w.limit <= 0 {
			continue
		}
		if units < 0 {
			back := w.cost(-units)
			w.debt, w.private = max(0, w.debt-back), max(0, w.private-back)
			continue
		}
		w.debt = add(w.debt, w.cost(units))
		if !s.lost || s.quota.OnStoreFailure != delivery.PolicyOpen {
			w.private = add(w.private, w.cost(units))
		}
	}
}

// rootAnswer is a root's answer about a quota.
type rootAnswer struct {
	cluster, nodes int64
	debts          []int64 // per window
}

// hear applies an answer to a report of the total own, sent at sent and answered now. The largest total is used; a
// smaller one only if the root with the larger total has not answered since.
func (s *soft) hear(a rootAnswer, windows []*softWindow, own, sent, now int64, l softLimits) {
	if a.cluster < s.cluster && now-s.heard <= l.sync+l.sync/2 {
		return
	}
	s.advance(now, l)
	switch passed := sent - s.ref.at; {
	case !s.synced || a.cluster < s.ref.cluster:
		s.ref.at, s.ref.cluster, s.ref.own = sent, a.cluster, own
	case passed >= l.sync/2:
		s.others, s.over = max(0, a.cluster-s.ref.cluster-(own-s.ref.own)), passed
		s.ref.at, s.ref.cluster, s.ref.own = sent, a.cluster, own
	}
	s.synced, s.heard, s.cluster, s.known, s.nodes = true, sent, a.cluster, own, max(1, a.nodes)
	for i, w := range windows {
		if w.limit > 0 {
			w.debt = add(a.debts[i], w.cost(max(0, s.total-own)))
		}
	}
	s.lost = now-s.heard > lostAfter*l.sync
}

// overshoot returns the published bound of the worst window, in units.
func (s *soft) overshoot(l softLimits) int64 {
	most := int64(1)
	for _, w := range s.windows {
		most = max(most, w.units(l.sync+l.rtt))
	}
	return (s.nodes - 1) * most
}

// cost returns how long the limit, above 0, takes to allow the units, in nanoseconds, rounded up.
func (w *softWindow) cost(units int64) int64 {
	d := mulDiv(units, w.span, w.limit)
	if d < math.MaxInt64/4 && uint64(d)*uint64(w.limit) != uint64(units)*uint64(w.span) {
		d++
	}
	return d
}

// units returns how many units the limit allows in d nanoseconds.
func (w *softWindow) units(d int64) int64 {
	if d <= 0 {
		return 0
	}
	return mulDiv(d, w.limit, w.span)
}

// mulDiv returns a * b / c, rounded down and at most a quarter of the largest integer, for non-negative numbers.
func mulDiv(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi >= uint64(c) {
		return math.MaxInt64 / 4
	}
	n, _ := bits.Div64(hi, lo, uint64(c))
	return int64(min(n, math.MaxInt64/4))
}

// add returns a + b without overflow.
func add(a, b int64) int64 { return min(a, math.MaxInt64/4) + min(b, math.MaxInt64/4) }
