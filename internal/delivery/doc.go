// Package delivery holds the nouns of pacer: jobs, campaigns, quotas, slots and grants, and the arithmetic
// of slots. It imports the standard library only, does no I/O and starts no goroutine; every other package
// may import it.
//
// Two clocks appear in it. A store time is a number of microseconds on the clock of the quota store (Redis
// TIME, forced monotonic); it orders slots across the cluster. Everything else is a time.Time or a
// time.Duration of the local process.
package delivery
