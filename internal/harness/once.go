package harness

import "flag"

// Once returns the second of two sizes of a benchmark if each benchmark runs only once (-benchtime 1x). That is to see that it works, as
// make test does: its figures say nothing then, so it takes the least that goes the same way.
func Once[T any](full, once T) T {
	if f := flag.Lookup("test.benchtime"); f != nil && f.Value.String() == "1x" {
		return once
	}
	return full
}
