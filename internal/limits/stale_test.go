package limits

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestAStaleQuotaIsNoticed: what the store has seen is known at once; a line is written once it has lasted, and once.
func TestAStaleQuotaIsNoticed(t *testing.T) {
	_, client := miniClient(t)
	l := newLua(t, client)
	is := &delivery.Quota{ID: "q", Revision: 7, Windows: windows(10, time.Minute)}
	was := &delivery.Quota{ID: "q", Revision: 4, Windows: windows(10, time.Minute)}
	now := settle(l, epoch, campaign(1000, is))
	e := l.engine("stale")
	if g := take1(l, now, "stale", ask(campaign(1000, was), 1)); g.Units != 0 || g.BoundQuota != "q" || g.BoundWindow != 0 || g.First.At != 0 {
		t.Errorf("%+v", g)
	}
	if row := e.stale.rows["quota q"]; row == nil {
		t.Error("it was not noticed")
	}

	var log bytes.Buffer
	s := &stale{log: slog.New(slog.NewTextHandler(&log, nil)), rows: map[string]*staleRow{}}
	note := func(at int64) int {
		s.note([]staleRevision{{"quota", "q", 4, 7}}, at)
		return strings.Count(log.String(), "level=WARN")
	}
	for _, step := range []struct{ at, lines int64 }{
		{0, 0}, {10 * second, 0}, {19 * second, 0}, // a catalog that is late
		{40 * second, 0}, {50 * second, 0}, {60 * second, 1}, {70 * second, 1},
	} {
		if lines := note(step.at); int64(lines) != step.lines {
			t.Errorf("%d s: %d lines: %s", step.at/second, lines, log.String())
		}
	}
	if !strings.Contains(log.String(), "quota=q revision=4 seen=7") {
		t.Error(log.String())
	}
}
