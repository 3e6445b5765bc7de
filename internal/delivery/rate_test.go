package delivery

import (
	"math/big"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestRatesAreExact: and in lowest terms, or refused by what they are.
func TestRatesAreExact(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		micros := rapid.Int64Range(1, 1<<50).Draw(rt, "micros")
		period := time.Duration(rapid.Int64Range(1000, maxSendPer.Microseconds()).Draw(rt, "period")) * time.Microsecond
		rate, err := NewRate(micros, period)
		exact := big.NewRat(micros, 1_000_000)
		exact.Quo(exact, big.NewRat(period.Microseconds(), 1))
		spacing := new(big.Rat).Inv(exact)
		if err == nil {
			if got := big.NewRat(rate.N, rate.Per); got.Cmp(exact) != 0 || got.Num().Int64() != rate.N {
				rt.Fatalf("%+v, want %s", rate, exact)
			}
			return
		}
		slow, fast := spacing.Cmp(big.NewRat(maxSpacing.Microseconds()+1, 1)) >= 0, spacing.Cmp(big.NewRat(1, 1)) < 0
		many := exact.Num().Cmp(big.NewInt(maxRateUnits)) > 0 || !exact.Denom().IsInt64()
		if !slow && !fast && !many {
			rt.Fatalf("%d micros in %s: %v", micros, period, err)
		}
	})
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
