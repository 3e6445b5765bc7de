package app

import (
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/sink"
)

// readings are what this daemon tells the others of its work.
func (d *Daemon) readings() progress.Readings {
	slots, partitions := d.pacer.Readings(), d.consumer.Readings()
	return progress.Readings{
		Gauges: progress.Gauges{
			Ingress: partitions.Ingress, Timers: partitions.Timers, Stalled: partitions.Stalled,
			Buffered: partitions.Bytes, BufferMost: partitions.Most, Quantum: slots.Quantum,
		},
		Forfeited: slots.Forfeited, Lateness: slots.Lateness, Sinks: sinkReadings(d.sinks.Readings()),
	}
}

func sinkReadings(of []sink.Reading) []progress.SinkReading {
	list := make([]progress.SinkReading, len(of))
	for i := range of {
		s := &of[i]
		list[i] = progress.SinkReading{Sink: s.Sink, InFlight: int64(s.InFlight), Most: int64(s.Most), Took: s.Took, Failure: s.Failure}
		for class, n := range s.Answers {
			list[i].Answers[class] = n
		}
	}
	return list
}
