package pacer

import (
	"math/rand/v2"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// latency is about how long answers of the store take, in microseconds.
type latency int64

// riseSmoothing and fallSmoothing are about how many answers the average is taken over: longer ones count at once, since their slots are lost, and
// shorter ones later.
const riseSmoothing, fallSmoothing = 4, 16

func (l *latency) observe(d int64) {
	if by := latency(d) - *l; by > 0 {
		*l += by / riseSmoothing
	} else {
		*l += by / fallSmoothing
	}
}

// quantum is the stretch of a timeline that a queue asks for at once. It is just long enough for the takes to stay within their budget.
// It is computed in advance from the rates of the queues that have jobs, so that ten thousand campaigns do not first overload the store.
// Slots granted late are lost, and then all timelines of a late take restart together. Slow takes make the quantum longer as well: a
// reply must arrive before its slots are due.
type quantum struct {
	length   int64           // microseconds
	shortest int64           // microseconds
	longest  int64           // microseconds
	budget   float64         // take items a second
	rates    []delivery.Rate // of the campaigns with jobs
}

func newQuantum(shortest, longest time.Duration, budget int) quantum {
	return quantum{
		length: shortest.Microseconds(), shortest: shortest.Microseconds(), longest: longest.Microseconds(), budget: float64(budget),
	}
}

// adapt lengthens the quantum at once if necessary, and shortens it gradually. A take lasts so long.
func (q *quantum) adapt(lasts latency) {
	length := max(float64(q.shortest), float64(lasts))
	for length < float64(q.longest) {
		n := q.itemsPerSecond(length)
		if n <= q.budget {
			break
		}
		length *= max(1.05, n/q.budget)
	}
	q.length = int64(min(max(length, float64(q.length)*0.9), float64(q.longest)))
}

// itemsPerSecond is about how many items a second all queues with jobs will ask for: one a quantum, or one a slot where
// those are further apart.
func (q *quantum) itemsPerSecond(length float64) (n float64) {
	each := 1e6 / length
	for _, rate := range q.rates {
		n += min(each, rate.PerSecond())
	}
	return n
}

// spread is by how much a queue asks earlier than a quantum from now. Where quanta are long there are many queues, which
// should not all ask in the same take for ever.
func (q *quantum) spread() int64 {
	if q.length <= q.shortest {
		return 0
	}
	return rand.Int64N(q.length/4 + 1)
}
