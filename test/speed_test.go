//go:build e2e

package test

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// speedRows are the figures of `make speed`, in the order of the table.
var speedRows = []speedRow{
	{
		name: "fleet-fast", what: "6,000/s, answers in 100 ms, 3 daemons x 256 calls", unit: "/s",
		yardstick: "the rate", bound: 0.98,
	},
	{
		name: "fleet-slow", what: "500/s, answers in 4 s, 3 daemons x 64 calls", unit: "/s",
		yardstick: "calls / 4 s", bound: 45.0 / 48,
	},
	{
		name: "fleet-discard", what: "50,000/s into discard, 3 daemons", unit: "/s",
		yardstick: "the rate", bound: 0.95,
	},
	{
		name: "fleet-killed", what: "4,000/s, 1 of 3 daemons killed", unit: "/s",
		yardstick: "the rate", bound: 0.98,
	},
	{name: "http-64", what: "Kafka to http, 64 calls", unit: "/s", yardstick: "a bare net/http loop", bound: 0.88},
	{name: "http-64-cpu", what: "CPU of a job", unit: "µs", yardstick: "the loop", bound: 1.15, atMost: true},
	{name: "http-256", what: "Kafka to http, 256 calls", unit: "/s", yardstick: "a bare net/http loop", bound: 0.88},
	{name: "http-256-cpu", what: "CPU of a job", unit: "µs", yardstick: "the loop", bound: 1.15, atMost: true},
	{name: "http-allocs", what: "allocations of a job that the loop does not have", bound: 5, atMost: true},
	{name: "discard", what: "Kafka to discard", unit: "/s", yardstick: "a bare Client.Fetch loop", bound: 0.30},
	{name: "discard-cpu", what: "CPU of a million jobs", unit: "s", bound: 3, atMost: true},
	{name: "discard-allocs", what: "allocations of a job", bound: 5, atMost: true},
	{name: "overflow", what: "the same through lanes", unit: "/s", yardstick: "without", bound: 0.50},
	{name: "overflow-cpu", what: "CPU of a million jobs", unit: "s"},
	{
		name: "campaigns-cpu", what: "10,000 campaigns x 5/s: CPU of a million jobs", unit: "s",
		yardstick: "1 x 50,000/s", bound: 2, atMost: true,
	},
	{name: "storm", what: "100 changes of a rate in 10 s", unit: "%", yardstick: "the ideal", bound: 0.90},
	{name: "idle-memory", what: "100,000 idle campaigns: memory", unit: "MiB", bound: 200, atMost: true},
	{name: "idle-heap", what: "heap", unit: "MiB"},
	{name: "idle-cpu", what: "share of a processor", unit: "%", bound: 2, atMost: true},
	{name: "update-cpu", what: "UPDATE of all 100,000: CPU of a daemon", unit: "s", bound: 1.5, atMost: true},
	{name: "update-memory", what: "peak memory", unit: "MiB", bound: 300, atMost: true},
}

// speedFigure takes figures of one or several rows, on a stack of its own.
type speedFigure struct {
	name    string
	measure func(*testing.T, *speedTable)
}

// TestSpeed measures how fast pacer is, each figure beside its yardstick, and prints one table. Each figure is taken once
// in each round, and its median counts.
func TestSpeed(t *testing.T) {
	table := newSpeedTable(speedRows)
	defer table.publish(t, "speed")
	inRounds(t, table, 3, []speedFigure{
		{"fleet-fast", measureFleetFast}, {"fleet-slow", measureFleetSlow}, {"fleet-discard", measureFleetDiscard},
		{"fleet-killed", measureFleetKilled}, {"http", measureHTTP}, {"discard-overflow", measureDiscard},
		{"campaigns", measureCampaignsCPU}, {"storm", measureStorm}, {"idle-update", measureCatalog},
	})
}

// inRounds takes the figures as often as ROUNDS of the environment says, one after the other in each round.
func inRounds(t *testing.T, table *speedTable, rounds int, figures []speedFigure) {
	t.Helper()
	if text := os.Getenv("ROUNDS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("ROUNDS=%s: want a positive number", text)
		}
		rounds = n
	}
	for range rounds {
		for _, f := range figures {
			t.Run(f.name, func(t *testing.T) { f.measure(t, table) })
		}
	}
}

// fullJobs is the number of jobs of the figure that has most. JOBS of the environment chooses a smaller one, and the
// others shrink with it: fewer jobs, fewer campaigns, shorter windows. Such figures only show that the measuring works.
const fullJobs = 3_000_000

func scaled(t *testing.T, n int) int {
	t.Helper()
	return max(1, int(float64(n)*sizeOf(t)))
}

func scaledTime(t *testing.T, d time.Duration) time.Duration {
	t.Helper()
	return max(time.Second, time.Duration(float64(d)*sizeOf(t)))
}

func sizeOf(t *testing.T) float64 {
	t.Helper()
	return min(1, float64(laneJobs(t, fullJobs))/fullJobs)
}
