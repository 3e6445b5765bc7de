package progress

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/pacer/pacer/internal/delivery"
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
					d = d.after(time.Second, lagReading{rate: p.rate, sent: p.sent, ready: float64(tc.waiting)})
				}
				rate = p.rate
			}
			if got := d.late(rate, 1).Capacity(); got < tc.min || got > tc.max {
				t.Errorf("%d are late, want %d to %d", got, tc.min, tc.max)
			}
		})
	}
}

// TestDebtOfADestination: what was not sent while the destination kept it back is not a matter of capacity, also after
// that, until it is forgotten; and what was not sent before is.
func TestDebtOfADestination(t *testing.T) {
	var d debt
	play := func(seconds int, sent float64, destination bool) Lateness {
		for range seconds {
			d = d.after(time.Second, lagReading{1000, sent, 1e6, destination})
		}
		return d.late(1000, 1)
	}
	if l := play(60, 0, true); l.Jobs < 20_000 || l.Capacity() != 0 {
		t.Errorf("behind a closed gate: %+v", l)
	}
	if l := play(5, 1000, false); l.Jobs < 20_000 || l.Capacity() != 0 {
		t.Errorf("after it has opened: %+v", l)
	}
	if l := play(600, 500, false); l.Capacity() < 20_000 || l.Destination > 10 {
		t.Errorf("with half of the capacity: %+v", l)
	}
	if l := play(10, 0, true); l.Capacity() < 15_000 || l.Destination < 9_000 {
		t.Errorf("and with a closed gate as well: %+v", l)
	}
}

// TestWhatIsSentAtItsRateIsNeverLate: that holds for any times of publishing, and even if jobs wait at each look. A campaign that stands
// still is late soon.
func TestWhatIsSentAtItsRateIsNeverLate(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		rate := rapid.SampledFrom([]float64{0.1, 3, 75, 1000}).Draw(rt, "rate")
		every := rapid.IntRange(1, 20).Draw(rt, "every") // seconds between bursts
		burst := rate * float64(every) * rapid.Float64Range(0.1, 3).Draw(rt, "load")
		phase := rapid.Float64Range(0, 0.99).Draw(rt, "phase")  // of a second, from a burst to the look after it
		slow := rapid.IntRange(0, 1).Draw(rt, "reported after") // seconds
		var d debt
		backlog, told := 0.0, make([]float64, slow)
		for i := range 300 {
			sent := min(backlog, rate*(1-phase))
			backlog -= sent
			if i%every == 0 {
				backlog += burst
			}
			more := min(backlog, rate*phase)
			backlog -= more
			told = append(told, sent+more)
			d = d.after(time.Second, lagReading{rate: rate, sent: told[0], ready: backlog})
			told = told[1:]
			if l := d.late(rate, 1); l.Jobs > 0 {
				rt.Fatalf("second %d: %d are late: %+v", i, l.Jobs, d)
			}
		}
		for range 30 {
			backlog += max(2, rate)
			d = d.after(time.Second, lagReading{rate: rate, ready: backlog})
		}
		if l := d.late(rate, 1); l.Jobs < int64(rate) || l.Jobs == 0 {
			rt.Fatalf("after half a minute in which nothing was sent, %d are late: %+v", l.Jobs, d)
		}
	})
}

// TestWhatCannotBeSentYetIsNotLate: jobs in memory whose time has not come, and jobs of lanes that their sink has.
func TestWhatCannotBeSentYetIsNotLate(t *testing.T) {
	exchange, _ := overRedis(t)
	m := newMember("a", exchange, newShelf(), catalogOf(campaign("c", 3, 1)))
	m.lane(1, 0, "c", 40)
	late := func(early, inHand int64) float64 {
		m.held = []delivery.MemoryJobs{{Campaign: "c", Jobs: 30, Units: 30, Early: early, InHand: inHand}}
		m.direct("c", 20)
		for i := range 120 {
			m.tallies = []delivery.Tally{{Campaign: "c", Sent: int64(i)}}
			m.at = time.Now().Add(-time.Second) // a second has passed since it looked last
			m.exchange(t.Context())
		}
		return testutil.ToFloat64(m.metrics.late.WithLabelValues("capacity"))
	}
	if n := late(30, 30); n != 0 {
		t.Errorf("%f are late of 60 of which none can be sent", n)
	}
	if n := late(10, 10); n < 30 {
		t.Errorf("%f are late of 40 that can be sent", n)
	}
}

// TestWhatWaitsForItsQuotaIsNotLate: nothing that a quota keeps back counts as late. While the quota has units, it does.
func TestWhatWaitsForItsQuotaIsNotLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := campaign("c", 100, 1)
		c.Quotas = []*delivery.Quota{{ID: "q", Windows: []delivery.Window{{Span: time.Hour, Limit: 1000}}}}
		m, _ := alone(catalogOf(c))
		m.lane(1, 0, "c", 1e6)
		late := func(left int64) float64 {
			m.windows = []delivery.WindowState{{Quota: "q", Remaining: left}}
			m.seconds(t, 60)
			return testutil.ToFloat64(m.metrics.late.WithLabelValues("capacity"))
		}
		if n := late(5); n != 0 {
			t.Errorf("%v jobs are late while the quota is used up", n)
		}
		if n := late(1000); n == 0 {
			t.Error("no job is late while the quota has units, and none is sent")
		}
	})
}
