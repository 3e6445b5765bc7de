package progress

import (
	"fmt"
	"maps"
	"slices"
	"time"
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
		for _, l := range p.lanes.Lanes {
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
	case r.lanes.Generation != o.lanes.Generation:
		return r.lanes.Generation > o.lanes.Generation
	}
	return r.age < o.age
}

// merger adds up parts. It belongs to the daemon that leads, which gives it those of all daemons time after time. The zero
// value has seen nothing.
type merger struct{ sent, denied counter }

// counter adds up what daemons count since they started.
type counter struct {
	seen map[string]map[uint64]int64 // by daemon and campaign or window, as last seen
	sums map[uint64]int64            // by how much all daemons were seen to count up
}

// merge returns the sum of the parts.
func (m *merger) merge(parts []reported) *summary {
	s := &summary{}
	s.sent = m.sent.count(parts, func(p *part) []sent { return p.sent })
	s.denied = m.denied.count(parts, func(p *part) []sent { return p.denied })
	readers := laneReaders(parts)
	memory, inHand, early := map[uint64]heldCampaign{}, map[uint64]int64{}, map[uint64]int64{}
	turns := map[uint64]int64{}
	stuck, sinks := map[uint64]note{}, map[string]*SinkReport{}
	for i := range parts {
		p := &parts[i]
		for _, l := range p.lanes.Lanes {
			if readers[l.Lane] != p {
				continue
			}
			s.lanes.Lanes = append(s.lanes.Lanes, l)
			if !p.fresh() {
				s.silent = append(s.silent, l.Lane)
			}
		}
		if !p.fresh() {
			continue
		}
		s.daemons++
		s.nodes = append(s.nodes, p.nodes...)
		addSinks(sinks, p.sinks)
		s.lanes.Unreadable = append(s.lanes.Unreadable, p.lanes.Unreadable...)
		for _, h := range p.held {
			all := memory[h.campaign]
			memory[h.campaign] = heldCampaign{h.campaign, all.direct + h.direct, all.jobs + h.jobs, all.units + h.units}
		}
		addCounts(inHand, p.inHand)
		addCounts(early, p.early)
		for _, one := range p.turns {
			if before, told := turns[one.campaign]; !told || one.units < before {
				turns[one.campaign] = one.units
			}
		}
		for _, n := range p.stuck {
			if before, ok := stuck[n.campaign]; !ok || n.since < before.since {
				stuck[n.campaign] = n
			}
		}
	}
	for _, h := range memory {
		s.held = append(s.held, h)
	}
	s.inHand, s.early, s.turns, s.sinks = counted(inHand), counted(early), counted(turns), summed(sinks)
	s.stuck = slices.AppendSeq(s.stuck, maps.Values(stuck))
	return s
}

func addCounts(to map[uint64]int64, list []sent) {
	for _, one := range list {
		to[one.campaign] += one.units
	}
}

func counted(by map[uint64]int64) (list []sent) {
	for campaign, n := range by {
		list = append(list, sent{campaign, n})
	}
	return list
}

// count returns how much was counted of what is in the lists of the parts since the first call. What a daemon had counted of
// something when that was first seen does not count, since it is not known since when.
func (c *counter) count(parts []reported, of func(*part) []sent) (list []sent) {
	seen, told := map[string]map[uint64]int64{}, map[uint64]bool{}
	if c.sums == nil {
		c.sums = map[uint64]int64{}
	}
	for _, p := range parts {
		before := c.seen[p.daemon]
		if before == nil {
			before = map[uint64]int64{}
		}
		seen[p.daemon] = before
		for _, s := range of(p.part) {
			if was, ok := before[s.campaign]; ok {
				c.sums[s.campaign] += max(0, s.units-was)
			}
			before[s.campaign] = s.units
			if !told[s.campaign] {
				told[s.campaign] = true
				list = append(list, sent{campaign: s.campaign})
			}
		}
	}
	c.seen = seen
	for i := range list {
		list[i].units = c.sums[list[i].campaign]
	}
	return list
}

// forget drops campaigns or windows that are not known any more.
func (c *counter) forget(known func(hash uint64) bool) {
	for _, counts := range c.seen {
		forget(counts, known)
	}
	forget(c.sums, known)
}

func forget(counts map[uint64]int64, known func(campaign uint64) bool) {
	for campaign := range counts {
		if !known(campaign) {
			delete(counts, campaign)
		}
	}
}
