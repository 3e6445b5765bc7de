//go:build race

package testservices

// Raced reports whether the race detector is enabled. Simulations in one goroutine are then ten times slower, and it
// finds nothing in them: such tests have a pass of their own.
const Raced = true
