package offset

import (
	"cmp"
	"slices"
)

// campaign is a campaign with records between its low and main of a Lane.
type campaign struct {
	hash uint64

	// records are those handed over (or found settled), ascending, from the low on. Every record of the campaign
	// before next is either in here or settled.
	records  []Record
	units    int64  // of the open records
	bytes    int64  // of the open records
	open     int64  // records that are not settled
	left     int64  // records before main that are neither in records nor settled; see waiting
	restored []span // "every record of the campaign in here is settled", from the last owner; ascending

	behind   bool
	next     int64  // behind: the first offset that was not handed over
	capacity int64  // behind: about how many units the queue would accept; 0 from a refusal until room is granted
	granted  int64  // the room granted last
	queued   int64  // units that were open when it last refused: about what the queue holds
	chase    bool   // takes part in the current catch-up read
	passing  bool   // takes part only because its records lie in the range; its room is derived from queued
	capped   bool   // left behind because too much of it is handed over, not because its queue is full
	served   uint64 // the last catch-up read that found one of its records
	found    int64  // its records in the current catch-up read
	stride   int64  // bytes of lane read per record of this campaign, a moving average
}

// waiting is the number of the campaign's records before main that are not settled. If the campaign is level with main
// it is exact, whatever the log or a commit has lost.
func (c *campaign) waiting() int64 { return c.open + c.left }

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

// leave records that the record at offset, and those after it, were not handed over.
func (c *campaign) leave(offset int64) {
	if !c.behind || offset < c.next {
		c.next = offset
	}
	c.behind, c.chase, c.passing, c.capacity = true, false, false, 0
}

// trim drops settled records at the front.
func (c *campaign) trim() {
	n := 0
	for n < len(c.records) && c.records[n].Settled && (!c.behind || c.records[n].Offset < c.next) {
		n++
	}
	if c.records = c.records[n:]; len(c.records) == 0 {
		c.records = nil
		if !c.behind {
			return
		}
	}
	low := c.low()
	for len(c.restored) > 0 && c.restored[0].last < low {
		c.restored = c.restored[1:]
	}
}

func (c *campaign) find(offset int64) (int, bool) {
	return slices.BinarySearchFunc(c.records, offset, func(r Record, o int64) int { return cmp.Compare(r.Offset, o) })
}

// insert keeps the order; mostly it appends. It returns false if the offset is present already.
func (c *campaign) insert(r Record) bool {
	i, found := c.find(r.Offset)
	if !found {
		c.records = slices.Insert(c.records, i, r)
	}
	return !found
}

// settled lists the spans beyond the low in which every record of this campaign is settled.
//
// Before next, all records of the campaign that may not be settled are in records, so a run of settled ones is one
// span, even with records of other campaigns in between. From next on, there may be records that were not handed over
// between two that were, so each is a span of its own.
func (c *campaign) settled() []span {
	var spans []span
	joined := false
	for _, r := range c.records {
		ahead := c.behind && r.Offset >= c.next
		switch {
		case !r.Settled:
			joined = false
		case joined && !ahead:
			spans[len(spans)-1].last = r.Offset
		case !ahead || !covered(c.restored, r.Offset):
			spans, joined = append(spans, span{r.Offset, r.Offset}), !ahead
		}
	}
	if c.behind {
		for _, r := range c.restored {
			if r.last >= c.next {
				spans = append(spans, span{max(r.first, c.next), r.last})
			}
		}
		slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.first, b.first) })
	}
	return spans
}
