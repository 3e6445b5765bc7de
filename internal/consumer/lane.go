package consumer

import (
	"slices"

	"github.com/pacer/pacer/internal/delivery"
)

// lane keeps the positions of one lane: the main one, and one for every campaign that has jobs open or was left behind.
// It is pure: no lock, no clock. See newLane.
//
// For every campaign there is a line below which all its records are settled, its low; committed is the smallest low,
// or main where no campaign has one. Nothing is ever said about a campaign by the position of another.
//
//	committed        c.next              main
//	    | handed over  | left behind       | not read
//	    | (open, done) | (or handed over   |
//	    |              |  out of order)    |
//
// Campaigns are told apart by a 64-bit hash everywhere, not by name, because that is all the metadata of a commit has
// room for. Two with the same hash would be treated as one: their queues would share a position, nothing would be lost.
type lane struct {
	main      int64
	campaigns map[uint64]*laneCampaign
	at        map[int64]*laneCampaign // whose the open offsets are
	reads     uint64                  // catch-up reads begun
	readFrom  int64                   // where the one under way has begun
	chasing   int                     // campaigns that take part in the one under way and have not had enough
	freed     bool                    // something that kept a read waiting is over; the caller resets it
}

// laneCampaign is a campaign with something between its low and main.
type laneCampaign struct {
	hash uint64
	id   string // "" until one of its records was read after a restart

	// slots are the offsets handed over (or found settled), ascending, from the low on. Of the campaign's records
	// before next every one has a slot or is settled.
	slots    []laneSlot
	units    int64  // of the open slots
	open     int64  // slots that are not done
	left     int64  // records before main that are neither in a slot nor settled; see waiting
	restored []span // "every record of the campaign in here is settled", from the last owner; ascending

	behind  bool
	next    int64  // behind: the first offset that was not handed over
	room    int64  // behind: about how many units the queue would take; 0 since it refused, until it says otherwise
	granted int64  // the room it spoke of last
	held    int64  // units that were open when it last refused: about what the queue holds
	chase   bool   // takes part in the catch-up read under way
	passing bool   // and does so only because its records lie in the range, with the room that held speaks for
	capped  bool   // left behind because it has maxSlots, not because its queue is full
	served  uint64 // the last catch-up read that found a record of it
	found   int64  // its records in the catch-up read under way
	stride  int64  // bytes of lane read per record of this campaign, a moving average
}

// laneSlot is one record that was handed over.
type laneSlot struct {
	offset int64
	size   int64
	weight int64
	done   bool
}

const (
	// maxLaneCampaigns bounds the campaigns of one lane that have a position of their own, so that the positions of
	// all fit into the metadata of one commit, with their counts (12 to 20 bytes each). The main reader waits for one to
	// finish before it meets another. Campaigns are spread over lanes, so this is reached with tens of thousands of
	// backlogs.
	maxLaneCampaigns = 150
	// maxSlots bounds what one campaign may have handed over beyond its low.
	maxSlots = 4096
	// unlimitedRoom lets a campaign be tried whose queue nobody has spoken for yet.
	unlimitedRoom = 1 << 30
	firstStride   = 1 << 10
)

func campaignHash(id string) uint64 { return delivery.CampaignHash(id) }

// newLane starts where the last owner stopped. Campaigns it had left behind are tried at once.
func newLane(p lanePositions) *lane {
	l := &lane{main: p.main, campaigns: map[uint64]*laneCampaign{}, at: map[int64]*laneCampaign{}}
	for _, e := range p.entries {
		if e.low >= p.main {
			continue
		}
		l.campaigns[e.hash] = &laneCampaign{
			hash: e.hash, restored: e.settled, behind: true, next: e.low, room: unlimitedRoom, stride: firstStride,
			left: e.waiting,
		}
	}
	return l
}

// verdict says what to do with a record that was read.
type verdict uint8

const (
	skip verdict = iota // not its turn, or settled
	take                // hand it over: call add
	stop                // the main reader may not go on
)

// meet asks the main reader's question about the next record of the log. A skip moves main past it; take leaves that to
// add, so that a record which cannot be registered is met again.
func (l *lane) meet(hash uint64, offset int64) verdict {
	if offset < l.main {
		return skip
	}
	c := l.campaigns[hash]
	switch {
	case c == nil && len(l.campaigns) >= maxLaneCampaigns:
		return stop
	case c == nil:
		return take
	case !c.behind && len(c.slots) >= maxSlots:
		c.leave(offset)
		c.capped = true
	}
	if !c.behind {
		return take
	}
	l.main = offset + 1
	c.left++
	return skip
}

// pass moves main over offsets that hold no record.
func (l *lane) pass(offset int64) { l.main = max(l.main, offset) }

// add registers a record as handed over, or as settled by itself, after meet or revisit said take, and moves their
// position past it.
func (l *lane) add(hash uint64, id string, s laneSlot) {
	l.main = max(l.main, s.offset+1)
	c := l.campaigns[hash]
	if c == nil {
		c = &laneCampaign{hash: hash, stride: firstStride}
		l.campaigns[hash] = c
	}
	c.id = id
	if c.behind { // a catch-up read found what main had passed by
		c.left = max(0, c.left-1)
		c.next = max(c.next, s.offset+1)
	}
	switch {
	case !c.insert(s):
	case s.done:
		l.trim(c)
	default:
		c.units += s.weight
		c.open++
		c.room -= s.weight
		l.at[s.offset] = c
	}
}

// candidate is the offset at which the next catch-up read begins and how many bytes it should have; ok is false when
// nobody who was left behind has room. Mostly it is the smallest position, since the others with room that lie in the
// range are served by the same read; every fourth time it is that of the campaign served longest ago, so that a fast
// campaign far behind does not keep the others from being read.
func (l *lane) candidate() (from, bytes int64, ok bool) {
	var best *laneCampaign
	oldest := l.reads%4 == 3
	for _, c := range l.campaigns {
		if !c.behind || c.room <= 0 {
			continue
		}
		if best == nil || oldest && c.served < best.served || (!oldest || c.served == best.served) && c.next < best.next {
			best = c
		}
	}
	if best == nil {
		return 0, 0, false
	}
	// A quarter more than is expected to hold the records, and one: a read that ends just before the last of them has
	// to be followed by another.
	room := min(best.room, maxSlots)
	return best.next, (room + room/4 + 1) * best.stride, true
}

// beginCatchUp notes who takes part in a read from the offset on: those with room, and those whose records it passes
// and whose queue has most likely room already, since less of theirs is open than when it refused. Had they to wait
// for word of it, each would need a read of its own over the same records.
func (l *lane) beginCatchUp(from int64) {
	l.reads++
	l.readFrom, l.chasing = from, 0
	for _, c := range l.campaigns {
		c.found = 0
		c.passing = c.behind && !c.capped && c.room <= 0 && c.next >= from && c.held > c.units
		if c.passing {
			c.room = c.held - c.units - 1
		}
		if c.chase = c.passing || c.behind && c.room > 0 && c.next >= from; c.chase {
			l.chasing++
		}
	}
}

// revisit asks the catch-up read's question about a record before main; stop means that nobody wants any more. One
// record more than there is room for is taken: refused, it has the handler owe us word of its room, which would
// otherwise take a read that finds nothing else.
func (l *lane) revisit(hash uint64, offset int64) verdict {
	if l.chasing == 0 {
		return stop
	}
	c := l.campaigns[hash]
	if c == nil || !c.chase || offset < c.next {
		return skip
	}
	tracked, settled := c.tracks(offset), c.wasSettled(offset)
	switch { // what is known already needs neither a slot nor room
	case tracked || settled:
	case len(c.slots) >= maxSlots:
		c.leave(offset)
		c.capped = true
		l.chasing--
		return skip
	case c.room < 0:
		c.next = offset
		l.stopChase(c)
		l.chasing--
		return skip
	}
	c.served = l.reads
	c.found++
	switch {
	case tracked:
	case settled:
		c.insert(laneSlot{offset: offset, done: true})
	default:
		return take
	}
	c.next = offset + 1
	return skip
}

// breakCatchUp ends a read that failed half-way. Who used up its room in it is owed word of more by nobody.
func (l *lane) breakCatchUp() {
	for _, c := range l.campaigns {
		if c.chase {
			l.stopChase(c)
			l.trim(c)
		}
	}
}

// stopChase ends the campaign's part in a read.
func (l *lane) stopChase(c *laneCampaign) {
	switch {
	case c.passing: // word of its room is owed as it was
		c.room = 0
	case c.room <= 0:
		c.more()
	}
	c.chase, c.passing = false, false
}

// endCatchUp notes that the read covered everything before to, in so many bytes.
func (l *lane) endCatchUp(to, bytes int64) {
	to = min(to, l.main)
	for _, c := range l.campaigns {
		if c.chase {
			c.next = max(c.next, to)
		}
		if c.found > 0 && to > l.readFrom { // of the range, what lies before the point where it had enough
			part := float64(min(max(c.next, l.readFrom), to)-l.readFrom) / float64(to-l.readFrom)
			c.stride = max(64, (3*c.stride+int64(float64(bytes)*part)/c.found)/4)
		}
		if c.chase {
			l.stopChase(c)
			l.trim(c)
		}
	}
}

// giveBack undoes add: the campaign is left behind from this offset on, without room. It returns the size; false when
// the offset is not open.
func (l *lane) giveBack(offset int64) (size int64, ok bool) {
	c := l.at[offset]
	if c == nil {
		return 0, false
	}
	i, _ := c.find(offset)
	s := c.slots[i]
	c.slots = slices.Delete(c.slots, i, i+1)
	c.units -= s.weight
	c.open--
	c.left++
	delete(l.at, offset)
	c.leave(offset)
	c.capped = false // no settle of an open job may ever come to lift the cap; word of room will
	c.held = c.units
	l.trim(c)
	return s.size, true
}

// settle marks an offset done and returns its size; false when it is not open.
func (l *lane) settle(offset int64) (size int64, ok bool) {
	c := l.at[offset]
	if c == nil {
		return 0, false
	}
	delete(l.at, offset)
	i, _ := c.find(offset)
	s := &c.slots[i]
	s.done, size = true, s.size
	c.units -= s.weight
	c.open--
	l.trim(c)
	if c.capped && len(c.slots) < maxSlots/2 {
		c.capped, c.room, l.freed = false, unlimitedRoom, true
	}
	return size, true
}

// grantRoom notes that the queue of a campaign that was left behind would take so many units; false when it was not.
func (l *lane) grantRoom(hash uint64, units int64) bool {
	c := l.campaigns[hash]
	if c == nil || !c.behind || c.capped {
		return false
	}
	c.room, c.granted, c.passing = units, units, false
	return true
}

// probe lets everybody who was left behind be tried once more.
func (l *lane) probe() {
	for _, c := range l.campaigns {
		if c.behind && !c.capped && c.room <= 0 {
			c.room = unlimitedRoom
		}
	}
}

// trim drops what is settled at the front of the campaign, and the campaign when nothing of it is left before main.
func (l *lane) trim(c *laneCampaign) {
	if c.behind && c.next >= l.main {
		c.behind, c.capped, c.room, c.chase, c.passing = false, false, 0, false, false
		c.left = 0 // as it is already, unless the log or a commit has lost something
	}
	n := 0
	for n < len(c.slots) && c.slots[n].done && (!c.behind || c.slots[n].offset < c.next) {
		n++
	}
	if c.slots = c.slots[n:]; len(c.slots) == 0 {
		c.slots = nil
		if !c.behind {
			l.freed = l.freed || len(l.campaigns) >= maxLaneCampaigns
			delete(l.campaigns, c.hash)
			return
		}
	}
	low := c.low()
	for len(c.restored) > 0 && c.restored[0].last < low {
		c.restored = c.restored[1:]
	}
}

// committed is the offset before which everything is settled.
func (l *lane) committed() int64 {
	at := l.main
	for _, c := range l.campaigns {
		at = min(at, c.low())
	}
	return at
}

// raise moves every position to at least first, the start of a log that was cut off. It reports whether any moved.
func (l *lane) raise(first int64) (moved bool) {
	if l.main < first {
		l.main, moved = first, true
	}
	for _, c := range l.campaigns {
		if c.behind && c.next < first {
			// How many of those left behind were cut off is not known: about their part of the log.
			c.left -= int64(float64(c.left) * float64(first-c.next) / float64(max(1, l.main-c.next)))
			c.next, moved = first, true
			l.trim(c)
		}
	}
	return moved
}

// waiting is how many records of the campaign before main are not settled: those handed over and open, and those left
// behind. It is exact, also after a restart, as far as the commit has kept what was settled (see encodeLane) and the log
// still holds what was left behind; when the campaign is level with main it is exact again in any case.
func (c *laneCampaign) waiting() int64 { return c.open + c.left }

// low is the first offset of the campaign that may not be settled.
func (c *laneCampaign) low() int64 {
	switch {
	case len(c.slots) == 0:
		return c.next // behind, or it would be gone
	case c.behind:
		return min(c.next, c.slots[0].offset)
	}
	return c.slots[0].offset
}

// more lets a queue that took all it had spoken of be offered a little more, until it refuses: only then does it owe us
// word of its room.
func (c *laneCampaign) more() { c.room = max(1, c.granted/4) }

// leave notes that the record at offset, and those after it, were not handed over.
func (c *laneCampaign) leave(offset int64) {
	if !c.behind || offset < c.next {
		c.next = offset
	}
	c.behind, c.chase, c.passing, c.room = true, false, false, 0
}

func (c *laneCampaign) find(offset int64) (int, bool) {
	return slices.BinarySearchFunc(c.slots, offset, func(s laneSlot, o int64) int {
		switch {
		case s.offset < o:
			return -1
		case s.offset > o:
			return 1
		}
		return 0
	})
}

func (c *laneCampaign) tracks(offset int64) bool {
	_, found := c.find(offset)
	return found
}

// insert keeps the order; mostly it appends. False when the offset is there already.
func (c *laneCampaign) insert(s laneSlot) bool {
	i, found := c.find(s.offset)
	if !found {
		c.slots = slices.Insert(c.slots, i, s)
	}
	return !found
}

func (c *laneCampaign) wasSettled(offset int64) bool {
	for _, s := range c.restored {
		if offset <= s.last {
			return offset >= s.first
		}
	}
	return false
}
