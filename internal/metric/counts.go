// Package metric has what is counted beside the metrics of Prometheus, or read back from them, for figures that daemons tell each
// other: durations in cells so fine that any quantile is known within an eighth.
package metric

import (
	"encoding/binary"
	"errors"
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Cells is how many cells a histogram has. Durations of 0 to 3 µs have a cell of their own; each further power of two is divided into
// four, up to Longest, and what is longer counts as that. Daemons of several releases exchange the positions of cells.
const (
	Cells     = 104
	quarters  = 4
	firstBits = 3 // of 4 µs, where the powers begin
)

// Longest is the longest duration that is told from longer ones.
const Longest = (1<<27 - 1) * time.Microsecond

// Histogram counts durations. The zero value is empty. Safe for concurrent use.
type Histogram struct{ cells [Cells]atomic.Uint64 }

// Observe counts a duration; a negative one counts as 0.
func (h *Histogram) Observe(d time.Duration) { h.cells[cell(d)].Add(1) }

// Observe counts a duration; a negative one counts as 0.
func (c *Counts) Observe(d time.Duration) { c[cell(d)]++ }

// Counts returns what was counted.
func (h *Histogram) Counts() (c Counts) {
	for i := range h.cells {
		c[i] = h.cells[i].Load()
	}
	return c
}

// cell returns the cell of a duration.
func cell(d time.Duration) int {
	us := uint64(min(max(d, 0), Longest) / time.Microsecond)
	if us < quarters {
		return int(us)
	}
	power := bits.Len64(us) - firstBits // above that of 4
	return quarters*(power+1) + int(us>>power)&(quarters-1)
}

// middle returns the duration that stands for those in a cell.
func middle(cell int) time.Duration {
	if cell < 2*quarters { // of one microsecond
		return time.Duration(cell) * time.Microsecond
	}
	power := cell/quarters - 1
	least := time.Duration(quarters+cell%quarters) << power
	return least*time.Microsecond + time.Microsecond<<power/2
}

// Counts is what a histogram has counted, by cell.
type Counts [Cells]uint64

// MarshalBinary writes the cells that have counted something.
func (c Counts) MarshalBinary() (b []byte, err error) {
	for at, n := range c {
		if n > 0 {
			b = binary.AppendUvarint(append(b, byte(at)), n)
		}
	}
	return b, nil
}

// UnmarshalBinary reads what MarshalBinary has written.
func (c *Counts) UnmarshalBinary(b []byte) error {
	for *c = (Counts{}); len(b) > 0; {
		n, size := binary.Uvarint(b[1:])
		if size <= 0 || int(b[0]) >= Cells {
			return errors.New("these are no counts")
		}
		c[b[0]], b = min(n, math.MaxUint32), b[1+size:] // the sums of all daemons still fit
	}
	return nil
}

// Add adds what another histogram has counted.
func (c *Counts) Add(o *Counts) {
	for i := range o {
		c[i] += o[i]
	}
}

// Since returns what was counted since the same histogram had counted that.
func (c *Counts) Since(before *Counts) (grown Counts) {
	for i := range c {
		grown[i] = c[i] - min(c[i], before[i])
	}
	return grown
}

// Total returns how many durations were counted.
func (c *Counts) Total() (n uint64) {
	for i := range c {
		n += c[i]
	}
	return n
}

// Quantile returns the duration that a part of the counted ones, above 0 and at most 1, do not exceed: the one with the rank of that
// part, rounded up. For durations of at most Longest it is wrong by an eighth and a microsecond at most. It is 0 of none.
func (c *Counts) Quantile(part float64) time.Duration {
	rank := uint64(math.Ceil(part * float64(c.Total())))
	below := uint64(0)
	for i := range c {
		if below += c[i]; below >= max(rank, 1) {
			return middle(i)
		}
	}
	return 0
}
