package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"
	"time"

	"golang.org/x/term"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
)

// ErrNotOK means that a command worked and reported a bad result, so that no message is missing. Exit code 1.
var ErrNotOK = errors.New("not ok")

// ExitCode returns the exit code for the error of a command: 0 done or drained, 1 a check or operation failed, also because what it is
// about does not exist, 2 bad configuration or arguments.
func ExitCode(err error) int {
	var usage config.UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &usage), errors.Is(err, catalog.ErrInvalid):
		return 2
	default:
		return 1
	}
}

// counted writes a number of things, which are called noun.
func counted[N int | int64](n N, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// print writes v as JSON if --json is given, else the text.
func (c *cli) print(v any, text func(*printer)) error {
	if c.json {
		return writeJSON(c.Stdout, v)
	}
	p := &printer{w: c.Stdout}
	text(p)
	return p.err
}

// printTable writes v as JSON if --json is given, else the table made by rows.
func (c *cli) printTable(v any, rows func(*printer)) error {
	return c.print(v, func(p *printer) { p.table(rows) })
}

// warn writes a warning to standard error.
func (c *cli) warn(format string, args ...any) {
	_, _ = fmt.Fprintf(c.Stderr, "pacer: warning: "+format+"\n", args...) // there is no remedy for a failing stderr
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
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

// instant formats a time in UTC, "-" if there is none.
func instant(at *time.Time, layout string) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(layout)
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

// table writes rows of cells separated by tabs, with the columns aligned.
func (p *printer) table(rows func(*printer)) {
	if p.err != nil {
		return
	}
	aligned := tabwriter.NewWriter(p.w, 0, 0, 2, ' ', 0)
	cells := &printer{w: aligned}
	rows(cells)
	p.err = cells.err
	if err := aligned.Flush(); err != nil && p.err == nil {
		p.err = fmt.Errorf("write the answer: %w", err)
	}
}
