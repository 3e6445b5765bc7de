package model

import "sort"

// flow is one waiting party of a fair queue: its units start at virtual times at, at + cost, at + 2 cost, ..., and
// it wants demand of them.
type flow struct {
	at, cost, demand int64
	first            bool // goes before the asker on equal terms
}

// before is how many of the flow's units start before one of the asker's that starts at x.
func (f flow) before(x int64) int64 {
	d := x - f.at
	if d < 0 {
		return 0
	}
	n := d / f.cost
	if d%f.cost != 0 || f.first {
		n++
	}
	return min(n, f.demand)
}

// share is how many of room units, assigned one by one in order of virtual time, fall to an asker that wants
// at most want and whose units start at at, at + cost, ...
func share(at, cost, room, want int64, others []flow) int64 {
	if room <= 0 {
		return 0
	}
	want = min(want, room)
	// The n-th unit falls to the asker if fewer than room units are handed out before it; that grows with n.
	return int64(sort.Search(int(want), func(i int) bool {
		ahead := int64(i)
		x := at + int64(i)*cost
		for _, o := range others {
			ahead += o.before(x)
		}
		return ahead >= room
	}))
}

// Cost is the virtual service of one unit granted to a campaign of the given priority weight.
func Cost(weight int64) int64 { return max(1, costScale/max(1, weight)) }
