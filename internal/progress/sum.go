package progress

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// freshFor is how old a part may be for the contents of a daemon's memory to count.
	freshFor = 5 * time.Second
	// keepFor is how long a part is kept, which is long after other daemons have taken over the lanes of a dead one.
	keepFor = time.Minute
)

// reported is a part as read from the exchange.
type reported struct {
	*part
	daemon string
	age    time.Duration
}

func (r *reported) fresh() bool { return r.age < freshFor }

// decode decodes parts from the exchange, those that are not too old. Those that cannot be read are ignored; err is of the last one.
func decode(left []Left) (parts []reported, err error) {
	for _, l := range left {
		if l.Age >= keepFor {
			continue
		}
		p, failed := decodePart(l.Part)
		if failed != nil {
			err = fmt.Errorf("daemon %s: %w", l.Daemon, failed)
			continue
		}
		parts = append(parts, reported{part: p, daemon: l.Daemon, age: l.Age})
	}
	return parts, err
}

// laneReaders returns, for each lane, the part whose count is valid.
func laneReaders(parts []reported) map[int]*reported {
	readers := map[int]*reported{}
	for i := range parts {
		p := &parts[i]
		for _, l := range p.Lanes.Lanes {
			if before := readers[l.Lane]; before == nil || p.supersedes(before) {
				readers[l.Lane] = p
			}
		}
	}
	return readers
}

// supersedes reports whether r has newer knowledge of a lane than o: only r is alive, or r belongs to a later
// generation, or else r is newer.
func (r *reported) supersedes(o *reported) bool {
	switch {
	case r.fresh() != o.fresh():
		return r.fresh()
	case r.Lanes.Generation != o.Lanes.Generation:
		return r.Lanes.Generation > o.Lanes.Generation
	}
	return r.age < o.age
}

// merger adds up parts. It belongs to the daemon that leads, which gives it those of all daemons time after time. The zero
// value has seen nothing.
type merger struct {
	sent, done counter
	past       past
}

// counter adds up what daemons count since they started.
type counter struct {
	seen  map[string]map[uint64]int64 // by daemon and campaign, as last seen
	sums  map[uint64]int64            // by how much all daemons were seen to count up
	grown map[uint64]int64            // and since the last take
}

// merge returns the sum of the parts.
func (m *merger) merge(parts []reported) *part {
	s := &part{Sent: m.sent.count(parts, func(p *part) []count { return p.Sent })}
	m.done.count(parts, func(p *part) []count { return p.Done })
	m.done.take() // only the sums matter
	readers := laneReaders(parts)
	held, stuck, sinks, at := map[uint64]memory{}, map[uint64]note{}, map[sinkKey]*SinkReport{}, map[string]int64{}
	for i := range parts {
		p := &parts[i]
		for _, l := range p.Lanes.Lanes {
			if readers[l.Lane] != p {
				continue
			}
			s.Lanes.Lanes = append(s.Lanes.Lanes, l)
			if !p.fresh() {
				s.Silent = append(s.Silent, l.Lane)
			}
		}
		if !p.fresh() {
			continue
		}
		s.Daemons++
		s.Nodes = append(s.Nodes, p.Nodes...)
		addSinks(sinks, p.Sinks)
		s.Keys = append(s.Keys, p.Keys...)
		s.Lanes.Unreadable = append(s.Lanes.Unreadable, p.Lanes.Unreadable...)
		for _, m := range p.Memory {
			held[m.Campaign] = held[m.Campaign].plus(m)
		}
		for destination, n := range p.AtDestinations {
			at[destination] += n
		}
		for _, n := range p.Stuck {
			if before, ok := stuck[n.Campaign]; !ok || cmp.Or(cmp.Compare(n.Destination, before.Destination), cmp.Compare(n.Since, before.Since)) < 0 {
				stuck[n.Campaign] = n
			}
		}
	}
	s.Keys = delivery.SumKeyWaits(s.Keys)
	s.Memory, s.Stuck, s.Sinks = slices.Collect(maps.Values(held)), slices.Collect(maps.Values(stuck)), summed(sinks)
	s.AtDestinations = mostWaiting(at)
	s.Moving = m.past.moving(time.Now(), s.totals(), m.done.sums)
	return s
}

// count returns what was counted of the campaigns in the parts since the first call. A daemon's first count of a campaign is left out, since
// its beginning is unknown.
func (c *counter) count(parts []reported, of func(*part) []count) (list []count) {
	seen, told := map[string]map[uint64]int64{}, map[uint64]bool{}
	if c.sums == nil {
		c.sums = map[uint64]int64{}
	}
	if c.grown == nil {
		c.grown = map[uint64]int64{}
	}
	for _, p := range parts {
		before := c.seen[p.daemon]
		if before == nil {
			before = map[uint64]int64{}
		}
		seen[p.daemon] = before
		for _, s := range of(p.part) {
			if was, ok := before[s.Of]; ok {
				c.sums[s.Of] += max(0, s.N-was)
				c.grown[s.Of] += max(0, s.N-was)
			}
			before[s.Of] = s.N
			if !told[s.Of] {
				told[s.Of] = true
				list = append(list, count{Of: s.Of})
			}
		}
	}
	c.seen = seen
	for i := range list {
		list[i].N = c.sums[list[i].Of]
	}
	return list
}

// take returns by how much all daemons have counted up since it was called last.
func (c *counter) take() map[uint64]int64 {
	grown := c.grown
	c.grown = nil
	return grown
}

// forget drops campaigns that are not known any more.
func (c *counter) forget(known func(campaign uint64) bool) {
	gone := func(campaign uint64, _ int64) bool { return !known(campaign) }
	for _, counts := range c.seen {
		maps.DeleteFunc(counts, gone)
	}
	maps.DeleteFunc(c.sums, gone)
}
