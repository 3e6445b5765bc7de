package progress

import (
	"cmp"
	"fmt"
	"maps"
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
	seen map[string]map[uint64]tally // by daemon and campaign, as last seen
	sums map[uint64]tally            // by how much all daemons were seen to count up
	past past
}

// merge returns the sum of the parts.
func (m *merger) merge(parts []reported) *part {
	s := &part{Memory: map[uint64]memory{}, Tallies: m.count(parts), Stuck: map[uint64]note{}, AtDestinations: map[string]int64{}}
	readers, sinks := laneReaders(parts), map[sinkKey]*SinkReport{}
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
		for campaign, m := range p.Memory {
			s.Memory[campaign] = s.Memory[campaign].plus(m)
		}
		for destination, n := range p.AtDestinations {
			s.AtDestinations[destination] += n
		}
		for campaign, n := range p.Stuck { // of several notes, what refuses for good comes first
			if before, ok := s.Stuck[campaign]; !ok || cmp.Or(cmp.Compare(n.Destination, before.Destination), cmp.Compare(before.Cause, n.Cause)) < 0 {
				s.Stuck[campaign] = n
			}
		}
	}
	s.Keys, s.Sinks, s.AtDestinations = delivery.SumKeyWaits(s.Keys), summed(sinks), mostWaiting(s.AtDestinations)
	s.Moving = m.past.moving(time.Now(), s.totals(), m.sums)
	return s
}

// count returns what was counted of the campaigns in the parts since the first call. A daemon's first tally of a campaign is left out, since
// its beginning is unknown.
func (m *merger) count(parts []reported) map[uint64]tally {
	seen, counted := map[string]map[uint64]tally{}, map[uint64]tally{}
	if m.sums == nil {
		m.sums = map[uint64]tally{}
	}
	for _, p := range parts {
		before := m.seen[p.daemon]
		if before == nil {
			before = map[uint64]tally{}
		}
		seen[p.daemon] = before
		for campaign, is := range p.Tallies {
			was, ok := before[campaign]
			if before[campaign] = is; !ok {
				was = is
			}
			sum := m.sums[campaign]
			sum.Sent, sum.Unsent = sum.Sent+max(0, is.Sent-was.Sent), sum.Unsent+max(0, is.Unsent-was.Unsent)
			sum.Settled += max(0, is.Settled-was.Settled)
			m.sums[campaign], counted[campaign] = sum, sum
		}
	}
	m.seen = seen
	return counted
}

// forget drops campaigns that are not known any more.
func (m *merger) forget(known func(campaign uint64) bool) {
	gone := func(campaign uint64, _ tally) bool { return !known(campaign) }
	for _, tallies := range m.seen {
		maps.DeleteFunc(tallies, gone)
	}
	maps.DeleteFunc(m.sums, gone)
}
