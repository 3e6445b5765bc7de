package delivery

import (
	"testing"
	"time"
)

func TestUnitsIn(t *testing.T) {
	for _, tc := range []struct {
		rate Rate
		d    time.Duration
		want int64
	}{
		{PerSecond(1000), 75 * time.Millisecond, 75},
		{PerSecond(10), 75 * time.Millisecond, 0},
		{Rate{5, 2_000_000}, time.Second, 2},
		{Rate{1_234_567_891, 1_000_000_000_000}, 24 * time.Hour, 106_666_665},
		{Rate{}, time.Hour, 0},
		{PerSecond(1), -time.Second, 0},
		{PerSecond(1_000_000), 106_751 * 24 * time.Hour, 9_223_286_400_000_000},
		{Rate{N: 1 << 50, Per: 1}, 106_751 * 24 * time.Hour, maxUnits},
		{Rate{N: maxRateUnits, Per: 1_000_000}, 106_751 * 24 * time.Hour, maxUnits},
	} {
		if got := tc.rate.UnitsIn(tc.d); got != tc.want {
			t.Errorf("%+v in %s: %d, want %d", tc.rate, tc.d, got, tc.want)
		}
	}
}
