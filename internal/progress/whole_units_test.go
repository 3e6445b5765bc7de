package progress

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// TestUnitsOfSmallWindowsAreWhole: windows of a few units beside each other, jobs of which one fits in, and campaigns that share
// what does not divide by them.
func TestUnitsOfSmallWindowsAreWhole(t *testing.T) {
	windows := []delivery.Window{{Span: 30 * time.Second, Limit: 7}, {Span: 5 * time.Second, Limit: 5, Algorithm: delivery.AlgorithmFixed}}
	hours, err := delivery.NewActiveHours([]delivery.HoursSpan{{From: 7, To: 55}}, time.UTC)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		rate, jobs, weight int64
		others             int
		hours              *delivery.ActiveHours
		off                float64
	}{
		"beside each other": {rate: 1, jobs: 800, weight: 1, off: 0.005},
		"edge of the hours": {rate: 1, jobs: 410, weight: 1, hours: hours, off: 0.005},
		"heavy":             {rate: 1, jobs: 300, weight: 5, off: 0.01},
		"shared":            {rate: 10, jobs: 200, weight: 1, others: 2, off: 0.05},
		"heavy and shared":  {rate: 10, jobs: 200, weight: 3, others: 1, off: 0.05},
	} {
		t.Run(name, func(t *testing.T) {
			c := campaign("c", tc.rate, 1, &delivery.Quota{ID: "q", Revision: 1, Windows: windows})
			c.Hours = tc.hours
			waiting := []*delivery.Campaign{c}
			for i := range tc.others {
				other := *c
				other.ID = fmt.Sprint("other ", i)
				waiting = append(waiting, &other)
			}
			begin := time.Date(2026, 11, 20, 0, 24, 0, 0, time.UTC)
			g := &greedy{store: model.NewStore(), campaign: c, asked: c, others: waiting[1:], weight: tc.weight, now: begin.UnixMicro()}
			forecast, ok := newForecast(begin, waiting, g.store.Peek(g.now, c.Quotas)).done(c, float64(tc.jobs), float64(tc.weight))
			done, can := g.send(tc.jobs*tc.weight, math.MaxInt64)
			took, in := time.UnixMicro(done).Sub(begin), forecast.Sub(begin)
			if !ok || !can || (in-took).Abs().Seconds() > tc.off*took.Seconds() {
				t.Errorf("in %s, forecast %s", took, in)
			}
		})
	}
}
