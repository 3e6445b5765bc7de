package offset

import (
	"cmp"
	"iter"
	"slices"
)

// Window keeps the offsets of one partition of ingress or of a timer that are read and not yet committed. It is pure: no
// lock, no clock. Make one with RestoreWindow.
//
//	         base             next
//	committed | settled, open  | restored, not read yet
//
// base is the offset to commit: everything before it is settled. Offsets from base up to next have been read; those in
// reads are open, unless they are done, and all others are settled. So memory is bounded by the number of open offsets,
// however many settled ones lie between them. Beyond next there are the spans that the last owner had settled and this
// one has not reached yet; they are skipped when they are read. Offsets that were never handed out by the broker (control
// records, compacted ones) are settled as soon as the read has passed them.
type Window struct {
	base     int64
	next     int64
	reads    []read // ascending; the first is open, and those that are done are removed when they are the most
	open     int    // number of reads that are open
	back     int    // of these, those that were given back
	restored []span // beyond next, or containing it; ascending
	full     int    // there was no room, and there is none for as many settles
}

// read is an offset that was open when it was read, and its bytes in the budget. One that was given back is open, and read again.
type read struct {
	offset     int64
	size       int32
	done, back bool
}

// MaxOpen is the greatest number of open offsets that HasCapacity may leave room for.
const MaxOpen = 20_000

// RestoreWindow starts at a committed offset, with the offsets settled beyond it from its metadata. If the metadata
// cannot be read, it returns an error and a Window that knows only the offset.
func RestoreWindow(committed int64, metadata string) (*Window, error) {
	settled, err := decodeSettled(committed, metadata)
	return restoreWindow(committed, settled), err
}

// restoreWindow starts at base with the offsets settled beyond it (ascending, disjoint).
func restoreWindow(base int64, settled []span) *Window {
	w := &Window{base: base, next: base, restored: settled}
	w.advance()
	return w
}

// Committed returns the offset to commit.
func (w *Window) Committed() int64 { return w.base }

// End returns the offset after all that were read.
func (w *Window) End() int64 { return w.next }

// Restored reports whether an offset that was not read yet is known to be settled, as the last owner had settled it.
func (w *Window) Restored(offset int64) bool {
	if offset < w.base {
		return true
	}
	i, _ := slices.BinarySearchFunc(w.restored, offset, func(s span, o int64) int { return cmp.Compare(s.last, o) })
	return i < len(w.restored) && w.restored[i].first <= offset
}

// Open returns the number of open offsets that were not given back.
func (w *Window) Open() int { return w.open - w.back }

// Read registers the record at offset (the next one in the log, or one given back) with its size in bytes. It reports whether to hand the
// record over; false means that it was settled before, or is open. Offsets that were not given back must ascend.
func (w *Window) Read(offset, size int64) bool {
	w.Pass(offset)
	if offset < w.next {
		i, found := w.find(offset)
		if !found || !w.reads[i].back {
			return false
		}
		w.reads[i].size, w.reads[i].back = clampSize(size), false
		w.back--
		return true
	}
	settled := len(w.restored) > 0 && w.restored[0].first <= offset
	w.next = offset + 1
	if settled {
		w.advance()
		return false
	}
	w.reads = append(w.reads, read{offset: offset, size: clampSize(size)})
	w.open++
	w.advance()
	return true
}

func clampSize(size int64) int32 { return int32(min(size, 1<<31-1)) }

// Pass records that the log holds no more records before offset, and reports whether that moves anything.
func (w *Window) Pass(offset int64) (moved bool) {
	if moved = offset > w.next; moved {
		w.next = offset
		w.advance()
	}
	return moved
}

// Span returns the next offset to read, and the one after all that were settled or read.
func (w *Window) Span() (low, high int64) {
	low, high = w.Next(), w.next
	if n := len(w.restored); n > 0 {
		high = max(high, w.restored[n-1].last+1)
	}
	return low, high
}

// Raise records that the log now begins at first, and reports whether that moves anything.
func (w *Window) Raise(first int64) (moved bool) {
	for w.IsBack(first) {
		_, moved = w.Settle(w.Next())
	}
	return w.Pass(first) || moved
}

// Cut drops the offsets from at on, because the log has lost them and gives them to other records. No offset is open.
func (w *Window) Cut(at int64) {
	w.restored = before(w.restored, at)
	w.base, w.next = min(w.base, at), min(w.next, at)
	w.advance()
}

// Settle marks the offset as done and returns its size in bytes; ok is false if the offset is not open.
func (w *Window) Settle(offset int64) (size int64, ok bool) {
	i, found := w.find(offset)
	if !found || w.reads[i].done {
		return 0, false
	}
	size = int64(w.reads[i].size)
	if w.reads[i].back {
		w.back--
	}
	w.reads[i].done, w.reads[i].back = true, false
	w.open--
	w.full--
	if i == 0 {
		w.advance()
	}
	if len(w.reads) > 2*w.open+minSettles { // a new slice gives back the memory of a window that was large
		w.reads = slices.AppendSeq(make([]read, 0, w.open+minSettles), w.unsettled())
	}
	return size, true
}

// GiveBack takes back an open offset: it is read again. It returns the size that was registered; ok is false if it is not open.
func (w *Window) GiveBack(offset int64) (size int64, ok bool) {
	i, found := w.find(offset)
	if !found || w.reads[i].done || w.reads[i].back {
		return 0, false
	}
	size = int64(w.reads[i].size)
	w.reads[i].size, w.reads[i].back = 0, true
	w.back++
	return size, true
}

// Next returns the offset to read next: the first that was given back, or the one after all that were read.
func (w *Window) Next() int64 {
	if w.back > 0 {
		return w.reads[slices.IndexFunc(w.reads, func(r read) bool { return r.back })].offset
	}
	return w.next
}

// IsBack reports whether an offset before this one was given back.
func (w *Window) IsBack(before int64) bool { return w.back > 0 && w.Next() < before }

// unsettled yields the reads that are open.
func (w *Window) unsettled() iter.Seq[read] {
	return func(yield func(read) bool) {
		for _, r := range w.reads {
			if !r.done && !yield(r) {
				return
			}
		}
	}
}

// minSettles is how many settled offsets are worth no copy of the others.
const minSettles = 64

// needs returns how many bytes the metadata of a commit takes at most, with these offsets open too, the next ones in the log, whichever
// of them and of the open ones are settled by then.
func (w *Window) needs(offsets []int64) int {
	m, at := newMeter(w.base), w.next
	for r := range w.unsettled() {
		m.add(r.offset)
	}
	for _, s := range w.restored { // what lies between them is not read yet
		if at < s.first {
			m.addRange(at, s.first-1)
		}
		at = s.last + 1
	}
	for _, o := range offsets {
		if o >= at {
			m.add(o)
		}
	}
	return m.bytes()
}

// HasCapacity reports whether the records at these offsets, the next ones in the log, may be read: whichever of them and of
// the open ones are settled first, the commit has room to say so. Not more than maxOpen are open then. A Window without
// open offsets has room for any that are offered at once.
func (w *Window) HasCapacity(maxOpen int, offsets ...int64) bool {
	n, _ := slices.BinarySearch(offsets, w.next)
	offsets = offsets[n:] // those before were read already
	if w.open == 0 || len(offsets) == 0 {
		return true
	}
	if w.open+len(offsets) > maxOpen || w.full > 0 {
		return false
	}
	_, end := w.Span()
	all := newMeter(w.base) // as if no offset were settled
	all.addRange(w.base, max(end, offsets[len(offsets)-1]))
	room := all.bytes() <= maxRawMetadata || w.needs(offsets) <= maxRawMetadata
	if !room {
		w.full = w.open/8 + minSettles
	}
	return room
}

// Middle returns an offset before which there is the older half of the open offsets.
func (w *Window) Middle() int64 {
	left := w.open / 2
	for r := range w.unsettled() {
		if left == 0 {
			return r.offset
		}
		left--
	}
	return w.next
}

// find returns the index of the first read at offset or beyond it, and whether it is at offset.
func (w *Window) find(offset int64) (i int, found bool) {
	if len(w.reads) == 0 || offset < w.reads[0].offset {
		return 0, false
	}
	// Offsets ascend, so there are no more reads up to this one than offsets; without gaps there are as many.
	n := int(min(offset-w.reads[0].offset+1, int64(len(w.reads))))
	if w.reads[n-1].offset == offset {
		return n - 1, true
	}
	return slices.BinarySearchFunc(w.reads[:n], offset, func(r read, o int64) int { return cmp.Compare(r.offset, o) })
}

// Position returns the content of the next commit. It is not trimmed while HasCapacity was asked before each Read.
func (w *Window) Position() Position {
	metadata, trimmed := encodeSettled(w.base, w.settled())
	return Position{Offset: w.base, Metadata: metadata, Trimmed: trimmed}
}

// OpenBytes returns the sum of the sizes of the open offsets.
func (w *Window) OpenBytes() (bytes int64) {
	for r := range w.unsettled() {
		bytes += int64(r.size)
	}
	return bytes
}

// advance moves base to the first open offset. If there is none, it moves to next, and past restored offsets that are
// not read yet: they need not be read then.
func (w *Window) advance() {
	n := 0
	for n < len(w.reads) && w.reads[n].done {
		n++
	}
	// Re-slicing leaves the space before the rest unused until append next grows the slice, and growing copies only the
	// rest, so the cost of a read is amortised constant in time and space.
	if w.reads = w.reads[n:]; len(w.reads) == 0 {
		w.reads = nil
	}
	n = 0
	for n < len(w.restored) && (w.restored[n].last < w.next || len(w.reads) == 0 && w.restored[n].first <= w.next) {
		w.next = max(w.next, w.restored[n].last+1)
		n++
	}
	if w.restored = w.restored[n:]; len(w.restored) == 0 {
		w.restored = nil
	}
	w.base = w.next
	if len(w.reads) > 0 {
		w.base = w.reads[0].offset
	}
}

// settled returns the spans of settled offsets beyond base, ascending.
func (w *Window) settled() []span {
	var spans []span
	at := w.base // everything before it is in spans, or open
	for r := range w.unsettled() {
		spans = appendSpan(spans, at, r.offset-1)
		at = r.offset + 1
	}
	spans = appendSpan(spans, at, w.next-1)
	for _, s := range w.restored {
		spans = appendSpan(spans, max(s.first, w.next), s.last)
	}
	return spans
}
