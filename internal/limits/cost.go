package limits

import "github.com/pacer/pacer/internal/delivery"

// Lists are divided into scripts by about how long their items take. The unit is an item of one daemon without quotas, some 10 µs. An
// item's reads and writes decide: daemons on its timeline, weights of its jobs, windows of its quotas, units of logs, and rivals for
// quotas.
const (
	// maxItems and maxCost bound one script, which should not block Redis for much more than 2 ms.
	maxItems = 256
	maxCost  = 128

	weightsOfOne = 48 // weights of jobs that cost as much as an item
	unitsOfOne   = 50 // units of a log that do
	daemonsOfOne = 4  // daemons on a timeline that do
	rivalsOfOne  = 8  // daemons that compete for a quota that do
)

// lineCost is the cost of a timeline with this many daemons.
func lineCost(daemons int64) int { return 1 + int(max(0, min(daemons, mostListed)-1))/daemonsOfOne }

// claimCost is the cost of a claim to a quota that this many daemons may compete for.
func claimCost(daemons int64) int { return 1 + int(min(daemons, mostListed))/rivalsOfOne }

// mostListed is how many daemons a timeline or a quota lists at most.
const mostListed = 64

// windowsCost is the cost of the windows of a quota.
func windowsCost(q *delivery.Quota) (cost int) {
	for _, w := range q.Windows {
		cost++
		if w.Algorithm == delivery.AlgorithmLog {
			cost += int(w.Limit / unitsOfOne)
		}
	}
	return cost
}

// quotaCost is the cost of an item that is one quota.
func quotaCost(q *delivery.Quota) int { return 1 + windowsCost(q) }

// byCost divides a list into parts that a script can do in a few milliseconds.
func byCost[T any](list []T, costOf func(T) int) (parts [][]T) {
	from, cost := 0, 0
	for i, one := range list {
		own := costOf(one)
		if i > from && (cost+own > maxCost || i-from >= maxItems) {
			parts, from, cost = append(parts, list[from:i]), i, 0
		}
		cost += own
	}
	if from < len(list) {
		parts = append(parts, list[from:])
	}
	return parts
}
