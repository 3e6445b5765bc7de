package pacer

// timeHeap holds items by their due time, the earliest first. The instants are stored with the items and every node has four children, so
// that ten thousand queues are kept in order with few cache misses.
type timeHeap[T any] struct {
	entries []timed[T]
	// index is where an item keeps its position here, -1 while it is not in the heap; nil when items never move.
	index func(item T) *int
}

// timed is an item and its instant, in microseconds.
type timed[T any] struct {
	at   int64
	item T
}

const heapArity = 4

func (h *timeHeap[T]) len() int { return len(h.entries) }

// first is the earliest entry; the heap must not be empty.
func (h *timeHeap[T]) first() timed[T] { return h.entries[0] }

// push puts an item in that is not there.
func (h *timeHeap[T]) push(item T, at int64) {
	h.entries = append(h.entries, timed[T]{at, item})
	h.up(len(h.entries) - 1)
}

// set puts the item in, or moves it to another instant.
func (h *timeHeap[T]) set(item T, at int64) {
	i := *h.index(item)
	if i < 0 {
		h.push(item, at)
		return
	}
	before := h.entries[i].at
	h.entries[i].at = at
	if at < before {
		h.up(i)
	} else if at > before {
		h.down(i)
	}
}

// remove takes the item out, if it is there.
func (h *timeHeap[T]) remove(item T) {
	if i := *h.index(item); i >= 0 {
		h.removeAt(i)
	}
}

// pop takes the earliest item out; the heap must not be empty.
func (h *timeHeap[T]) pop() T {
	item := h.entries[0].item
	h.removeAt(0)
	return item
}

func (h *timeHeap[T]) removeAt(i int) {
	last := len(h.entries) - 1
	gone, moved := h.entries[i], h.entries[last]
	h.entries[last] = timed[T]{}
	h.entries = h.entries[:last]
	if h.index != nil {
		*h.index(gone.item) = -1
	}
	if i == last {
		return
	}
	h.place(i, moved)
	if moved.at < gone.at {
		h.up(i)
	} else {
		h.down(i)
	}
}

func (h *timeHeap[T]) place(i int, e timed[T]) {
	h.entries[i] = e
	if h.index != nil {
		*h.index(e.item) = i
	}
}

func (h *timeHeap[T]) up(i int) {
	e := h.entries[i]
	for i > 0 {
		parent := (i - 1) / heapArity
		if h.entries[parent].at <= e.at {
			break
		}
		h.place(i, h.entries[parent])
		i = parent
	}
	h.place(i, e)
}

func (h *timeHeap[T]) down(i int) {
	e, n := h.entries[i], len(h.entries)
	for {
		least := heapArity*i + 1
		if least >= n {
			break
		}
		for child := least + 1; child < min(least+heapArity, n); child++ {
			if h.entries[child].at < h.entries[least].at {
				least = child
			}
		}
		if e.at <= h.entries[least].at {
			break
		}
		h.place(i, h.entries[least])
		i = least
	}
	h.place(i, e)
}
