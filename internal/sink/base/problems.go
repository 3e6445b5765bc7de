package base

import (
	"fmt"
	"time"
)

// Problems are the errors in a configuration, one line each, beginning with the key, without secrets.
type Problems []string

// Add adds an error.
func (p *Problems) Add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

// Bounds on settings that most kinds have.
const (
	minTimeout    = 100 * time.Millisecond
	maxTimeout    = 10 * time.Minute
	maxRetryAfter = 24 * time.Hour
)

// MaxRetryAfter adds the error in how long a wait is believed that the destination asks for.
func (p *Problems) MaxRetryAfter(d time.Duration) {
	p.Between("max_retry_after", d, time.Second, maxRetryAfter, "5m")
}

// Between adds an error unless a duration is within its bounds.
func (p *Problems) Between(key string, d, low, high time.Duration, example string) {
	if d < low || d > high {
		p.Add("%s: %s is out of range; use a duration between %s and %s, such as %s", key, d, low, high, example)
	}
}

// Number adds an error unless a number is between 1 and its bound.
func (p *Problems) Number(key string, n, high int) {
	if n < 1 || n > high {
		p.Add("%s: %d is out of range; use a number between 1 and %d", key, n, high)
	}
}
