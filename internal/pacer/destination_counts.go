package pacer

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// maxCounted is how many destinations have series of their own, and maxRest how many others may take their places, once in countedEvery.
	maxCounted, maxRest = 100, 1000
	countedEvery        = time.Minute
)

// answerFailed is the label of an answer that did not take its job; others are named by their classes.
const answerFailed = "failed"

// destinationCounts counts the answers of destinations for the metrics: each of those that have answered most lately by itself, and the
// others of a sink together, so that the labels are bounded. The scheduler alone uses it.
type destinationCounts struct {
	answers *prometheus.CounterVec
	own     map[destinationKey]int // those with series of their own, and how often they have answered lately
	rest    map[destinationKey]int // others, and how often they have answered since the last turn
	turnAt  int64                  // local time of the next turn
}

func newDestinationCounts(r prometheus.Registerer) destinationCounts {
	return destinationCounts{own: map[destinationKey]int{}, rest: map[destinationKey]int{}, answers: promauto.With(r).NewCounterVec(prometheus.CounterOpts{
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

// count counts the answer to a job.
func (c *destinationCounts) count(d destinationKey, class delivery.ResultClass, now instant) {
	answer := answerFailed
	switch {
	case class == delivery.Delivered || class == delivery.Rejected:
		answer = class.String()
	case !class.Fails():
		return
	}
	if now.local >= c.turnAt {
		c.turn()
		c.turnAt = now.in(countedEvery)
	}
	shown := labelOf(d)
	if _, own := c.own[d]; own || len(c.own) < maxCounted {
		c.own[d]++
	} else if shown = others; c.rest[d] > 0 || len(c.rest) < maxRest {
		c.rest[d]++
	}
	c.answers.WithLabelValues(d.sink, shown, answer).Inc()
}

// turn gives the places of those that have answered least lately to others that have answered more than twice as often.
func (c *destinationCounts) turn() {
	least, most := byCount(c.own), byCount(c.rest)
	for i, next := range slices.Backward(most) {
		at := len(most) - 1 - i
		if at == len(least) || c.rest[next] <= 2*c.own[least[at]] {
			break
		}
		delete(c.own, least[at])
		c.answers.DeletePartialMatch(prometheus.Labels{"sink": least[at].sink, "destination": labelOf(least[at])})
		c.own[next] = c.rest[next]
	}
	for d := range c.own {
		c.own[d] /= 2
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
