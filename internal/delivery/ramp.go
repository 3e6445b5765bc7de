package delivery

import (
	"errors"
	"fmt"
	"math/big"
	"math/bits"
	"time"
)

const (
	// MaxRampSteps is how many steps a ramp may take to the campaign's rate.
	MaxRampSteps = 10_000

	minRampEvery  = time.Second
	maxRampFactor = 100 * rateScale
	maxRampHeight = 100_000_000_000 * rateScale // keeps height * factor within what Div64 divides
	rampDigits    = 1_000_000_000               // heights are rounded up to nine digits, so that each is a Rate
)

// Ramp lets a rate grow in steps from Start up to the rate of the campaign, its ceiling. After each Every, it adds to
// the rate or multiplies it. All numbers are integers in millionths of a unit, so that every daemon computes the same
// rate. A Ramp is immutable.
type Ramp struct {
	Start  int64         // millionths of a unit in each Per
	Add    int64         // millionths of a unit in each Per; 0 where there is a Factor
	Factor int64         // millionths, above 1,000,000; 0 where there is an Add
	Per    time.Duration // the campaign's send_per
	Every  time.Duration // at least a second
	Since  time.Time     // when it was set; it begins then, or with the campaign's StartsAt if that is later
}

// Validate says in one line why the ramp cannot reach the ceiling; nil if it can.
func (r *Ramp) Validate(ceiling Rate) error {
	switch {
	case r.Start <= 0:
		return errors.New("ramp: start must be above 0; set starts_at to begin later")
	case (r.Add == 0) == (r.Factor == 0):
		return errors.New("ramp: give either add or factor, the other one not")
	case r.Add < 0:
		return errors.New("ramp: add must be above 0")
	case r.Factor != 0 && (r.Factor <= rateScale || r.Factor > maxRampFactor):
		return fmt.Errorf("ramp: factor must be above 1 and at most %d", maxRampFactor/rateScale)
	case r.Every < minRampEvery || r.Every > maxSpacing:
		return errors.New("ramp: every must lie between 1 second and 366 days")
	case r.Since.IsZero():
		return errors.New("ramp: ramp_since must say when the ramp began; set it to now()")
	case r.top(ceiling) >= maxRampHeight || r.Start >= maxRampHeight || r.Add >= maxRampHeight:
		return fmt.Errorf("ramp: the rate must be below %d units per send_per; use a shorter send_per", maxRampHeight/rateScale)
	}
	top := r.top(ceiling)
	if start := r.roundUp(r.Start); start < top {
		if _, err := NewRate(start, r.Per); err != nil {
			return fmt.Errorf("ramp: start: %w", err)
		}
	}
	if height, _ := r.climb(r.Start, MaxRampSteps, top); height < top {
		return fmt.Errorf("ramp: it takes more than %d steps to the campaign's rate; use a larger step or a longer every",
			MaxRampSteps)
	}
	return nil
}

// Flat reports whether the ramp has no step to take: it starts at the ceiling or above.
func (r *Ramp) Flat(ceiling Rate) bool { return r.roundUp(r.Start) >= r.top(ceiling) }

// at is the rate at now of a ramp that began at begin, the number of steps taken, and the time of the next one: the
// zero time once the ceiling is reached. The ramp must be valid.
func (r *Ramp) at(now, begin time.Time, ceiling Rate) (rate Rate, step int64, next time.Time) {
	elapsed, top := now.Sub(begin), r.top(ceiling)
	height, step := r.climb(r.Start, max(0, int64(elapsed/r.Every)), top)
	switch {
	case height >= top:
		return ceiling, step, time.Time{}
	case elapsed < 0:
		next = begin.Add(r.Every)
	default:
		next = now.Add(r.Every - elapsed%r.Every)
	}
	if height = r.roundUp(height); height >= top {
		return ceiling, step, next
	}
	rate, _ = NewRate(height, r.Per) // cannot fail between a start and a ceiling that are rates, for want of digits
	return rate, step, next
}

// climb is the height after n steps from another one, and how many of them are needed if the top is reached before.
func (r *Ramp) climb(height, n, top int64) (reached, steps int64) {
	if r.Factor == 0 {
		steps = min(n, (max(0, top-height)+r.Add-1)/r.Add)
		return height + steps*r.Add, steps
	}
	for ; steps < n && height < top; steps++ {
		hi, lo := bits.Mul64(uint64(height), uint64(r.Factor))
		lo, carry := bits.Add64(lo, uint64(rateScale-1), 0)
		up, _ := bits.Div64(hi+carry, lo, uint64(rateScale)) // rounded up, so that it grows however small it is
		height = int64(up)
	}
	return height, steps
}

// top is the ceiling as a height, rounded up.
func (r *Ramp) top(ceiling Rate) int64 {
	if ceiling.Zero() {
		return 0
	}
	n := new(big.Int).Mul(big.NewInt(ceiling.N), big.NewInt(r.Per.Microseconds()))
	n.Mul(n, big.NewInt(rateScale))
	n.Add(n, big.NewInt(ceiling.Per-1)).Div(n, big.NewInt(ceiling.Per))
	if !n.IsInt64() {
		return maxRampHeight
	}
	return min(n.Int64(), maxRampHeight)
}

// roundUp leaves no more digits than a Rate has room for.
func (r *Ramp) roundUp(height int64) int64 {
	unit := int64(1)
	if r.Per > 100*24*time.Hour {
		unit = 10 // a millionth in such a period has a denominator of more than 63 bits
	}
	for height/unit >= rampDigits {
		unit *= 10
	}
	return (height + unit - 1) / unit * unit
}
