package offset

import (
	"cmp"
	"encoding/binary"
	"errors"
	"slices"
)

// lanePositions is the content of a lane's commit: the committed offset is the smallest low, or main.
type lanePositions struct {
	main    int64
	entries []laneEntry
}

// laneEntry is the position of one campaign that is before main.
type laneEntry struct {
	hash    uint64
	low     int64
	settled []span // beyond low: every record of this campaign in here is settled
	waiting int64  // records before main that are not settled
	done    int64  // settled records of campaign.records; they wait again if a commit has no room for settled; not encoded
}

// Bounds that keep damaged metadata from costing memory.
const (
	maxLaneEntries = maxMetadata
	maxLaneDelta   = 1 << 40
	maxLaneCount   = 1<<35 - 1 // what a commit keeps of a count, 5 bytes
)

// positions returns the content of a commit.
func (l *Lane) positions() lanePositions {
	p := lanePositions{main: l.main, entries: make([]laneEntry, 0, len(l.campaigns))}
	for _, c := range l.campaigns {
		p.entries = append(p.entries, laneEntry{
			hash: c.hash, low: c.low(), settled: c.settled(), waiting: c.waiting(), done: int64(len(c.records)) - c.open,
		})
	}
	slices.SortFunc(p.entries, func(a, b laneEntry) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.hash, b.hash))
	})
	return p
}

// encodeLane packs the positions. If they do not fit, the spans of the campaigns with the most of them are left out,
// and trimmed is true: after a crash those campaigns send again what they had settled beyond their low. Positions
// themselves are never left out: maxLaneCampaigns ensures that they fit.
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
	return committed, frame(committed, kindLane, append(head, slices.Concat(bodies...)...)), trimmed
}

func appendEntry(b []byte, committed int64, e laneEntry) []byte {
	b = binary.BigEndian.AppendUint64(b, e.hash)
	b = binary.AppendUvarint(b, uint64(e.low-committed))
	b = binary.AppendUvarint(b, uint64(min(e.waiting, maxLaneCount)))
	b = binary.AppendUvarint(b, uint64(len(e.settled)))
	at := e.low
	for _, s := range e.settled {
		b = binary.AppendUvarint(b, uint64(s.first-at)) // since the span before
		b = binary.AppendUvarint(b, uint64(s.last-s.first))
		at = s.last
	}
	return b
}

var errShortMetadata = errors.New("metadata of a lane ends early")

// decodeLane reads the output of encodeLane. Without metadata, main is the committed offset.
func decodeLane(committed int64, metadata string) (lanePositions, error) {
	none := lanePositions{main: committed}
	if metadata == "" {
		return none, nil
	}
	body, err := unframe(committed, kindLane, metadata)
	if err != nil {
		return none, err
	}
	d := &laneDecoder{body: body}
	p := lanePositions{main: committed + d.delta()}
	for len(d.body) > 0 && d.err == nil && len(p.entries) < maxLaneEntries {
		p.entries = append(p.entries, d.entry(committed))
	}
	if d.err != nil {
		return none, d.err
	}
	return p, nil
}

// laneDecoder decodes a body; after the first error it returns zeros.
type laneDecoder struct {
	body []byte
	err  error
}

func (d *laneDecoder) entry(committed int64) laneEntry {
	if len(d.body) < 8 {
		d.err = errShortMetadata
		return laneEntry{}
	}
	e := laneEntry{hash: binary.BigEndian.Uint64(d.body)}
	d.body = d.body[8:]
	e.low, e.waiting = committed+d.delta(), d.delta()
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
