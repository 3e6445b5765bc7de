package test

// fault is what a destination does with a job once, before it takes it, unless it says that it is for good.
type fault string

const (
	faultless     fault = ""
	fails         fault = "temporary"
	throttlesAll  fault = "throttled: sink"
	throttlesHost fault = "throttled: destination"
	throttlesOne  fault = "throttled: campaign"
	throttlesIt   fault = "throttled: recipient"
	gone          fault = "gone"      // for good: rejected
	refuses       fault = "refused"   // for good: permanent
	alwaysFails   fault = "exhausted" // for good: temporary each time
	loses         fault = "taken, and no answer"
	resets        fault = "taken, and the connection reset"
	goesAway      fault = "GOAWAY before it"
	goesAwayNow   fault = "taken, and GOAWAY with the answer"
	refusesOne    fault = "REFUSED_STREAM"
)

// A destination does these to all jobs, for a while.
const (
	deaf      fault = "deaf"
	distrusts fault = "credential expired"
)

// forGood tells what becomes of a job that is never taken: the outcome of its event, with the reason of a dead letter.
func (f fault) forGood() (outcome string, never bool) {
	switch f {
	case gone:
		return "rejected", true
	case refuses:
		return "dead refused", true
	case alwaysFails:
		return "dead attempts_exhausted", true
	}
	return "delivered", false
}

// fated is a job and what is to happen to it.
type fated struct {
	campaign  string
	fault     fault
	spent     bool
	taken     int
	takenAt   int64 // the last time; jobs of one request share it
	lost      int   // answers that may not have arrived
	concluded int   // answers for good other than that it is taken
	failed    int   // answers that it failed
}

// allFaults are the faults of jobs, in the order of use.
var allFaults = []fault{
	fails, throttlesAll, throttlesHost, throttlesOne, throttlesIt, gone, refuses, alwaysFails, loses, resets, goesAway, goesAwayNow, refusesOne,
}

// faultOf returns the fault of a job.
func (d *destination) faultOf(id string) fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	if j := d.jobs[id]; j != nil {
		return j.fault
	}
	return faultless
}
