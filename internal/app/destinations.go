package app

import (
	"fmt"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
)

// missing returns what tells why a sink has no destination for a job; nil if no sink looks in pacer.destinations.
func (p *Parts) missing() func(name string, j *delivery.Job) string {
	tables := tableSinks(p.Sinks)
	if len(tables) == 0 {
		return nil
	}
	return func(name string, j *delivery.Job) string {
		if !tables[name] {
			return ""
		}
		id, _ := j.DestinationAt(name)
		if id == "" {
			return "the job names no destination, and its sink " + name + " needs one; publish it with " + delivery.HeaderDestination
		}
		e := p.Catalog.Snapshot().Destination(id)
		switch {
		case e == nil:
			return "no destination with the id " + id + "; create it with pacer destination create, then replay"
		case !e.Serves(name):
			return fmt.Sprintf("destination %s belongs to the sink %s, and the campaign's is %s; change one of them, then replay", e.ID, e.Sink, name)
		}
		return ""
	}
}

// tableSinks returns the sinks that send to pacer.destinations.
func tableSinks(sinks map[string]sink.Entry) map[string]bool {
	tables := map[string]bool{}
	for name, e := range sinks {
		if e.Destinations {
			tables[name] = true
		}
	}
	return tables
}
