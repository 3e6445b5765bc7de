package offset

import "github.com/pacer/pacer/internal/delivery"

// Window keeps the offsets of one partition of ingress or of a timer that are read and not yet committed. It is pure: no
// lock, no clock. Make one with NewWindow or RestoreWindow.
//
//	         base             next            base+len(states)
//	committed | settled, open  | restored, not read yet
//
// base is the offset to commit: everything before it is settled. Offsets from base up to next have been read; each is
// open or done. A state at or beyond next exists only where the last owner had settled an offset that this one has not
// reached yet; it is done, and skipped when it is read. Offsets that were never handed out by the broker (control
// records, compacted ones) are done as soon as the read has passed them.
type Window struct {
	base   int64
	next   int64
	states []state // states[i] is that of offset base+i; its capacity is reused as base advances
	open   int     // number of open states
}

// state is the state of one offset: while it is open, its bytes in the budget and the owner of its job; or done.
type state struct {
	size  int32
	owner Owner
	done  bool
}

// MaxWindow bounds the span of a Window, in offsets, so that its bitmap fits into the metadata of a commit.
const MaxWindow = 20_000

// NewWindow returns a Window that starts at the offset base.
func NewWindow(base int64) *Window { return &Window{base: base, next: base} }

// RestoreWindow starts at a committed offset, with the offsets settled beyond it from its metadata. If the metadata
// cannot be read, it returns an error and a Window that knows only the offset.
func RestoreWindow(committed int64, metadata string) (*Window, error) {
	settled, err := decodeSettled(committed, metadata)
	return restoreWindow(committed, settled), err
}

// restoreWindow starts at base with the offsets settled beyond it (ascending, disjoint).
func restoreWindow(base int64, settled []span) *Window {
	w := NewWindow(base)
	for _, s := range settled {
		for len(w.states) < int(s.last-base)+1 {
			w.states = append(w.states, state{})
		}
		for o := s.first; o <= s.last; o++ {
			w.states[o-base].done = true
		}
	}
	w.advance()
	return w
}

// Base returns the offset to commit.
func (w *Window) Base() int64 { return w.base }

// Next returns the offset to read next.
func (w *Window) Next() int64 { return w.next }

// Open returns the number of open offsets.
func (w *Window) Open() int { return w.open }

// Width returns the number of offsets that are read and not committed.
func (w *Window) Width() int64 { return w.next - w.base }

// Read registers the record at offset, the next one in the log, with its size in bytes, and reports whether it is to
// be handed over; false means that it was settled before. Offsets must ascend.
func (w *Window) Read(offset, size int64, owner Owner) bool {
	w.Pass(offset)
	if offset < w.next {
		return false
	}
	i := int(offset - w.base)
	if i == len(w.states) {
		w.states = append(w.states, state{})
	}
	w.next = offset + 1
	if w.states[i].done {
		w.advance()
		return false
	}
	w.states[i].size, w.states[i].owner = int32(min(size, 1<<31-1)), owner
	w.open++
	return true
}

// Pass records that the log holds no more records before offset.
func (w *Window) Pass(offset int64) {
	if offset <= w.next {
		return
	}
	if w.open == 0 { // nothing holds base back: jump, whatever the distance
		w.drop(min(int(offset-w.base), len(w.states)))
		w.base, w.next = offset, offset
		w.advance()
		return
	}
	for ; w.next < offset; w.next++ {
		i := int(w.next - w.base)
		if i == len(w.states) {
			w.states = append(w.states, state{})
		}
		w.states[i].done = true
	}
}

// Span returns the first and the last of the offsets to read next, which are the same.
func (w *Window) Span() (low, high int64) { return w.next, w.next }

// Raise records that the log now begins at first, and reports whether that moves anything.
func (w *Window) Raise(first int64) (moved bool) {
	moved = first > w.next
	w.Pass(first)
	return moved
}

// Cut forgets all offsets from at on, because the log has lost them and gives them to other records. It returns the
// number of those that were open, and their bytes.
func (w *Window) Cut(at int64) (open int, bytes int64) {
	kept := min(max(at-w.base, 0), int64(len(w.states)))
	for i, s := range w.states[kept:] {
		if !s.done && w.base+kept+int64(i) < w.next {
			open++
			bytes += int64(s.size)
		}
	}
	w.states = w.states[:kept]
	w.base, w.next = min(w.base, at), min(w.next, at)
	w.open -= open
	w.advance()
	return open, bytes
}

// Settle marks the offset as done and returns its size in bytes; ok is false if the offset is not open.
func (w *Window) Settle(offset int64) (size int64, ok bool) {
	i := offset - w.base
	if i < 0 || offset >= w.next || w.states[i].done {
		return 0, false
	}
	size = int64(w.states[i].size)
	w.states[i] = state{done: true}
	w.open--
	if i == 0 {
		w.advance()
	}
	return size, true
}

// Position returns the content of the next commit. It is never trimmed, since a Window is bounded by MaxWindow.
func (w *Window) Position() Position {
	return Position{Offset: w.base, Metadata: encodeSettled(w.base, w.settled())}
}

// Oldest returns the owner of the job at Base; open is false if no offset is open.
func (w *Window) Oldest() (owner Owner, open bool) {
	if w.open == 0 {
		return 0, false
	}
	return w.states[0].owner, true
}

// OpenBytes returns the sum of the sizes of the open offsets.
func (w *Window) OpenBytes() (bytes int64) {
	for _, s := range w.states {
		bytes += int64(s.size)
	}
	return bytes
}

// advance moves base past settled offsets, also past restored ones that are not read yet: they need not be read then.
func (w *Window) advance() {
	n := 0
	for n < len(w.states) && w.states[n].done {
		n++
	}
	w.drop(n)
	w.base += int64(n)
	w.next = max(w.next, w.base)
}

// drop removes the first n states. Re-slicing leaves the space before them unused until append next grows the slice,
// and growing copies only the rest, so the cost of a state is amortised constant in time and space.
func (w *Window) drop(n int) {
	if w.states = w.states[n:]; len(w.states) == 0 {
		w.states = nil
	}
}

// settled returns the spans of done offsets beyond base, ascending.
func (w *Window) settled() []span {
	var spans []span
	for i := 0; i < len(w.states); i++ {
		if !w.states[i].done {
			continue
		}
		first := i
		for i+1 < len(w.states) && w.states[i+1].done {
			i++
		}
		spans = append(spans, span{w.base + int64(first), w.base + int64(i)})
	}
	return spans
}

// Owner identifies the campaign of an open offset in two bytes, the end of its hash. Two campaigns rarely share one.
type Owner uint16

// OwnerOf returns the Owner of a campaign.
func OwnerOf(campaign string) Owner { return Owner(delivery.CampaignHash(campaign)) }
