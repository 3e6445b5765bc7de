package consumer

import (
	"slices"
	"time"
)

// ages remembers how old the jobs of a partition are: for some offsets, the time of the job there. From these follows the
// age of the oldest job that is not settled, as precisely as the marks are dense. It is pure; the zero value knows
// nothing.
type ages struct {
	marks []ageMark // by offset; at most maxAges
}

// ageMark is the time of the job at an offset.
type ageMark struct {
	offset int64
	at     time.Time
}

// maxAges bounds the marks of a partition. When there are more, every second one is dropped.
const maxAges = 128

// note adds a mark.
func (a *ages) note(offset int64, at time.Time) {
	i, known := a.find(offset)
	if known {
		return
	}
	a.marks = slices.Insert(a.marks, i, ageMark{offset, at})
	if len(a.marks) <= maxAges {
		return
	}
	kept := a.marks[:0]
	for i, m := range a.marks {
		if i%2 == 0 {
			kept = append(kept, m)
		}
	}
	a.marks = kept
}

// at returns the time of the last mark that is not beyond the offset, which is at or before that of the job there; ok is false if there
// is none. Marks before it are forgotten: callers ask for ascending offsets.
func (a *ages) at(offset int64) (at time.Time, ok bool) {
	i, known := a.find(offset)
	if !known {
		i--
	}
	if i < 0 {
		return at, false
	}
	a.marks = slices.Delete(a.marks, 0, i)
	return a.marks[0].at, true
}

func (a *ages) find(offset int64) (i int, known bool) {
	return slices.BinarySearchFunc(a.marks, offset, func(m ageMark, offset int64) int { return int(min(max(m.offset-offset, -1), 1)) })
}
