// Package app is the only one that knows all others: it reads the configuration, puts a daemon together, and does what
// the commands do. cmd/pacer reads flags; everything else is below.
package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/pacer/pacer/internal/catalog"
)

// Invocation is how a command was called: everything it may know of the world outside.
type Invocation struct {
	ConfigPath string // of --config
	ConfigSet  bool   // --config was given, so the file must exist
	Environ    []string
	Stdin      io.Reader
	Stdout     io.Writer
	Stderr     io.Writer
	JSON       bool // --json
	Progress   bool // Stderr is a terminal: progress may be drawn there
}

// UsageError is about what the person typed or configured: exit code 2. Its text is one line that names the field and
// the remedy.
type UsageError struct{ Err error }

func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap gives the cause to errors.Is and errors.As.
func (e UsageError) Unwrap() error { return e.Err }

// usagef makes a UsageError.
func usagef(format string, args ...any) error { return UsageError{fmt.Errorf(format, args...)} }

// ErrNotOK says that a command worked and its result is bad; everything to say has been said. Exit code 1.
var ErrNotOK = errors.New("not ok")

// ExitCode is the process's exit code for the error of a command: 0 done or drained, 1 a check or operation failed, 2
// bad configuration or arguments.
func ExitCode(err error) int {
	var usage UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage), errors.Is(err, catalog.ErrInvalid):
		return 2
	default:
		return 1
	}
}

// writeJSON writes v as one indented JSON value.
func writeJSON(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(v); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}

// printer writes lines and keeps the first error.
type printer struct {
	w   io.Writer
	err error
}

func (p *printer) line(format string, args ...any) {
	if p.err != nil {
		return
	}
	if _, err := fmt.Fprintf(p.w, format+"\n", args...); err != nil {
		p.err = fmt.Errorf("write the answer: %w", err)
	}
}

// writeTable writes rows of cells separated by tabs, with the columns aligned.
func writeTable(w io.Writer, rows func(*printer)) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	p := &printer{w: table}
	rows(p)
	if p.err != nil {
		return p.err
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the answer: %w", err)
	}
	return nil
}
