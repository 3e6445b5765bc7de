package consumer

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// lanePositions is a lane as a commit keeps it: the committed offset is the smallest low, or main.
type lanePositions struct {
	main    int64
	entries []laneEntry
}

// laneEntry is the position of one campaign, where it is before main.
type laneEntry struct {
	hash    uint64
	low     int64
	settled []span // beyond low: every record of this campaign in here is settled
	waiting int64  // records before main that are not settled; 0 also in commits that do not say it
	done    int64  // settled records in slots, which wait again where a commit has no room for settled; not encoded
}

// Bounds that keep damaged metadata from costing memory.
const (
	maxLaneEntries = maxMetadata
	maxLaneDelta   = 1 << 40
	maxLaneCount   = 1<<35 - 1 // what a commit keeps of a count, 5 bytes
)

// positions lists what a commit has to keep.
func (l *lane) positions() lanePositions {
	p := lanePositions{main: l.main, entries: make([]laneEntry, 0, len(l.campaigns))}
	for _, c := range l.campaigns {
		p.entries = append(p.entries, laneEntry{
			hash: c.hash, low: c.low(), settled: c.settled(), waiting: c.waiting(), done: int64(len(c.slots)) - c.open,
		})
	}
	slices.SortFunc(p.entries, func(a, b laneEntry) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.hash, b.hash))
	})
	return p
}

// settled lists the spans beyond the low in which every record of this campaign is settled.
//
// Before next, the slots are all the records that are not settled for sure, so a run of done ones is one span, whatever
// records of others lie in between. From next on, records may lie between two slots that nobody has handed over: each
// slot is a span of its own there.
func (c *laneCampaign) settled() []span {
	var spans []span
	joined := false
	for _, s := range c.slots {
		ahead := c.behind && s.offset >= c.next
		switch {
		case !s.done:
			joined = false
		case joined && !ahead:
			spans[len(spans)-1].last = s.offset
		case !ahead || !c.wasSettled(s.offset):
			spans, joined = append(spans, span{s.offset, s.offset}), !ahead
		}
	}
	if c.behind {
		for _, r := range c.restored {
			if r.last >= c.next {
				spans = append(spans, span{max(r.first, c.next), r.last})
			}
		}
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	}
	return spans
}

// encodeLane packs the positions. When they do not fit, the spans of the campaigns with the most of them are left out,
// and trimmed is true: after a crash those campaigns send again what they had settled beyond their low. Positions
// themselves are never left out: they fit, by maxLaneCampaigns.
func encodeLane(p lanePositions) (committed int64, metadata string, trimmed bool) {
	committed = p.main
	for _, e := range p.entries {
		committed = min(committed, e.low)
	}
	if len(p.entries) == 0 {
		return committed, "", false
	}
	bodies := make([][]byte, len(p.entries))
	head := binary.AppendUvarint(nil, uint64(p.main-committed))
	total := len(head)
	for i, e := range p.entries {
		bodies[i] = appendEntry(nil, committed, e)
		total += len(bodies[i])
	}
	for total > maxRawMetadata {
		trimmed = true
		most := 0
		for i := range bodies {
			if len(bodies[i]) > len(bodies[most]) {
				most = i
			}
		}
		bare := p.entries[most]
		bare.settled = nil
		bare.waiting += bare.done
		short := appendEntry(nil, committed, bare)
		if len(short) == len(bodies[most]) {
			break // cannot happen with maxLaneCampaigns entries
		}
		total -= len(bodies[most]) - len(short)
		bodies[most] = short
	}
	return committed, frame(committed, kindLaneCounts, append(head, slices.Concat(bodies...)...)), trimmed
}

func appendEntry(b []byte, committed int64, e laneEntry) []byte {
	b = binary.BigEndian.AppendUint64(b, e.hash)
	b = binary.AppendUvarint(b, uint64(e.low-committed))
	b = binary.AppendUvarint(b, uint64(min(e.waiting, maxLaneCount)))
	b = binary.AppendUvarint(b, uint64(len(e.settled)))
	at := e.low
	for _, s := range e.settled {
		b = binary.AppendUvarint(b, uint64(s.first-at))
		b = binary.AppendUvarint(b, uint64(s.last-s.first))
		at = s.last
	}
	return b
}

var errShortMetadata = errors.New("metadata of a lane ends early")

// decodeLane reads what encodeLane wrote. Without metadata, main is the committed offset.
func decodeLane(committed int64, metadata string) (lanePositions, error) {
	none := lanePositions{main: committed}
	if metadata == "" {
		return none, nil
	}
	kind, body, err := unframe(committed, metadata)
	if err != nil {
		return none, err
	}
	if kind != kindLane && kind != kindLaneCounts {
		return none, errForeignMetadata
	}
	d := &laneDecoder{body: body, counts: kind == kindLaneCounts}
	p := lanePositions{main: committed + d.delta()}
	for len(d.body) > 0 && d.err == nil && len(p.entries) < maxLaneEntries {
		p.entries = append(p.entries, d.entry(committed))
	}
	if d.err != nil {
		return none, d.err
	}
	return p, nil
}

// laneDecoder reads a body; after the first error everything is zero.
type laneDecoder struct {
	body   []byte
	counts bool // entries have counts
	err    error
}

func (d *laneDecoder) entry(committed int64) laneEntry {
	if len(d.body) < 8 {
		d.err = errShortMetadata
		return laneEntry{}
	}
	e := laneEntry{hash: binary.BigEndian.Uint64(d.body)}
	d.body = d.body[8:]
	e.low = committed + d.delta()
	if d.counts {
		e.waiting = d.delta()
	}
	n, at := d.delta(), e.low
	if n > maxMetadata {
		d.err = errForeignMetadata
		return laneEntry{}
	}
	for range n {
		first := at + d.delta()
		at = first + d.delta()
		if d.err != nil {
			return laneEntry{}
		}
		e.settled = append(e.settled, span{first, at})
	}
	return e
}

func (d *laneDecoder) delta() int64 {
	v, n := binary.Uvarint(d.body)
	if d.err != nil {
		return 0
	}
	if n <= 0 || v > maxLaneDelta {
		d.err = errShortMetadata
		return 0
	}
	d.body = d.body[n:]
	return int64(v)
}
