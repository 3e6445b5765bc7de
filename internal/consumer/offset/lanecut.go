package offset

import "maps"

// Raise moves every position to at least first, the start of a truncated log, and reports whether any has moved.
func (l *Lane) Raise(first int64) (moved bool) {
	if l.main < first {
		l.main, moved = first, true
	}
	for _, c := range l.campaigns {
		if c.behind && c.next < first {
			// How many of the records left behind were cut off is not known: assume the campaign's share of that part
			// of the log.
			c.left -= int64(float64(c.left) * float64(first-c.next) / float64(max(1, l.main-c.next)))
			c.next, moved = first, true
			l.trim(c)
		}
	}
	return moved
}

// Span returns the smallest and the greatest of the offsets at which the readers go on.
func (l *Lane) Span() (low, high int64) {
	low = l.main
	for _, c := range l.campaigns {
		if c.behind {
			low = min(low, c.next)
		}
	}
	return low, l.main
}

// Cut forgets all offsets from at on, because the log has lost them and gives them to other records. It returns the
// number of those that were open, and their bytes. It is not called during a read.
func (l *Lane) Cut(at int64) (open int, bytes int64) {
	was := l.main
	l.main = min(l.main, at)
	maps.DeleteFunc(l.pending, func(o int64, _ bool) bool { return o >= at })
	for _, c := range l.campaigns {
		i, _ := c.find(at)
		for _, r := range c.records[i:] {
			if !r.Settled {
				open++
				bytes += r.Size
				c.open--
				c.units -= r.Weight
				delete(l.at, r.Offset)
			}
		}
		c.records = c.records[:i]
		c.settledTo = min(c.settledTo, at)
		if c.behind { // as in Raise, only the share of the records left behind that lie there can be told
			c.left -= int64(float64(c.left) * float64(max(0, was-max(at, c.next))) / float64(max(1, was-c.next)))
			c.next = min(c.next, at)
		}
		if c.capped && l.hasCapacity(c) { // perhaps none is left whose settling lifts the cap
			c.capped, c.capacity, l.freed = false, unlimited, true
		}
		l.trim(c)
	}
	return open, bytes
}
