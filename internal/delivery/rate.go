package delivery

import (
	"errors"
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"time"
)

// Bounds that keep every product of slot arithmetic below 2^53, so that Lua's doubles stay exact.
const (
	maxRateUnits = 100_000_000_000      // numerator after reduction
	maxSpacing   = 366 * 24 * time.Hour // of the slowest rate: time per unit
	maxPerSecond = 1_000_000            // the fastest rate
	maxSendPer   = 366 * 24 * time.Hour // longest send_per
	rateScale    = int64(1_000_000)     // at most six decimals
	maxUnits     = 1 << 62              // more than is ever counted
	// MaxGrant is the largest number of units granted by one item of one call.
	MaxGrant = 65_536
)

// Rate is n units in every per microseconds, reduced to lowest terms. The zero Rate grants nothing.
type Rate struct {
	N   int64 // units
	Per int64 // microseconds
}

// NewRate makes the rate of micros/1,000,000 units (so at most six decimals) per period. A rate of 0 is the zero
// Rate. The error says which values are valid.
func NewRate(micros int64, period time.Duration) (Rate, error) {
	if micros < 0 {
		return Rate{}, errors.New("send_rate must not be negative; 0 holds the campaign")
	}
	if period < time.Millisecond || period > maxSendPer || period%time.Microsecond != 0 {
		return Rate{}, fmt.Errorf("send_per must be between 1ms and %s, in whole microseconds", maxSendPer)
	}
	if micros == 0 {
		return Rate{}, nil
	}
	// Both are divided by what they have in common before they are multiplied.
	per, common := period.Microseconds(), gcd(micros, rateScale)
	n, scale := micros/common, rateScale/common
	common = gcd(n, per)
	n, per = n/common, per/common
	hi, lo := bits.Mul64(uint64(per), uint64(scale))
	spacing := uint64(math.MaxUint64)
	if hi < uint64(n) {
		spacing, _ = bits.Div64(hi, lo, uint64(n))
	}
	switch {
	case spacing > uint64(maxSpacing.Microseconds()):
		return Rate{}, fmt.Errorf("send_rate is below one unit in %s; use 0 to hold the campaign", maxSpacing)
	case spacing == 0:
		return Rate{}, fmt.Errorf("send_rate is above %d per second", maxPerSecond)
	case n > maxRateUnits || hi > 0 || lo > math.MaxInt64:
		return Rate{}, errors.New("send_rate has too many digits for its size; use fewer decimals")
	}
	return Rate{N: n, Per: int64(lo)}, nil
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// PerSecond makes the rate of n units per second; it panics if that is out of range and is meant for constants.
func PerSecond(n int64) Rate {
	r, err := NewRate(n*rateScale, time.Second)
	if err != nil {
		panic(err)
	}
	return r
}

// Hourly is a rate in millionths of a unit per hour, with six digits, rounded up to what NewRate takes.
func Hourly(perSecond float64) int64 {
	const least, most = 114, maxPerSecond * 3600 * rateScale // one unit in 366 days, rounded up
	n, unit := int64(math.Ceil(min(max(perSecond*3600*float64(rateScale), least), float64(most)))), int64(1)
	for n/unit >= 1_000_000 {
		unit *= 10
	}
	return (n + unit - 1) / unit * unit
}

// below reports whether the rate is lower than another.
func (r Rate) below(o Rate) bool {
	hi, lo := bits.Mul64(uint64(r.N), uint64(o.Per))
	otherHi, otherLo := bits.Mul64(uint64(o.N), uint64(r.Per))
	return hi < otherHi || hi == otherHi && lo < otherLo
}

// Zero reports whether the rate grants nothing.
func (r Rate) Zero() bool { return r.N == 0 }

// Spacing is the time between two slots in microseconds, rounded up; 0 for the zero Rate.
func (r Rate) Spacing() int64 {
	if r.N == 0 {
		return 0
	}
	return (r.Per + r.N - 1) / r.N
}

// UnitsIn is how many whole units the rate allows in d, rounded down.
func (r Rate) UnitsIn(d time.Duration) int64 {
	if r.N == 0 || d <= 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(d.Microseconds()), uint64(r.N))
	if hi >= uint64(r.Per) {
		return maxUnits
	}
	n, _ := bits.Div64(hi, lo, uint64(r.Per))
	return int64(min(n, maxUnits))
}

// PerSecond is the rate in units per second, for people and gauges; never for decisions.
func (r Rate) PerSecond() float64 {
	if r.N == 0 {
		return 0
	}
	return float64(r.N) * 1e6 / float64(r.Per)
}

func (r Rate) String() string {
	return strconv.FormatFloat(r.PerSecond(), 'f', -1, 64) + "/s"
}
