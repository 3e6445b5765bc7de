package delivery

import "time"

// CampaignCount is a number of jobs of one campaign, which is known by its CampaignHash.
type CampaignCount struct {
	Campaign uint64
	Jobs     int64
}

// LaneBacklog is what waits in one lane: jobs that are not settled, also those handed over.
type LaneBacklog struct {
	Lane    int
	Waiting []CampaignCount // in no order, each campaign once
}

// LanesBacklog is what waits in the lanes that one daemon reads.
type LanesBacklog struct {
	Generation int32 // of the consumer group, by which the lanes were assigned
	Lanes      []LaneBacklog
}

// HeldJobs are the jobs of one campaign in a daemon's memory that wait for their turn or their time.
type HeldJobs struct {
	Campaign string
	Jobs     int64
	Units    int64 // their weights
	Direct   int64 // those that were not read from a lane
}

// Settled counts the jobs of one campaign whose fate is durable.
type Settled struct {
	Delivered int64
	Dead      int64
	Expired   int64
	Cancelled int64
}

// Total is how many jobs are settled for good.
func (s Settled) Total() int64 { return s.Delivered + s.Dead + s.Expired + s.Cancelled }

// Plus adds two counts up.
func (s Settled) Plus(o Settled) Settled {
	return Settled{
		Delivered: s.Delivered + o.Delivered, Dead: s.Dead + o.Dead,
		Expired: s.Expired + o.Expired, Cancelled: s.Cancelled + o.Cancelled,
	}
}

// Minus is what was settled since before.
func (s Settled) Minus(before Settled) Settled {
	return Settled{
		Delivered: s.Delivered - before.Delivered, Dead: s.Dead - before.Dead,
		Expired: s.Expired - before.Expired, Cancelled: s.Cancelled - before.Cancelled,
	}
}

// Tally is what one daemon has done for a campaign since it started.
type Tally struct {
	Campaign string
	Settled  Settled
	Sent     int64 // units: of jobs settled for good, and of attempts that are to be repeated
}

// Progress is what is kept of a campaign in the catalog: what was settled since the last time it was written, and what
// waits.
type Progress struct {
	Campaign string
	Settled  Settled
	Outlook  *Outlook // nil: leave what is kept as it is
}

// Outlook is how much of a campaign is still to come, as it looked at one moment.
type Outlook struct {
	Backlog int64     // jobs that wait
	DoneAt  time.Time // when they will have been sent; zero: nobody knows
}
