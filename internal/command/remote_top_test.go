package command

import (
	"testing"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/top"
)

// TestDaemonsAddUp: what they forfeit is added up, of what is late the worst counts, and one that has sent nothing adds nothing.
func TestDaemonsAddUp(t *testing.T) {
	late, later := 0.001, 0.015
	s := &top.Sample{Sinks: map[string]float64{}, Fleet: &top.Fleet{}}
	addDaemons(s, []view.Daemon{
		{Queued: 3, InFlight: 2, Figures: &view.DaemonFigures{Forfeited: 0.5, LatenessP99: &later, Stalled: 1}}, {Figures: &view.DaemonFigures{Forfeited: 1, LatenessP99: &late}}, {InFlight: 1, Figures: &view.DaemonFigures{}},
	})
	if *s.Fleet.Forfeited != 1.5 || *s.Fleet.LatenessP99 != later || s.Stalled != 1 || s.Queued != 3 || s.Sinks[allSinks] != 3 {
		t.Errorf("%+v, %+v", s, s.Fleet)
	}
}
