package progress

import (
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

// reports encodes what daemons tell of their sinks, and then for each node whether it has a report, and that. Of the cells of a
// histogram only those are encoded that have counted something. What is per second is encoded in thousandths.
func (e *partEncoder) reports(sinks []SinkReport, nodes []Node) {
	sinks = first(sinks, maxSinks)
	e.number(int64(len(sinks)))
	for i := range sinks {
		s := &sinks[i]
		e.text(s.Sink)
		for _, n := range []int64{int64(s.Daemons), s.InFlight, s.Most, int64(len(s.Answers))} {
			e.number(n)
		}
		for _, perSecond := range s.Answers {
			e.thousandths(perSecond)
		}
		e.cells(&s.Took)
	}
	for i := range first(nodes, maxNodes) {
		r := nodes[i].Report
		if r == nil {
			e.number(0)
			continue
		}
		e.number(1)
		for _, n := range []int64{
			int64(r.Ingress), int64(r.Timers), int64(r.Stalled), r.Buffered, r.BufferMost, r.Quantum.Microseconds(), r.Used,
			r.Late50.Microseconds(), r.Late99.Microseconds(),
		} {
			e.number(n)
		}
		e.thousandths(r.Forfeited)
		e.calls(r.Sinks, sinks)
	}
}

// failures encodes the last failures of the sinks that were encoded before.
func (e *partEncoder) failures(sinks []SinkReport) {
	for i := range first(sinks, maxSinks) {
		e.text(sinks[i].Failure.Detail)
		e.number(max(0, sinks[i].Failure.At.UnixMicro()))
	}
}

// failures decodes the last failures of sinks.
func (d *partDecoder) failures(sinks []SinkReport) {
	for i := range sinks {
		detail, at := d.text(), d.number()
		if at > 0 {
			sinks[i].Failure = delivery.Failure{At: time.UnixMicro(at), Detail: detail}
		}
	}
}

func (e *partEncoder) thousandths(n float64) { e.number(int64(math.Round(1000 * n))) }

func (e *partEncoder) cells(c *metric.Counts) {
	filled := 0
	for _, n := range c {
		if n > 0 {
			filled++
		}
	}
	e.number(int64(filled))
	for cell, n := range c {
		if n > 0 {
			e.number(int64(cell))
			e.number(int64(n))
		}
	}
}

// calls encodes the calls to those of the sinks that were encoded before, which it refers to by their position.
func (e *partEncoder) calls(list []SinkCalls, sinks []SinkReport) {
	var known []SinkCalls
	var at []int64
	for _, c := range list {
		if i := slices.IndexFunc(sinks, func(s SinkReport) bool { return s.Sink == c.Sink }); i >= 0 {
			known, at = append(known, c), append(at, int64(i))
		}
	}
	e.number(int64(len(known)))
	for i, c := range known {
		e.number(at[i])
		e.number(c.InFlight)
		e.number(c.Most)
	}
}

// reports decodes what is told of sinks, and adds the reports to the nodes.
func (d *partDecoder) reports(nodes []Node) (sinks []SinkReport) {
	for range d.length() {
		s := SinkReport{Sink: d.text(), Daemons: int(d.number()), InFlight: d.number(), Most: d.number()}
		for class := range d.length() {
			if n := d.thousandths(); class < int64(answerClasses) { // otherwise of a later release
				s.Answers[class] = n
			}
		}
		s.Took = d.cells()
		if len(sinks) < maxSinks {
			sinks = append(sinks, s)
		}
	}
	for i := range nodes {
		if d.number() == 0 {
			continue
		}
		r := &Report{Gauges: Gauges{
			Ingress: int(d.number()), Timers: int(d.number()), Stalled: int(d.number()), Buffered: d.number(), BufferMost: d.number(), Quantum: d.micros(),
		}, Used: d.number(), Late50: d.micros(), Late99: d.micros(), Forfeited: d.thousandths()}
		for range d.length() {
			at, calls := d.number(), SinkCalls{InFlight: d.number(), Most: d.number()}
			if at < int64(len(sinks)) && len(r.Sinks) < maxSinks {
				calls.Sink = sinks[at].Sink
				r.Sinks = append(r.Sinks, calls)
			}
		}
		nodes[i].Report = r
	}
	return sinks
}

func (d *partDecoder) thousandths() float64 { return float64(d.number()) / 1000 }

// longestTold bounds the durations of a report.
const longestTold = 24 * time.Hour

func (d *partDecoder) micros() time.Duration {
	return time.Duration(min(d.number(), longestTold.Microseconds())) * time.Microsecond
}

func (d *partDecoder) cells() (c metric.Counts) {
	for range d.length() {
		if cell, n := d.number(), d.number(); cell < metric.Cells {
			c[cell] = uint64(min(n, math.MaxUint32)) // sums of those of all daemons still fit
		}
	}
	return c
}
