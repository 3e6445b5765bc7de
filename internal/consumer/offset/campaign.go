package offset

import (
	"cmp"
	"slices"
)

// campaign is a campaign with records between its low and main of a Lane.
type campaign struct {
	hash uint64

	// records are those handed over, ascending; the first is open, and those that are settled are removed when they are the most.
	// Every record of the campaign before settledTo is open in here, or in the pending ones of the lane, or settled.
	records   []Record
	settledTo int64 // after the last record of the campaign that was settled
	units     int64 // of the open records
	bytes     int64 // of the open records
	open      int64 // records that are not settled
	left      int64 // records before main that are neither open nor settled; see waiting
	uncounted bool  // behind: there may be more than left says

	behind   bool
	next     int64  // behind: the first offset that was not handed over
	capacity int64  // behind: about how many units the queue would accept; 0 from a refusal until room is granted
	granted  int64  // the room granted last
	queued   int64  // units that were open when it last refused: about what the queue holds
	chase    bool   // takes part in the current catch-up read
	near     bool   // and its records are near the beginning of that
	passing  bool   // takes part only because its records lie in the range; its room is derived from queued
	capped   bool   // left behind because too much of it is handed over, not because its queue is full
	served   uint64 // the last catch-up read that found one of its records
	found    int64  // its records in the current catch-up read
	stride   int64  // bytes of lane read per record of this campaign, a moving average
}

// waiting is the number of the campaign's records before main that are not settled. If the campaign is level with main it is exact, even
// after losses in the log or a commit.
func (c *campaign) waiting() int64 { return c.open + c.left }

// hasLeft reports whether there probably are records between next and main that were not handed over.
func (c *campaign) hasLeft() bool { return c.left > 0 || c.uncounted }

// low returns the first offset of the campaign that may not be settled.
func (c *campaign) low() int64 {
	switch {
	case len(c.records) == 0:
		return c.next // the campaign is behind, or it would have been dropped
	case c.behind:
		return min(c.next, c.records[0].Offset)
	}
	return c.records[0].Offset
}

// hasOpenBeyond reports whether a record beyond an offset is open, given that none beyond it is settled.
func (c *campaign) hasOpenBeyond(offset int64) bool {
	n := len(c.records)
	return n > 0 && c.records[n-1].Offset > offset
}

// leave records that the record at offset, and those after it, were not handed over.
func (c *campaign) leave(offset int64) {
	if !c.behind || offset < c.next {
		c.next = offset
	}
	c.behind, c.chase, c.passing, c.capacity = true, false, false, 0
}

// trim drops settled records at the front, and all of them when they are the most.
func (c *campaign) trim() {
	n := 0
	for n < len(c.records) && c.records[n].Settled {
		n++
	}
	if c.records = c.records[n:]; c.open == 0 {
		c.records = nil
	} else if int64(len(c.records)) > 2*c.open+minSettles {
		c.records = slices.DeleteFunc(c.records, func(r Record) bool { return r.Settled })
	}
}

func (c *campaign) find(offset int64) (int, bool) {
	return slices.BinarySearchFunc(c.records, offset, func(r Record, o int64) int { return cmp.Compare(r.Offset, o) })
}

// insert keeps the order; mostly it appends.
func (c *campaign) insert(r Record) {
	i, _ := c.find(r.Offset)
	c.records = slices.Insert(c.records, i, r)
}
