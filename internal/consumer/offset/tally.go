package offset

import (
	"iter"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
)

// Tally counts the records of a partition of ingress or of a timer that are not settled, by campaign. The partition's reader counts what it
// reads, in the order of the log; while it waits, others count what lies beyond. Each record counts once. It is pure. Make one with NewTally.
type Tally struct {
	next   int64 // before it, all records are counted
	counts map[uint64]*delivery.CampaignCount
	to     map[string]int64 // jobs by destination, without those that name none
}

// NewTally returns a Tally of the records from an offset on.
func NewTally(from int64) *Tally {
	return &Tally{next: from, counts: map[uint64]*delivery.CampaignCount{}, to: map[string]int64{}}
}

// Next returns the first offset that is not counted.
func (t *Tally) Next() int64 { return t.next }

// Pass records that no record before an offset has to be counted any more.
func (t *Tally) Pass(offset int64) { t.next = max(t.next, offset) }

// Seen is a record as it was read.
type Seen struct {
	Offset      int64
	Campaign    uint64
	Destination string // "": none is counted
	Retrying    bool   // see delivery.Job.Retrying
	Due         int64  // when its job may be sent, in microseconds; 0: at once
}

// Ahead counts a record that the reader has not reached.
func (t *Tally) Ahead(s Seen) {
	if s.Offset < t.next {
		return
	}
	t.next = s.Offset + 1
	c := t.of(s.Campaign)
	c.Jobs++
	c.Unread++
	c.Due = max(c.Due, s.Due)
	if s.Retrying {
		c.Retrying++
	}
	t.add(s.Destination)
}

// Read counts a record that the reader has reached, and that is not settled.
func (t *Tally) Read(s Seen) {
	c := t.of(s.Campaign)
	if s.Offset >= t.next {
		c.Jobs++
		t.add(s.Destination)
		t.next = s.Offset + 1
		return
	}
	if c.Unread--; c.Unread <= 0 {
		c.Unread, c.Due = 0, 0
	}
	if s.Retrying {
		c.Retrying = max(0, c.Retrying-1)
	}
}

// add counts a job by its destination.
func (t *Tally) add(destination string) {
	if n := t.to[destination]; n > 0 {
		t.to[destination]++
	} else if destination != "" && len(t.to) < maxTallied {
		t.to[strings.Clone(destination)] = 1 // of the memory of the record
	}
}

// Settle takes a record out of the count.
func (t *Tally) Settle(offset int64, campaign uint64, destination string) {
	if offset >= t.next {
		return
	}
	if t.to[destination] > 1 {
		t.to[destination]--
	} else {
		delete(t.to, destination)
	}
	if c := t.of(campaign); c.Jobs <= 1 {
		delete(t.counts, c.Campaign)
	} else {
		c.Jobs--
	}
}

// Recount drops what was counted and not read, because the log has lost a part of it. The records from an offset on, where the reader goes on,
// are counted again.
func (t *Tally) Recount(from int64) {
	t.next = from
	for campaign, c := range t.counts {
		if c.Jobs -= c.Unread; c.Jobs <= 0 {
			delete(t.counts, campaign)
		}
		c.Unread, c.Retrying, c.Due = 0, 0, 0
	}
}

// Counts yields the counts of the campaigns, given the offset before which all is settled.
func (t *Tally) Counts(settled int64) iter.Seq[delivery.CampaignCount] {
	if settled >= t.next {
		clear(t.counts) // whatever the log has lost
		clear(t.to)
	}
	return func(yield func(delivery.CampaignCount) bool) {
		for _, c := range t.counts {
			if !yield(*c) {
				return
			}
		}
	}
}

// Destinations returns how many jobs are not settled, by the destination that they name. The caller changes nothing.
func (t *Tally) Destinations() map[string]int64 { return t.to }

// maxTallied bounds the campaigns and the destinations that are counted apart. Other campaigns are counted together, as those of no campaign.
const maxTallied = 20_000

func (t *Tally) of(campaign uint64) *delivery.CampaignCount {
	c := t.counts[campaign]
	if c == nil && len(t.counts) >= maxTallied {
		campaign = 0
		c = t.counts[0]
	}
	if c == nil {
		c = &delivery.CampaignCount{Campaign: campaign}
		t.counts[campaign] = c
	}
	return c
}
