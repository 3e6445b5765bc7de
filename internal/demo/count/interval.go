package count

import (
	"math"
	"time"
)

// Interval is an interval of time since the measurement's epoch: From inclusive, To exclusive.
type Interval struct{ From, To time.Duration }

// Length returns the length of the interval.
func (w Interval) Length() time.Duration { return w.To - w.From }

// Holds reports whether the interval contains an instant.
func (w Interval) Holds(at time.Duration) bool { return w.From <= at && at < w.To }

// Round rounds to a number of decimals, for reports.
func Round(x float64, digits int) float64 {
	scale := math.Pow10(digits)
	return math.Round(x*scale) / scale
}
