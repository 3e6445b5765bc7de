package top

import (
	"strings"

	"github.com/charmbracelet/lipgloss"
)

// Styles of the terminal.
var (
	StyleTitle  = lipgloss.NewStyle().Bold(true)
	StyleHead   = lipgloss.NewStyle().Faint(true)
	StylePaused = lipgloss.NewStyle().Foreground(lipgloss.Color("3"))
	StyleGood   = lipgloss.NewStyle().Foreground(lipgloss.Color("2"))
	styleBad    = lipgloss.NewStyle().Foreground(lipgloss.Color("1"))
)

// Bar draws a share of 1 as a bar of width characters.
func Bar(share float64, width int) string {
	done := min(max(int(share*float64(width)+0.5), 0), width)
	return strings.Repeat("█", done) + strings.Repeat("░", width-done)
}
