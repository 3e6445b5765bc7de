package consumer

// window keeps the offsets of one partition of ingress or of a timer that are read and not yet committed. It is pure:
// no lock, no clock. The zero value is not usable; see newWindow.
//
//	         base             next            base+len(slots)
//	committed | settled, open  | restored, not read yet
//
// base is the offset to commit: everything before it is settled. Offsets from base up to next have been read; each is
// open or done. A slot at or beyond next exists only where the last owner had settled an offset that this one has not
// reached yet; it is done, and skipped when it is read. Offsets that were never handed out by the broker (control
// records, compacted ones) are done as soon as the read has passed them.
type window struct {
	base  int64
	next  int64
	slots []slot // slots[i] is offset base+i; its capacity is reused as base advances
	open  int    // slots that are open
}

// slot is one offset: its bytes in the budget while it is open and whose job it is, or done.
type slot struct {
	size  int32
	whose whose
	done  bool
}

// whose tells campaigns apart, nearly always, in a slot of eight bytes: the end of their hash.
type whose uint16

func whoseIs(campaign string) whose { return whose(campaignHash(campaign)) }

// newWindow starts at the committed offset base, with the offsets settled beyond it (ascending, disjoint).
func newWindow(base int64, settled []span) *window {
	w := &window{base: base, next: base}
	for _, s := range settled {
		for len(w.slots) < int(s.last-base)+1 {
			w.slots = append(w.slots, slot{})
		}
		for o := s.first; o <= s.last; o++ {
			w.slots[o-base].done = true
		}
	}
	w.advance()
	return w
}

// read registers the record at offset, the next one in the log, and tells whether it is to be handed over; false means
// that it was settled before. Offsets must ascend.
func (w *window) read(offset, size int64, of whose) bool {
	w.pass(offset)
	if offset < w.next {
		return false
	}
	i := int(offset - w.base)
	if i == len(w.slots) {
		w.slots = append(w.slots, slot{})
	}
	w.next = offset + 1
	if w.slots[i].done {
		w.advance()
		return false
	}
	w.slots[i].size, w.slots[i].whose = int32(min(size, 1<<31-1)), of
	w.open++
	return true
}

// pass notes that the log holds nothing more before offset.
func (w *window) pass(offset int64) {
	if offset <= w.next {
		return
	}
	if w.open == 0 { // nothing holds base back: jump, however far it is
		w.drop(min(int(offset-w.base), len(w.slots)))
		w.base, w.next = offset, offset
		w.advance()
		return
	}
	for ; w.next < offset; w.next++ {
		i := int(w.next - w.base)
		if i == len(w.slots) {
			w.slots = append(w.slots, slot{})
		}
		w.slots[i].done = true
	}
}

// settle marks the offset done and returns its size; false when it is not open.
func (w *window) settle(offset int64) (size int64, ok bool) {
	i := offset - w.base
	if i < 0 || offset >= w.next || w.slots[i].done {
		return 0, false
	}
	size = int64(w.slots[i].size)
	w.slots[i] = slot{done: true}
	w.open--
	if i == 0 {
		w.advance()
	}
	return size, true
}

// advance moves base over what is settled, also where it is not read yet: then it need not be.
func (w *window) advance() {
	n := 0
	for n < len(w.slots) && w.slots[n].done {
		n++
	}
	w.drop(n)
	w.base += int64(n)
	w.next = max(w.next, w.base)
}

// drop forgets the first n slots. Re-slicing leaves the space before them unused until append next grows the slice,
// and growing copies only what is left, so a slot costs amortised constant time and space.
func (w *window) drop(n int) {
	if w.slots = w.slots[n:]; len(w.slots) == 0 {
		w.slots = nil
	}
}

// width is how many offsets are read and not committed.
func (w *window) width() int64 { return w.next - w.base }

// settled lists the spans of done offsets beyond base, ascending.
func (w *window) settled() []span {
	var spans []span
	for i := 0; i < len(w.slots); i++ {
		if !w.slots[i].done {
			continue
		}
		first := i
		for i+1 < len(w.slots) && w.slots[i+1].done {
			i++
		}
		spans = append(spans, span{w.base + int64(first), w.base + int64(i)})
	}
	return spans
}

// oldest tells whose the job at base is; false when nothing is open.
func (w *window) oldest() (of whose, open bool) {
	if w.open == 0 {
		return 0, false
	}
	return w.slots[0].whose, true
}

// held is the sum of the sizes of the open offsets, and how many there are.
func (w *window) held() (bytes int64, open int) {
	for _, s := range w.slots {
		bytes += int64(s.size)
	}
	return bytes, w.open
}
