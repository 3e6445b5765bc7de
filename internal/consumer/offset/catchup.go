package offset

// A catch-up read reads a stretch of the lane before main again, for campaigns that were left behind and have room:
// Candidate, BeginCatchUp, ClassifyCatchUp for each record, then EndCatchUp or BreakCatchUp.

// Candidate returns the first offset of the next catch-up read and how many bytes it should read; ok is false if no campaign that was
// left behind has room. Usually the offset is the smallest position, since the same read serves other campaigns with room in the range.
// Every fourth time it is that of the campaign served longest ago, so that a fast campaign far behind does not starve the others. It is
// smaller by up to the length of the read if there are campaigns whose queues probably have room: they would soon need a read of their
// own over the same records. Campaigns with nothing left, by their counts, are passed over while another one has something left: to look
// for records that no count knows of, each would read the lane to its end.
func (l *Lane) Candidate() (from, bytes int64, ok bool) {
	var best *campaign
	oldest, all := l.reads%4 == 3, l.triesAll()
	for _, c := range l.campaigns {
		if !c.behind || c.capacity <= 0 || !all && !c.hasLeft() {
			continue
		}
		if best == nil || oldest && c.served < best.served || (!oldest || c.served == best.served) && c.next < best.next {
			best = c
		}
	}
	if best == nil {
		return 0, 0, false
	}
	// A quarter more than is expected to hold the records, and one more record: a read that ends just before the last
	// of them needs a second read.
	room := min(best.capacity, maxHandedOver)
	apart := max(1, best.stride/max(1, l.each)) // its records, on average
	from, l.reach = best.next, max(5*room*apart, leastReach)
	for _, c := range l.campaigns {
		if c.next < from && c.next >= best.next-room*apart && c.passes() && c.hasLeft() {
			from = c.next
		}
	}
	return from, (room + room/4 + 1 + (best.next-from)/apart) * best.stride, true
}

// triesAll reports whether campaigns with nothing left are read for as well: nothing is left of any other, or main waits until one has
// finished.
func (l *Lane) triesAll() bool {
	for _, c := range l.campaigns {
		if c.behind && c.hasLeft() {
			return l.Full()
		}
	}
	return true
}

// leastReach is how many offsets from its beginning a read goes on for campaigns that take part, at least. For those that lie further away
// it does not: there may be many records of others before them.
const leastReach = 512

// passes reports whether the queue of a campaign left behind probably has unreported room: fewer of its units are open than when it last
// refused.
func (c *campaign) passes() bool {
	return c.behind && !c.capped && c.capacity <= 0 && c.queued > c.units
}

// BeginCatchUp determines which campaigns take part in a read that begins at from: those with room, and those with records there whose
// queue probably has room already (passes). If the latter waited for GrantCapacity, each would need its own read over the same records.
func (l *Lane) BeginCatchUp(from int64) {
	l.reads++
	l.readFrom, l.chasing = from, 0
	all := l.triesAll()
	for _, c := range l.campaigns {
		c.found = 0
		ahead := c.next >= from
		c.passing = ahead && c.passes()
		if c.passing {
			c.capacity = c.queued - c.units - 1
		}
		c.chase = c.passing || ahead && c.behind && c.capacity > 0
		if c.near = c.chase && c.next <= from+l.reach && (all || c.hasLeft()); c.near {
			l.chasing++
		}
	}
}

// ClassifyCatchUp returns the verdict about a record before main; Stop means that no campaign near the beginning takes part any more. One
// record more than there is room for is handed over: its refusal makes the handler report room later. Without it, that
// would take another read.
func (l *Lane) ClassifyCatchUp(hash uint64, offset int64) Verdict {
	if l.chasing == 0 {
		return Stop
	}
	c := l.campaigns[hash]
	if c == nil || !c.chase || offset < c.next {
		return Skip
	}
	known := l.at[offset] != nil || offset < c.settledTo && l.pending[offset] == nil // handed over or settled: it needs no room
	switch {
	case known:
	case l.exhausted(c):
		l.stopChase(c)
		c.leave(offset)
		c.capped = true
		return Skip
	case c.capacity < 0:
		c.next = offset
		l.stopChase(c)
		return Skip
	}
	c.served = l.reads
	c.found++
	if !known {
		return HandOver
	}
	c.next = offset + 1
	return Skip
}

// BreakCatchUp ends a read that failed half-way. The handler does not report room for campaigns that used up their
// room in it, since it has refused none of their jobs: stopChase gives them a little.
func (l *Lane) BreakCatchUp() {
	for _, c := range l.campaigns {
		if c.chase {
			l.stopChase(c)
			l.trim(c)
		}
	}
}

// stopChase ends the campaign's part in a read.
func (l *Lane) stopChase(c *campaign) {
	switch {
	case c.passing: // the handler will still report room
		c.capacity = 0
	case c.capacity <= 0: // all room is used: offer a little more, since only a refusal makes the handler report room again
		c.capacity = c.unasked()
	}
	if c.near {
		l.chasing--
	}
	c.chase, c.near, c.passing = false, false, false
}

// unasked is the room for a trial of a campaign whose queue has reported none.
func (c *campaign) unasked() int64 { return max(1, c.granted/4) }

// EndCatchUp records that the read covered everything before the offset to, with the given bytes of records.
func (l *Lane) EndCatchUp(to, bytes int64) {
	to = min(to, l.main)
	if to > l.readFrom && bytes > 0 {
		l.each = max(1, bytes/(to-l.readFrom))
	}
	for _, c := range l.campaigns {
		if c.chase {
			c.next = max(c.next, to)
		}
		if c.found > 0 && to > l.readFrom { // of the range, the part before the point where the campaign had no room left
			part := float64(min(max(c.next, l.readFrom), to)-l.readFrom) / float64(to-l.readFrom)
			c.stride = max(64, (3*c.stride+int64(float64(bytes)*part)/c.found)/4)
		}
		if c.chase {
			l.stopChase(c)
			l.trim(c)
		}
	}
}
