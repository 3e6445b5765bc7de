package model

import (
	"cmp"
	"slices"
)

// rival is a daemon that competes with others: for the slots of a campaign, or for the units of a quota.
type rival struct {
	node string
	seen int64 // its last ask
	// due is when it was told to ask again, by a quota (0: not soon), and demand how many units it wants beyond those that it was granted. A quota
	// keeps them for it until then, as long as others have been served more.
	due, demand int64
	cost        int64 // virtual service per unit: 1 of slots, and costScale / priority weights of the campaigns that wait for a quota
	service     int64 // virtual service received, comparable between rivals only
}

// until is how long the rival is awaited.
func (r *rival) until(grace int64) int64 { return min(r.due+grace, r.seen+claimFor) }

// awaited reports whether the rival was told to ask again, and may still do so.
func (r *rival) awaited(now, grace int64) bool { return r.due > 0 && now <= r.until(grace) }

// active reports whether units of a quota are kept for the rival.
func (r *rival) active(now, grace int64) bool { return r.demand > 0 && r.awaited(now, grace) }

// rivals are in the order in which they came.
type rivals []*rival

// join returns the daemon's rival, adds it at the end if it is new, and removes those that have gone: that were not seen for the time idle, nor
// are awaited. A rival may ask up to grace after its time.
func (l *rivals) join(now int64, node string, idle, grace int64) (self *rival, isNew bool) {
	*l = slices.DeleteFunc(*l, func(r *rival) bool { return r.node != node && now-r.seen > idle && now > r.until(grace) })
	if i := slices.IndexFunc(*l, func(r *rival) bool { return r.node == node }); i >= 0 {
		return (*l)[i], false
	}
	if len(*l) >= maxRivals {
		oldest := slices.MinFunc(*l, func(a, b *rival) int { return cmp.Compare(a.seen, b.seen) })
		*l = slices.DeleteFunc(*l, func(r *rival) bool { return r == oldest })
	}
	self = &rival{node: node}
	*l = append(*l, self)
	return self, true
}

// others returns the rivals that compete with one now, and the least service that any of these has received; if none does, the most of all.
func (l rivals) others(self *rival, competes func(*rival) bool) (others []flow, service int64) {
	first, high := true, int64(0)
	for _, r := range l {
		if r == self {
			first = false
			continue
		}
		high = max(high, r.service)
		if !competes(r) {
			continue
		}
		if len(others) == 0 || r.service < service {
			service = r.service
		}
		others = append(others, flow{at: r.service, cost: r.cost, demand: r.demand, first: first})
	}
	if len(others) == 0 {
		return nil, high
	}
	return others, service
}

// level keeps what was received small: only the differences matter.
func (l rivals) level() {
	if len(l) == 0 {
		return
	}
	low := slices.MinFunc(l, func(a, b *rival) int { return cmp.Compare(a.service, b.service) }).service
	for _, r := range l {
		r.service -= low
	}
}
