package testservices

import (
	"flag"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Few checks a property that takes long with a few histories, or with as many as -rapid.checks says.
func Few(t *testing.T, few int, property func(*rapid.T)) {
	t.Helper()
	flag.Visit(func(f *flag.Flag) {
		if f.Name == "rapid.checks" {
			few = math.MaxInt
		}
	})
	failed := false
	rapid.Check(t, func(rt *rapid.T) {
		if few <= 0 && !failed { // after a failure, histories are made shorter
			return
		}
		few--
		done := false
		defer func() { failed = failed || !done }()
		property(rt)
		done = true
	})
}
