package top

import (
	"strings"
	"testing"
	"time"

	tea "github.com/charmbracelet/bubbletea"
)

// TestTheScreenFollowsAtOnce: campaigns are there from the first picture on, and a key or another size of the terminal does not wait for the next look.
func TestTheScreenFollowsAtOnce(t *testing.T) {
	frame := func(after time.Duration, dead int64) *Frame {
		return &Frame{At: start.Add(after), Campaigns: []Row{
			{Campaign: "slow", SendRate: new(1.0), Sent: new(1.0), DeadTotal: dead}, {Campaign: "fast", SendRate: new(90.0), Sent: new(5.0)},
		}}
	}
	var m tea.Model = screen{Watch: Watch{Interval: time.Hour, Query: Query{Sort: BySent}}, ctx: t.Context(), size: size{80, 24}, last: frame(0, 0)}
	shows := func(first, second string) {
		t.Helper()
		if text := m.View(); !strings.Contains(text, first) || strings.Index(text, first) >= strings.Index(text, second) {
			t.Errorf("%s before %s is not in\n%s", first, second, text)
		}
	}
	update := func(message tea.Msg) { m, _ = m.Update(message) }
	shows("fast", "slow")
	update(frame(time.Second, 3))
	shows("s sorts by: sent", "q quits")
	for range 4 { // by rate, backlog, eta, dead
		update(tea.KeyMsg{Type: tea.KeyRunes, Runes: []rune("s")})
	}
	shows("slow", "fast")
	update(tea.WindowSizeMsg{Width: 80, Height: 8})
	shows("campaign", "campaigns more")
}
