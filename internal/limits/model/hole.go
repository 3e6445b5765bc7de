package model

import (
	"cmp"
	"slices"
)

// maxHoles bounds the holes that a timeline remembers. Beyond that the earliest is forgotten.
const maxHoles = 32

// hole is a stretch of a timeline whose slots were handed back while later ones are granted, as when a change of the rate ends the grants
// of one daemon before those of the others. No slot lies after before and not after last. Slots of the rate in force are granted there
// again, the first one spacing after before, and the others not after last. So none is closer to the next than it, or the one handed
// back, would have been.
type hole struct{ before, last int64 }

// holes are those of a timeline, in order; they neither overlap nor touch.
type holes []hole

// expire forgets holes that have passed.
func (l *holes) expire(now int64) {
	*l = slices.DeleteFunc(*l, func(h hole) bool { return h.last < now })
}

// add adds a hole, and joins it with those it touches.
func (l *holes) add(h hole) {
	*l = slices.DeleteFunc(*l, func(o hole) bool {
		touches := o.before <= h.last && h.before <= o.last
		if touches {
			h = hole{min(h.before, o.before), max(h.last, o.last)}
		}
		return touches
	})
	i, _ := slices.BinarySearchFunc(*l, h, func(a, b hole) int { return cmp.Compare(a.last, b.last) })
	*l = slices.Insert(*l, i, h)
	if len(*l) > maxHoles {
		*l = slices.Delete(*l, 0, 1)
	}
}

// end removes the holes that reach the end of the timeline, which is after its last slot, and moves that before them. It
// reports whether there were any.
func (l *holes) end(last *int64) (joined bool) {
	for n := len(*l) - 1; n >= 0 && (*l)[n].last >= *last; n-- {
		*last, joined = min(*last, (*l)[n].before), true
		*l = (*l)[:n]
	}
	return joined
}

// first is the first hole with room for a slot of the spacing not before now, and where that lies; -1 for none.
func (l holes) first(now, spacing int64) (i int, at int64) {
	for i, h := range l {
		if at = max(now, h.before+spacing); at <= h.last {
			return i, at
		}
	}
	return -1, 0
}
