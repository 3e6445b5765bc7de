package command

import (
	"testing"

	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/top"
)

// TestDaemonsAddUp: what they forfeit is added up, of what is late the worst counts, and one that has sent nothing adds nothing.
func TestDaemonsAddUp(t *testing.T) {
	late, later := 0.001, 0.015
	s := &top.Fleet{}
	addDaemons(s, []progress.Daemon{
		{Queued: 3, Figures: &progress.DaemonFigures{Forfeited: 0.5, LatenessP99: &later, Stalled: 1}}, {Figures: &progress.DaemonFigures{Forfeited: 1, LatenessP99: &late}}, {Figures: &progress.DaemonFigures{}},
	})
	if *s.Forfeited != 1.5 || *s.LatenessP99 != later || s.Stalled != 1 || s.Queued != 3 {
		t.Errorf("%+v", s)
	}
}
