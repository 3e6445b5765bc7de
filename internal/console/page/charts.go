package page

import (
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

// ahead is what the schedule of a campaign allows in the days to come.
type ahead struct {
	Plot   *plot
	Phases []view.Phase
	Zone   string
	Cut    bool // the ramp has more steps than are shown
}

// scheduleAhead draws what a schedule allows; nil: always the same.
func scheduleAhead(phases []view.Phase, cut bool, zone string) *ahead {
	if len(phases) < 2 {
		return nil
	}
	place := notation.ZoneOrUTC(zone)
	most, steps, values := 0.0, make([]step, len(phases)), make([]float64, len(phases))
	for i := range phases {
		phase := &phases[i]
		phase.Start, phase.End = phase.Start.In(place), phase.End.In(place)
		steps[i], values[i] = step{phase.Start, phase.End}, phase.Allowed
		most = max(most, phase.Allowed)
	}
	p := newPlot(fmt.Sprintf("Units per second that its schedule allows (%s)", place), steps, most)
	p.Zoned = true
	p.draw(values, "/s")
	return &ahead{Plot: p, Phases: phases, Zone: place.String(), Cut: cut}
}

// burnDown draws what was left of each window, and returns their names. Of a window that is shorter than a step a point would say nothing
// about the rest of the step, and the ledger merges minutes to hours after a day: it is not drawn.
func burnDown(usage []catalog.Usage, step time.Duration) (plots []*plot, heads []string) {
	if len(usage) == 0 {
		return nil, nil
	}
	for w, window := range usage[0].Remaining {
		heads = append(heads, fmt.Sprintf("%d/%s", window.Limit, window.Span))
		if span, err := notation.ParseSpan(window.Span); err != nil || span < step {
			continue
		}
		values := make([]float64, 0, len(usage))
		for _, step := range usage {
			if w < len(step.Remaining) && step.Remaining[w].Units != nil {
				values = append(values, float64(*step.Remaining[w].Units))
			}
		}
		if len(values) == len(usage) {
			p := newPlot("Left of "+short(float64(window.Limit))+" in "+window.Span, stepsOfUsage(usage), max(1, float64(window.Limit)))
			p.draw(values, " left")
			p.Limit = p.y(float64(window.Limit))
			plots = append(plots, p)
		}
	}
	return plots, heads
}

func spent(usage []catalog.Usage) *plot {
	if len(usage) == 0 {
		return nil
	}
	values, most := make([]float64, len(usage)), 1.0
	for i := range usage {
		values[i] = float64(usage[i].Units)
		most = max(most, values[i])
	}
	p := newPlot("Units used", stepsOfUsage(usage), most)
	p.draw(values, " used")
	return p
}

func stepsOfUsage(usage []catalog.Usage) []step {
	steps := make([]step, len(usage))
	for i := range usage {
		steps[i] = step{usage[i].Start.UTC(), usage[i].End.UTC()}
	}
	return steps
}
