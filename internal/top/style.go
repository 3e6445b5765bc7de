package top

import (
	"os"
	"strings"

	"golang.org/x/term"
)

// Style is how text is shown on a terminal: the parameter of its escape sequence.
type Style string

// Styles of the terminal.
const (
	StyleTitle  Style = "1" // bold
	StyleHead   Style = "2" // faint
	StylePaused Style = "33"
	StyleGood   Style = "32"
	styleBad    Style = "31"
)

// styled reports whether standard output is a terminal that shows styles.
var styled = term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"

// Render returns text in the style, or as it is where none is shown.
func (s Style) Render(text string) string {
	if !styled {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// Bar draws a share of 1 as a bar of width characters.
func Bar(share float64, width int) string {
	done := min(max(int(share*float64(width)+0.5), 0), width)
	return strings.Repeat("█", done) + strings.Repeat("░", width-done)
}
