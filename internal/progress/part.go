package progress

import (
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
)

// part is the knowledge of one daemon. It identifies campaigns by their hashes.
type part struct {
	late  lateness // as computed by this daemon
	lanes delivery.LanesBacklog
	held  []heldCampaign
	sent  []sent
	stuck []note // what this daemon found out about campaigns
	holds []note // what holds campaigns; in summaries only

	inHand []sent       // jobs that sinks have been given and have not answered
	nodes  []Node       // the daemon itself; in summaries all that run
	early  []sent       // jobs in memory whose time has not come
	sinks  []SinkReport // of the last minute
	denied []sent       // asks that windows of quotas reduced or denied, by windowHash; of a daemon since it started
	turns  []sent       // when the rate next allows a job, in microseconds since the Unix epoch; not of campaigns where that is soon
}

// heldCampaign is the content of one daemon's memory for a campaign.
type heldCampaign struct {
	campaign uint64
	direct   int64 // jobs that are in no lane
	jobs     int64 // all jobs, for their mean weight
	units    int64
}

// sent is the number of units of a campaign that a daemon has sent since it started, or another number about a campaign or a window.
type sent struct {
	campaign uint64
	units    int64
}

// note is what a daemon says of a campaign.
type note struct {
	campaign uint64
	cause    hold.Cause
	since    int64  // microseconds since the Unix epoch
	by       uint64 // the campaign in the way; 0 for none
}
