package testservices

import (
	"os"
	"testing"
)

// Simulation is called first by a test that simulates at length what other tests, which the race detector watches, do
// briefly. Under it, the simulation would be ten times as slow and show nothing more: it runs in the pass without.
func Simulation(t testing.TB) {
	t.Helper()
	if Raced {
		t.Skip("a simulation: it runs in the pass without the race detector")
	}
}

// RealTime is called first by a test in which goroutines wait for real time. `make test` runs it in the pass with the race
// detector, and does not wait again in the one without.
func RealTime(t testing.TB) {
	t.Helper()
	if !Raced && os.Getenv("PACER_BRIEF") == "yes" {
		t.Skip("it waits for real time: it runs in the pass with the race detector")
	}
}
