package delivery

import "time"

const (
	// StripeRate is how many units a second one lane of a campaign is meant to carry.
	StripeRate = 500
	// laneShare is the part of all lanes that one campaign may have, as a divisor.
	laneShare = 8
)

// Stripes is the number of lanes over which the backlog of a campaign is to be spread, of so many lanes in all. One lane
// is read by one daemon, so there have to be enough of them for the rate, and for the calls that are in flight at this
// rate if each lasts as long as latency: a daemon makes at most inFlight at a time, and is counted on for half of them.
// Zero stands for a latency or a bound that is not known. The SQL function pacer.lanes goes by the same rule, without
// latencies.
func Stripes(rate Rate, latency time.Duration, inFlight, lanes int) int {
	n := ceilDiv(rate.UnitsIn(time.Second), StripeRate)
	if latency > 0 && inFlight > 0 {
		n = max(n, ceilDiv(2*rate.UnitsIn(latency), int64(inFlight)))
	}
	return int(max(1, min(n, int64(lanes/laneShare))))
}

func ceilDiv(a, b int64) int64 { return (a + b - 1) / b }
