package delivery

import (
	"strings"
	"testing"
	"time"
)

func TestParseRate(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want Rate
		says string // part of the error; "" for none
	}{
		{in: "500", want: Rate{1, 2000}},
		{in: "2.5", want: Rate{1, 400_000}},
		{in: "150/m", want: Rate{1, 400_000}},
		{in: "1/h", want: Rate{1, 3_600_000_000}},
		{in: "1/d", want: Rate{1, 86_400_000_000}},
		{in: "3/100ms", want: Rate{3, 100_000}},
		{in: "0.000001", want: Rate{1, 1_000_000_000_000}},
		{in: "1234.567891", want: Rate{1_234_567_891, 1_000_000_000_000}},
		{in: "1000000", want: Rate{1, 1}},
		{in: "0", want: Rate{}},
		{in: "-1", says: "negative"},
		{in: "many", says: "must be a number"},
		{in: "", says: "must be a number"},
		{in: "1.1234567", says: "six decimals"},
		{in: "1/fortnight", says: "period"},
		{in: "1/1us", says: "send_per"},
		{in: "1000001", says: "above 1000000 per second"},
		{in: "99999999999999", says: "above 1000000 per second"},
		{in: "0.000001/24h", says: "below one unit"},
	} {
		micros, per, err := ParseRate(tc.in)
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%q: error %v, want %q in it", tc.in, err, tc.says)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", tc.in, err)
			continue
		}
		if got, err := NewRate(micros, per); err != nil || got != tc.want {
			t.Errorf("%q: %+v, %v; want %+v", tc.in, got, err, tc.want)
		}
	}
}

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
