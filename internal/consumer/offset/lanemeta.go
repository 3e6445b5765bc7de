package offset

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
)

// lanePositions is the content of a lane's commit: the committed offset is the smallest low, or main.
type lanePositions struct {
	main    int64
	entries []laneEntry
	open    []int64 // the offsets of open records before settledTo of their campaign, ascending; others may be in here
}

// laneEntry is the position of one campaign that is before main. Its records before low are settled, and those from low to
// settledTo, unless they are open.
type laneEntry struct {
	hash           uint64
	low, settledTo int64
	waiting        int64 // records before main that are not settled
}

// Bounds that keep damaged metadata from costing memory.
const (
	maxLaneEntries = maxMetadata
	maxLaneOpen    = 8 * maxMetadata
	maxLaneDelta   = 1 << 40
	maxLaneCount   = 1<<35 - 1 // what a commit keeps of a count, 5 bytes
)

// advance moves the positions of campaigns left behind over what was handed over already.
func (l *Lane) advance() {
	pending := slices.Sorted(maps.Keys(l.pending))
	for _, c := range l.campaigns {
		if c.behind && c.next < c.settledTo {
			i, _ := slices.BinarySearch(pending, c.next)
			if c.next = c.settledTo; i < len(pending) {
				c.next = min(c.next, pending[i])
			}
			l.trim(c)
		}
	}
	committed := l.Committed()
	maps.DeleteFunc(l.pending, func(o int64, c *campaign) bool { // the log has lost them, or they are handed over before any record beyond them
		return o < committed || o >= c.settledTo && !c.hasOpenBeyond(o)
	})
}

// positions returns the content of a commit.
func (l *Lane) positions() lanePositions {
	p := lanePositions{main: l.main, entries: make([]laneEntry, 0, len(l.campaigns))}
	for _, c := range l.campaigns {
		low := c.low()
		p.entries = append(p.entries, laneEntry{hash: c.hash, low: low, settledTo: max(low, c.settledTo), waiting: c.waiting()})
		for _, r := range c.records {
			if r.Offset < c.settledTo && !r.Settled {
				p.open = append(p.open, r.Offset)
			}
		}
	}
	p.open = slices.AppendSeq(p.open, maps.Keys(l.pending))
	slices.Sort(p.open)
	slices.SortFunc(p.entries, func(a, b laneEntry) int {
		return cmp.Or(cmp.Compare(a.low, b.low), cmp.Compare(a.hash, b.hash))
	})
	return p
}

// span returns the smallest low, or main, and the greatest settledTo of a campaign with settled records beyond its low.
func (p lanePositions) span() (committed, settledTo int64) {
	committed = p.main
	for _, e := range p.entries {
		if committed = min(committed, e.low); e.settledTo > e.low {
			settledTo = max(settledTo, e.settledTo)
		}
	}
	return committed, settledTo
}

// settled returns the spans between the open offsets, from the committed one to settledTo. The committed one counts as open.
func (p lanePositions) settled() (spans []span) {
	at, end := p.span()
	for _, o := range append(p.open, end) {
		if at++; at < min(o, end) {
			spans = append(spans, span{at, min(o, end) - 1})
		}
		at = max(at-1, o)
	}
	return spans
}

// encodeLane packs the positions. If they do not fit, what was settled farthest is left out, and trimmed is true: it is handed over
// again. Positions themselves are never left out: maxLaneCampaigns ensures that they fit.
func encodeLane(p lanePositions) (committed int64, metadata string, trimmed bool) {
	committed, _ = p.span()
	if len(p.entries) == 0 {
		return committed, "", false
	}
	for {
		body := binary.AppendUvarint(nil, uint64(p.main-committed))
		body = binary.AppendUvarint(body, uint64(len(p.entries)))
		for _, e := range p.entries {
			body = binary.BigEndian.AppendUint64(body, e.hash)
			body = binary.AppendUvarint(body, uint64(e.low-committed))
			body = binary.AppendUvarint(body, uint64(min(e.waiting, maxLaneCount)))
			body = binary.AppendUvarint(body, uint64(e.settledTo-e.low))
		}
		spans := p.settled()
		if len(spans) > 0 {
			body = appendRuns(body, committed, spans)
		}
		if len(body) <= maxRawMetadata || len(spans) == 0 {
			return committed, frame(committed, kindLane, body), trimmed
		}
		trimmed = true
		end := int64(0)
		if kept := spans[:len(spans)/2]; len(kept) > 0 {
			end = kept[len(kept)-1].last + 1
		}
		for i, e := range p.entries {
			p.entries[i].settledTo = max(e.low, min(e.settledTo, end))
		}
	}
}

var errShortMetadata = errors.New("metadata of a lane ends early")

// decodeLane reads the output of encodeLane. Without metadata, main is the committed offset.
func decodeLane(committed int64, metadata string) (lanePositions, error) {
	none := lanePositions{main: committed}
	body, err := unframe(committed, kindLane, metadata)
	if body == nil {
		return none, err
	}
	d := &laneDecoder{body: body}
	p := lanePositions{main: committed + d.delta()}
	for n := d.delta(); n > 0 && d.err == nil && len(p.entries) < maxLaneEntries; n-- {
		p.entries = append(p.entries, d.entry(committed))
	}
	spans, err := readRuns(committed, d.body)
	if err = cmp.Or(d.err, err); err != nil {
		return none, err
	}
	at, end := p.span()
	for _, s := range append(spans, span{end, end}) {
		if s.first-at > maxLaneOpen-int64(len(p.open)) {
			return none, errForeignMetadata
		}
		for ; at < min(s.first, end); at++ {
			p.open = append(p.open, at)
		}
		at = s.last + 1
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
	e.settledTo = e.low + d.delta()
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
