package view

import (
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// PreviewOf is how far ahead a schedule is shown, and maxPhases bounds its changes.
	PreviewOf = 7 * 24 * time.Hour
	maxPhases = 400
)

// Phase is a time in which a campaign's schedule allows one rate.
type Phase struct {
	Start   time.Time `json:"start"`
	End     time.Time `json:"end"`
	Allowed float64   `json:"allowed" doc:"units per second"`
}

// Preview returns the rates that a campaign's hours, ramp, start and end allow from now on. It ignores the status. cut reports whether
// the list was cut off at maxPhases.
func Preview(c *delivery.Campaign, now time.Time) (phases []Phase, cut bool) {
	end := now.Add(PreviewOf)
	always := *c // a pause is no part of the schedule
	always.Status = delivery.StatusActive
	for at := now; at.Before(end); {
		next := c.NextChange(at)
		if next.IsZero() || next.After(end) {
			next = end
		}
		may := Allowed(&always, at)
		if last := len(phases) - 1; last >= 0 && phases[last].Allowed == may {
			phases[last].End = next
		} else if len(phases) == maxPhases {
			return phases, true
		} else {
			phases = append(phases, Phase{at, next, may})
		}
		at = next
	}
	return phases, false
}
