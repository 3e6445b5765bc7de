package pacer

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/metric"
)

const (
	// maxCounted is how many destinations have series of their own, and maxRest how many others may take their places, once in countedEvery.
	maxCounted, maxRest = 100, 1000
	countedEvery        = time.Minute
)

// answerFailed is the label of an answer that did not take its job; others are named by their classes.
const answerFailed = "failed"

// destinationCounts counts the answers of destinations for the metrics and the pages: each of those that have answered most lately by itself, and
// the others of a sink together, so that the labels are bounded.
type destinationCounts struct {
	answers *prometheus.CounterVec

	mu     sync.Mutex                     // the rest is changed by the scheduler alone
	own    map[destinationKey]*ownAnswers // those with series of their own
	rest   map[destinationKey]int         // others, and how often they have answered since the last turn
	turnAt int64                          // local time of the next turn
}

// ownAnswers are those of one destination.
type ownAnswers struct {
	lately int // how many there were lately
	DestinationReading
}

// DestinationReading is what this daemon counts of one of the destinations that answer most, since it is one of them.
type DestinationReading struct {
	Sink, Name string
	Answers    [delivery.Interrupted + 1]uint64 // by class
	Took       metric.Counts                    // to answer
	Failure    delivery.Failure                 // the last one
}

func newDestinationCounts(r prometheus.Registerer) *destinationCounts {
	return &destinationCounts{own: map[destinationKey]*ownAnswers{}, rest: map[destinationKey]int{}, answers: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
		Name: "pacer_destination_answers_total",
		Help: "Answers of destinations: of those that answer most, and of the others of a sink together.",
	}, []string{"sink", "destination", "answer"})}
}

// begin has the series of a sink begin at 0.
func (c *destinationCounts) begin(sink string) {
	for _, answer := range []string{delivery.Delivered.String(), delivery.Rejected.String(), answerFailed} {
		c.answers.WithLabelValues(sink, others, answer)
	}
}

func (c *destinationCounts) count(d destinationKey, r delivery.Result, now instant) {
	answer, class := answerFailed, r.Class
	switch {
	case class == delivery.Delivered || class == delivery.Rejected:
		answer = class.String()
	case !class.Fails():
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.local >= c.turnAt {
		c.turn()
		c.turnAt = now.in(countedEvery)
	}
	shown := labelOf(d)
	own := c.own[d]
	if own == nil && len(c.own) < maxCounted {
		own = c.add(d, 0)
	}
	if own != nil {
		own.lately++
		own.Answers[class]++
		if own.Took.Observe(r.Took); class.Fails() {
			own.Failure = delivery.Failure{At: now.wall, Detail: r.Detail}
		}
	} else if shown = others; c.rest[d] > 0 || len(c.rest) < maxRest {
		c.rest[d]++
	}
	c.answers.WithLabelValues(d.sink, shown, answer).Inc()
}

func (c *destinationCounts) add(d destinationKey, lately int) *ownAnswers {
	c.own[d] = &ownAnswers{lately: lately, DestinationReading: DestinationReading{Sink: d.sink, Name: d.name}}
	return c.own[d]
}

// Destinations returns what is counted of the destinations that answer most. It may be called concurrently.
func (p *Pacer) Destinations() (list []DestinationReading) {
	c := p.answered
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, own := range c.own {
		list = append(list, own.DestinationReading)
	}
	return list
}

// turn gives the places of those that have answered least lately to others that have answered more than twice as often.
func (c *destinationCounts) turn() {
	lately := map[destinationKey]int{}
	for d, own := range c.own {
		lately[d] = own.lately
	}
	least, most := byCount(lately), byCount(c.rest)
	for i, next := range slices.Backward(most) {
		at := len(most) - 1 - i
		if at == len(least) || c.rest[next] <= 2*lately[least[at]] {
			break
		}
		delete(c.own, least[at])
		c.answers.DeletePartialMatch(prometheus.Labels{"sink": least[at].sink, "destination": labelOf(least[at])})
		c.add(next, c.rest[next])
	}
	for _, own := range c.own {
		own.lately /= 2
	}
	clear(c.rest)
}

// byCount returns the destinations, the one with the lowest count first.
func byCount(counts map[destinationKey]int) []destinationKey {
	return slices.SortedFunc(maps.Keys(counts), func(a, b destinationKey) int {
		return cmp.Or(cmp.Compare(counts[a], counts[b]), cmp.Compare(a.sink, b.sink), cmp.Compare(a.name, b.name))
	})
}

// labelOf is the destination's name as a label, which must be UTF-8: it may come from a job.
func labelOf(d destinationKey) string { return strings.ToValidUTF8(d.name, "?") }
