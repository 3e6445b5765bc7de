package offset

import (
	"iter"
	"math"
	"slices"
)

// Lane keeps the positions of one lane: the main one, and one for every campaign that has records open or was left
// behind. It is pure: no lock, no clock. Make one with NewLane or RestoreLane.
//
// For every campaign there is an offset below which all its records are settled, its low; the committed offset is the
// smallest low, or main if no campaign has one. The position of one campaign does not affect another.
//
//	committed        c.next              main
//	    | handed over  | left behind       | not read
//	    | (open, done) | (or handed over   |
//	    |              |  out of order)    |
//
// The main reader asks ClassifyMain about each record from main on, and a catch-up read (catchup.go) ClassifyCatchUp
// about each record before main; both call Add for what is to be handed over.
//
// Campaigns are told apart by a 64-bit hash everywhere, not by name, because that is all the metadata of a commit has
// room for. Two with the same hash are treated as one: their queues share a position, and nothing is lost.
type Lane struct {
	main      int64
	campaigns map[uint64]*campaign
	at        map[int64]*campaign // of the open offsets
	pending   map[int64]*campaign // of offsets that are to be handed over again, and are open before a settled one of the campaign, or may be
	crowded   bool                // the last commit had hardly room for what is settled between open records
	reads     uint64              // number of catch-up reads begun
	readFrom  int64               // the offset at which the current catch-up read began
	reach     int64               // how many offsets from its beginning the next catch-up read goes on for campaigns that take part
	each      int64               // bytes of a record in the last catch-up read
	chasing   int                 // campaigns near the beginning of the current catch-up read that take part and have room left
	freed     bool                // see TakeFreed
	maxBytes  int64               // of the open records of one campaign; see Bound
}

// Record is a record that was read from a lane.
type Record struct {
	Offset  int64
	Size    int64 // bytes in the budget
	Weight  int64 // units
	Settled bool  // its outcome is known: it is not handed over
}

// Verdict is the decision about a record that was read.
type Verdict uint8

// The verdicts.
const (
	Skip     Verdict = iota // not its turn, or settled
	HandOver                // call Add
	Stop                    // the reader may not go on
)

const (
	// maxLaneCampaigns bounds the campaigns of one lane that have a position of their own, so that all positions, with
	// their counts, fit into the metadata of one commit (12 to 20 bytes each). At the bound, the main reader waits
	// until a campaign has finished before it reads a further one. Campaigns are spread over lanes, so this takes tens
	// of thousands of backlogs.
	maxLaneCampaigns = 150
	// maxHandedOver bounds the open records of one campaign.
	maxHandedOver = 4096
	// unlimited stands for the room of a campaign whose room is not known, so that it is tried.
	unlimited   = 1 << 30
	firstStride = 1 << 10
)

// NewLane returns a Lane that starts at the offset main.
func NewLane(main int64) *Lane { return newLane(lanePositions{main: main}) }

// RestoreLane starts where the last owner of the lane stopped, at a committed offset with its metadata. Campaigns that
// were left behind are tried at once. If the metadata cannot be read, it returns an error and no Lane: from the offset
// alone, all that was settled beyond a campaign that waits would be handed over again.
func RestoreLane(committed int64, metadata string) (*Lane, error) {
	p, err := decodeLane(committed, metadata)
	if err != nil {
		return nil, err
	}
	return newLane(p), nil
}

func newLane(p lanePositions) *Lane {
	l := &Lane{
		main: p.main, campaigns: map[uint64]*campaign{}, at: map[int64]*campaign{}, pending: map[int64]*campaign{}, maxBytes: math.MaxInt64,
	}
	unknown := &campaign{settledTo: math.MaxInt64}
	for _, o := range p.open {
		l.pending[o] = unknown
	}
	for _, e := range p.entries {
		if e.low >= p.main {
			continue
		}
		l.campaigns[e.hash] = &campaign{
			hash: e.hash, settledTo: e.settledTo, behind: true, next: e.low, capacity: unlimited, stride: firstStride,
			left: e.waiting,
		}
	}
	return l
}

// Bound limits the bytes of the open records of one campaign: at the bound it is left behind, until half of them are
// settled, so that no campaign takes the memory of all others. One record is handed over in any case.
func (l *Lane) Bound(bytes int64) { l.maxBytes = bytes }

// Main is the next offset of the main reader.
func (l *Lane) Main() int64 { return l.main }

// Open returns the number of records that are handed over and not settled.
func (l *Lane) Open() int { return len(l.at) }

// Full reports whether no further campaign can have a position of its own.
func (l *Lane) Full() bool { return len(l.campaigns) >= maxLaneCampaigns }

// Committed returns the offset before which everything is settled.
func (l *Lane) Committed() int64 {
	at := l.main
	for _, c := range l.campaigns {
		at = min(at, c.low())
	}
	return at
}

// OpenBytes returns the sum of the sizes of the open records.
func (l *Lane) OpenBytes() (bytes int64) {
	for _, c := range l.campaigns {
		bytes += c.bytes
	}
	return bytes
}

// Position returns the content of the next commit. What lies before it may be deleted.
func (l *Lane) Position() Position {
	l.advance()
	offset, metadata, trimmed := encodeLane(l.positions())
	l.crowded = len(metadata) > maxMetadata/8*7
	return Position{Offset: offset, Metadata: metadata, Trimmed: trimmed}
}

// Waiting yields, by the hash of the campaign, the number of records before main that are not settled: open ones and
// those left behind. The count is exact, also after a restart, as far as commits have kept what was settled and the
// log still holds what was left behind.
func (l *Lane) Waiting() iter.Seq2[uint64, int64] {
	return func(yield func(uint64, int64) bool) {
		for hash, c := range l.campaigns {
			if !yield(hash, c.waiting()) {
				return
			}
		}
	}
}

// ClassifyMain returns the verdict about the next record of the log. Skip moves main past it; HandOver leaves that to
// Add, so that a record which cannot be registered is read again.
func (l *Lane) ClassifyMain(hash uint64, offset int64) Verdict {
	if offset < l.main {
		return Skip
	}
	c := l.campaigns[hash]
	switch {
	case c == nil && l.Full():
		return Stop
	case c == nil:
		return HandOver
	case !c.behind && l.exhausted(c):
		c.leave(offset)
		c.capped = true
	}
	if !c.behind {
		return HandOver
	}
	l.main = offset + 1
	c.left++
	return Skip
}

// exhausted reports whether no further record of the campaign may be handed over for now.
func (l *Lane) exhausted(c *campaign) bool {
	return c.open >= maxHandedOver || c.bytes >= l.maxBytes || l.crowds(c)
}

// crowds reports whether commits hardly have room, and the campaign has settled records between open ones.
func (l *Lane) crowds(c *campaign) bool { return l.crowded && c.open > 0 && c.settledTo > c.low() }

// hasCapacity reports whether half of the records that the campaign may have are gone.
func (l *Lane) hasCapacity(c *campaign) bool {
	return c.open < maxHandedOver/2 && c.bytes <= l.maxBytes/2 && !l.crowds(c)
}

// Pass moves main over offsets that hold no record.
func (l *Lane) Pass(offset int64) { l.main = max(l.main, offset) }

// Add registers a record as handed over, or as settled if r.Settled is set, after the verdict HandOver, and moves the
// position that it was read from past it.
func (l *Lane) Add(hash uint64, r Record) {
	l.main = max(l.main, r.Offset+1)
	c := l.campaigns[hash]
	if c == nil {
		c = &campaign{hash: hash, stride: firstStride}
		l.campaigns[hash] = c
	}
	if c.behind { // a catch-up read found a record that main had passed
		if c.left = max(0, c.left-1); c.near && !c.hasLeft() { // the read need not go on for it
			c.near = false
			l.chasing--
		}
		c.next = max(c.next, r.Offset+1)
	}
	delete(l.pending, r.Offset)
	if r.Settled {
		c.settledTo = max(c.settledTo, r.Offset+1)
		l.trim(c)
		return
	}
	c.insert(r)
	c.units += r.Weight
	c.bytes += r.Size
	c.open++
	c.capacity -= r.Weight
	l.at[r.Offset] = c
}

// Returned is a record that was given back.
type Returned struct {
	Campaign uint64 // hash
	Size     int64  // bytes
	Capacity int64  // units that its campaign's queue would have taken
}

// GiveBack undoes Add: the campaign is left behind from this offset on, without room. ok is false if the offset is not
// open.
func (l *Lane) GiveBack(offset int64) (Returned, bool) {
	c := l.at[offset]
	if c == nil {
		return Returned{}, false
	}
	i, _ := c.find(offset)
	r := c.records[i]
	back := Returned{Campaign: c.hash, Size: r.Size, Capacity: c.capacity}
	if c.records = slices.Delete(c.records, i, i+1); i < len(c.records) || offset < c.settledTo {
		l.pending[offset] = c
	}
	c.units -= r.Weight
	c.bytes -= r.Size
	c.open--
	c.left++
	delete(l.at, offset)
	c.leave(offset)
	c.capped = false // there may be no open record whose settling lifts the cap; GrantCapacity will
	c.queued = c.units
	l.trim(c)
	return back, true
}

// Settle marks the offset as done and returns its size in bytes; ok is false if the offset is not open.
func (l *Lane) Settle(offset int64) (size int64, ok bool) {
	c := l.at[offset]
	if c == nil {
		return 0, false
	}
	delete(l.at, offset)
	i, _ := c.find(offset)
	r := &c.records[i]
	r.Settled, size = true, r.Size
	c.settledTo = max(c.settledTo, offset+1)
	c.units -= r.Weight
	c.bytes -= r.Size
	c.open--
	l.trim(c)
	if c.capped && l.hasCapacity(c) {
		c.capped, c.capacity, l.freed = false, unlimited, true
	}
	return size, true
}

// TakeFreed reports whether, since the last call, a condition that kept a read waiting has ended.
func (l *Lane) TakeFreed() bool {
	freed := l.freed
	l.freed = false
	return freed
}

// GrantCapacity records that the queue of a campaign that was left behind has room for that many units; it returns false
// if the campaign was not left behind.
func (l *Lane) GrantCapacity(hash uint64, units int64) bool {
	c := l.campaigns[hash]
	if c == nil || !c.behind || c.capped {
		return false
	}
	c.capacity, c.granted, c.passing = units, units, false
	return true
}

// Probe lets every campaign left behind with nothing open be tried once more, by one record, unless it waits for its turn, and also if its
// count says that nothing is left. Of the others, a record that is settled will make room.
func (l *Lane) Probe(waits func(campaign uint64) bool) {
	for _, c := range l.campaigns {
		c.uncounted = c.behind && c.left == 0
		if c.behind && !c.capped && c.capacity <= 0 && c.open == 0 && !waits(c.hash) {
			c.capacity = 1
		}
	}
}

// trim drops settled records at the front of the campaign, and the campaign if nothing of it is left before main.
func (l *Lane) trim(c *campaign) {
	if c.behind && c.next >= l.main {
		l.stopChase(c)
		c.behind, c.capped, c.capacity, c.uncounted = false, false, 0, false
		c.left = 0 // zero already, unless the log or a commit has lost records
	}
	c.trim()
	if len(c.records) == 0 && !c.behind {
		l.freed = l.freed || l.Full()
		delete(l.campaigns, c.hash)
	}
}
