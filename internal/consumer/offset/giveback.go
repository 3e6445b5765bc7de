package offset

import "slices"

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
