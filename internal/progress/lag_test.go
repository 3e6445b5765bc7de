package progress

import (
	"testing"
	"time"
)

// TestDebt: a campaign that keeps its rate is never late; one that stands still soon is; lost slots are forgotten.
func TestDebt(t *testing.T) {
	type phase struct {
		seconds int
		rate    float64 // 0: may not send
		sent    float64 // a second
	}
	for name, tc := range map[string]struct {
		phases   []phase
		waiting  int64
		min, max int64
	}{
		"keeps its rate":               {[]phase{{600, 1000, 1000}}, 1e6, 0, 0},
		"loses a few slots":            {[]phase{{600, 1000, 970}}, 1e6, 0, 0},
		"begins late":                  {[]phase{{1, 1000, 0}, {10, 1000, 1000}}, 1e6, 0, 0},
		"sends half":                   {[]phase{{600, 1000, 500}}, 1e6, 24_000, 27_000},
		"sends half of little":         {[]phase{{600, 1000, 500}}, 1500, 500, 500},
		"less than a second's worth":   {[]phase{{600, 1000, 50}}, 900, 0, 0},
		"stands still for ten seconds": {[]phase{{600, 1000, 1000}, {10, 1000, 0}}, 1e6, 3000, 10_000},
		"stood still, and sends again": {[]phase{{600, 1000, 0}, {240, 1000, 1000}}, 1e6, 0, 0},
		"paused":                       {[]phase{{600, 1000, 1000}, {600, 0, 0}}, 1e6, 0, 0},
		"one an hour":                  {[]phase{{7200, 1.0 / 3600, 1.0 / 3600}}, 1e6, 0, 0},
		"rate falls":                   {[]phase{{600, 1000, 1000}, {5, 10, 10}}, 1e6, 0, 0},
		"rate rises":                   {[]phase{{600, 10, 10}, {5, 1000, 1000}}, 1e6, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var d debt
			rate := 0.0
			for _, p := range tc.phases {
				for range p.seconds {
					d = d.after(time.Second, p.rate, p.sent, false)
				}
				rate = p.rate
			}
			if got := d.late(rate, tc.waiting, 1).capacity(); got < tc.min || got > tc.max {
				t.Errorf("%d are late, want %d to %d", got, tc.min, tc.max)
			}
		})
	}
}

// TestDebtOfADestination: what was not sent while the destination kept it back is not a matter of capacity, also after
// that, until it is forgotten; and what was not sent before is.
func TestDebtOfADestination(t *testing.T) {
	var d debt
	play := func(seconds int, sent float64, barred bool) lateness {
		for range seconds {
			d = d.after(time.Second, 1000, sent, barred)
		}
		return d.late(1000, 1e6, 1)
	}
	if l := play(60, 0, true); l.jobs < 20_000 || l.capacity() != 0 {
		t.Errorf("behind a closed gate: %+v", l)
	}
	if l := play(5, 1000, false); l.jobs < 20_000 || l.capacity() != 0 {
		t.Errorf("after it has opened: %+v", l)
	}
	if l := play(600, 500, false); l.capacity() < 20_000 || l.barred > 10 {
		t.Errorf("with half of the capacity: %+v", l)
	}
	if l := play(10, 0, true); l.capacity() < 15_000 || l.barred < 9_000 {
		t.Errorf("and with a closed gate as well: %+v", l)
	}
}
