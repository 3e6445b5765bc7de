package top

import (
	"strings"
	"testing"
	"time"
)

// TestTheScreenFollowsAtOnce: campaigns are there from the first picture on, and a key or another size of the terminal does not wait for the next look.
func TestTheScreenFollowsAtOnce(t *testing.T) {
	frame := func(after time.Duration, dead int64) *Frame {
		return &Frame{At: start.Add(after), Campaigns: []Row{
			{Campaign: "slow", SendRate: new(1.0), Sent: new(1.0), DeadTotal: dead}, {Campaign: "fast", SendRate: new(90.0), Sent: new(5.0)},
		}}
	}
	s := screen{Watch: Watch{Interval: time.Hour, Query: Query{Sort: BySent}}, last: frame(0, 0)}
	shows := func(height int, first, second string) {
		t.Helper()
		if text := s.draw(size{80, height}); !strings.Contains(text, first) || strings.Index(text, first) >= strings.Index(text, second) {
			t.Errorf("%s before %s is not in\n%s", first, second, text)
		}
	}
	shows(24, "fast", "slow")
	s.before, s.last = s.last, frame(time.Second, 3)
	shows(24, "s sorts by: sent", "q quits")
	if s.press("ss") || s.press("\x1b[A") || s.press("s") || s.press("s") { // by rate, backlog, eta, dead
		t.Error("the view ends")
	}
	shows(24, "slow", "fast")
	shows(8, "campaign", "campaigns more")
	if !s.press("q") || !s.press("\x1b") || !s.press("\x03") {
		t.Error("the view goes on")
	}
}
