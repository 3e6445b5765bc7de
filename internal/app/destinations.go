package app

import (
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/pacer"
)

// destinationLimits returns what is set for a destination: what its row of pacer.destinations says, where the sink sends to those.
func (p *Parts) destinationLimits(sink, destination string) (set pacer.DestinationLimits) {
	if e := p.Catalog.Snapshot().Destination(destination); e != nil && p.Sinks[sink].Destinations {
		set = pacer.DestinationLimits{InFlight: e.MaxInFlight, Disabled: e.Disabled(), Version: uint64(e.Renewed) + 1}
	}
	return set
}

// missing returns why a sink has no destination for a job, in one line; "" if it has one, or looks for none in pacer.destinations.
func (p *Parts) missing(sink string, j *delivery.Job) string {
	if !p.Sinks[sink].Destinations {
		return ""
	}
	id, _ := j.DestinationAt(sink)
	if id == "" {
		return "the job names no destination, and its sink " + sink + " needs one; publish it with " + delivery.HeaderDestination
	}
	e := p.Catalog.Snapshot().Destination(id)
	switch {
	case e == nil:
		return "no destination with the id " + id + "; create it with pacer destination create, then replay"
	case !e.Serves(sink):
		return fmt.Sprintf("destination %s belongs to the sink %s, and the campaign's is %s; change one of them, then replay", e.ID, e.Sink, sink)
	}
	return ""
}
