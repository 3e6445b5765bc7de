package app

import (
	"errors"
)

// UsageError is about what the person typed or configured: exit code 2. Its text is one line that names the field and
// the remedy.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap gives the cause to errors.Is and errors.As.
func (e UsageError) Unwrap() error { return e.Err }

// ErrNotOK says that a command worked and its result is bad; everything to say has been said. Exit code 1.
var ErrNotOK = errors.New("not ok")

// ExitCode is the process's exit code for the error of a command: 0 done or drained, 1 a check or operation failed, 2
// bad configuration or arguments.
func ExitCode(err error) int {
	var usage UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage):
		return 2
	default:
		return 1
	}
}
