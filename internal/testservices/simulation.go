package testservices

import "testing"

// Simulation is called first by a test that simulates at length what other tests, which the race detector watches, do
// briefly. Under it, the simulation would be ten times as slow and show nothing more: it runs in the pass without.
func Simulation(t testing.TB) {
	t.Helper()
	if Raced {
		t.Skip("a simulation: it runs in the pass without the race detector")
	}
}
