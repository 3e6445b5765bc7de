package app

import (
	"testing"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
)

// TestLaneRate: almost nothing is left of a campaign if that is so in all its lanes together, not in each of them.
func TestLaneRate(t *testing.T) {
	for _, c := range []struct {
		perSecond int64
		lanes     int
		each      float64
	}{
		{6000, 0, 6000}, {6000, 1, 6000}, {6000, 12, 500}, {500, 20, 25}, {5, 12, 1},
	} {
		m := catalog.NewMemory()
		m.PutCampaign(delivery.Campaign{ID: "c", Rate: delivery.PerSecond(c.perSecond)})
		if c.lanes > 0 {
			if _, err := m.Pin(t.Context(), map[string]int{"c": c.lanes}, 256, nil); err != nil {
				t.Fatal(err)
			}
		}
		d := &Daemon{parts: Parts{Catalog: m}}
		if each, known := d.laneRate("c"); !known || each != c.each {
			t.Errorf("%v/s in %d lanes: %v each, want %v", c.perSecond, c.lanes, each, c.each)
		}
		if _, known := d.laneRate("other"); known {
			t.Error("a campaign that does not exist is known")
		}
	}
}
