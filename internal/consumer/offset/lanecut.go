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
			c.next, c.uncounted, moved = first, true, true
			l.trim(c)
		}
	}
	return moved
}

// Span returns the smallest and the greatest of the readers' next offsets.
func (l *Lane) Span() (low, high int64) {
	low = l.main
	for _, c := range l.campaigns {
		if c.behind {
			low = min(low, c.next)
		}
	}
	return low, l.main
}

// Cut drops the offsets from at on, because the log has lost them and gives them to other records. No offset is open.
func (l *Lane) Cut(at int64) {
	was := l.main
	l.main = min(l.main, at)
	maps.DeleteFunc(l.pending, func(o int64, _ *campaign) bool { return o >= at })
	for _, c := range l.campaigns {
		c.settledTo = min(c.settledTo, at)
		// As in Raise, only the share of the records left behind that lie there is known.
		c.left -= int64(float64(c.left) * float64(max(0, was-max(at, c.next))) / float64(max(1, was-c.next)))
		c.next, c.uncounted = min(c.next, at), c.behind
		l.trim(c)
	}
}
