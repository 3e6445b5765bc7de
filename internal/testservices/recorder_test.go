package testservices

import (
	"fmt"
	"runtime"
	"testing"
)

// recorder stands in for a test that is expected to fail.
type recorder struct {
	testing.TB

	fatal string
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.fatal = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// run calls f as a test would be called: in a goroutine that Fatalf may end.
func (r *recorder) run(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	<-done
}
