package pacer

import "github.com/pacer/pacer/internal/delivery"

// firstCalls of most calls, but silentFailures at most, may be in flight to a destination that has not answered: as many as show
// whether it works.
const firstCalls = 16

// flow is how many calls may be in flight to a destination. One that does not answer must not take the calls of the others, so it gets
// a few calls at first, and up to twice as many as are in use with each round of answers. It is pure; the zero value is ready.
type flow struct {
	calls  calls
	window int // 0: as at first
}

// firstWindow is how many calls of most, which all destinations share, may be in flight to one that has not answered.
func firstWindow(most int) int { return min(max(1, most/firstCalls), silentFailures) }

// maxCalls is how many calls may be in flight. most is what all destinations share, limit what this one may have; 0 for no such limit.
func (f *flow) maxCalls(most, limit int) int {
	if limit == 0 {
		limit = most
	}
	return min(max(f.window, firstWindow(most)), limit)
}

// ended records the end of a call. answered says that the destination took the job, or at least answered for it.
func (f *flow) ended(answered bool, most int) {
	switch window := max(f.window, firstWindow(most)); {
	case !answered:
		f.window = 0
	case 2*(f.calls.inFlight+1) >= window:
		f.window = min(window+2, most)
	}
}

func (d *destination) callEnded(x *sent, now instant) {
	if d.calls.over(x, now); x.forfeited {
		return
	}
	switch x.result.Class {
	case delivery.Delivered, delivery.Rejected, delivery.Permanent, delivery.Pending:
		d.flow.ended(true, x.sink.max)
	case delivery.Temporary:
		d.flow.ended(x.result.By == delivery.ByDestination, x.sink.max)
	case delivery.Throttled, delivery.Unreachable, delivery.Misconfigured:
		d.flow.ended(false, x.sink.max)
	}
}
