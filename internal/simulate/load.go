package simulate

import (
	"fmt"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/notation"
)

// Bounds of a Load. The rate stays below what one take of the engine can grant (delivery.MaxGrant), so that an
// algorithm that lets a whole second's jobs go at once can do so.
const (
	maxRate     = 50_000
	maxJobs     = 1_000_000
	maxPauses   = 32
	maxDuration = 10 * time.Minute
)

// Load is what every algorithm is given.
type Load struct {
	Rate int64   // the limit: jobs per second
	Jobs int64   // how many there are
	Idle []Pause // when there is nothing to send; in order of time, without overlaps
}

// Pause is a time without jobs: from At until At + For.
type Pause struct {
	At, For time.Duration // since the start; whole microseconds
}

// String spells the pause as ParseIdle reads it.
func (p Pause) String() string { return notation.FormatSpan(p.At) + ":" + notation.FormatSpan(p.For) }

// ParseIdle reads pauses such as "4s:500ms,6s:1s": when each begins and how long it lasts. The empty string is none.
func ParseIdle(text string) ([]Pause, error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	words := strings.Split(text, ",")
	if len(words) > maxPauses {
		return nil, fmt.Errorf("at most %d pauses, got %d", maxPauses, len(words))
	}
	pauses := make([]Pause, len(words))
	for i, word := range words {
		at, length, found := strings.Cut(strings.TrimSpace(word), ":")
		if !found {
			return nil, fmt.Errorf("%q must say when the pause begins and how long it lasts, as in 4s:500ms", word)
		}
		var err error
		if pauses[i].At, err = notation.ParseSpan(at); err != nil {
			return nil, fmt.Errorf("%q: when it begins must be a time such as 4s", word)
		}
		if pauses[i].For, err = notation.ParseSpan(length); err != nil {
			return nil, fmt.Errorf("%q: how long it lasts must be a time such as 500ms", word)
		}
	}
	return pauses, validate(pauses)
}

func validate(pauses []Pause) error {
	if len(pauses) > maxPauses {
		return fmt.Errorf("at most %d pauses, got %d", maxPauses, len(pauses))
	}
	free := time.Duration(0)
	for _, p := range pauses {
		switch {
		case p.At < 0 || p.At > maxDuration:
			return fmt.Errorf("%s begins outside the first %s", p, maxDuration)
		case p.For <= 0 || p.For > maxDuration:
			return fmt.Errorf("%s must last more than nothing and at most %s", p, maxDuration)
		case p.At%time.Microsecond != 0 || p.For%time.Microsecond != 0:
			return fmt.Errorf("%s must be whole microseconds", p)
		case p.At < free:
			return fmt.Errorf("%s must come after the pause before it, which ends at %s", p, free)
		}
		free = p.At + p.For
	}
	return nil
}

// Validate says in one line what is wrong with the load.
func (l *Load) Validate() error {
	if l.Rate < 1 || l.Rate > maxRate {
		return fmt.Errorf("rate %d must be between 1 and %d jobs per second", l.Rate, maxRate)
	}
	if l.Jobs < 1 || l.Jobs > maxJobs {
		return fmt.Errorf("jobs %d must be between 1 and %d", l.Jobs, maxJobs)
	}
	if err := validate(l.Idle); err != nil {
		return fmt.Errorf("idle %w", err)
	}
	length := time.Duration(l.Jobs) * time.Second / time.Duration(l.Rate)
	for _, p := range l.Idle {
		length += p.For
	}
	if length > maxDuration {
		return fmt.Errorf("jobs %d at %d/s, with the idle time, last more than %s; take fewer, or a higher rate",
			l.Jobs, l.Rate, maxDuration)
	}
	return nil
}
