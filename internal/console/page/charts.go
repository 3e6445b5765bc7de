package page

import (
	"fmt"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
	"github.com/pacer/pacer/internal/notation"
)

// lastHour draws what was sent beside what was allowed; nil where nothing is known.
func lastHour(past *view.Past, allowed string, now time.Time) *plot {
	if len(past.Points) == 0 {
		return nil
	}
	most, sent, set := 0.0, make([]dot, 0, len(past.Points)), make([]dot, 0, 2*len(past.Points))
	for i, point := range past.Points {
		gap := i > 0 && point.At.Sub(past.Points[i-1].At) > 6*view.HistoryStep // in which the daemons could not be asked
		sent = append(sent, dot{point.At, point.Sent, gap})
		if i > 0 && !gap { // a rate holds until it is changed
			set = append(set, dot{at: point.At, value: past.Points[i-1].Allowed})
		}
		set = append(set, dot{point.At, point.Allowed, gap})
		most = max(most, point.Sent, point.Allowed)
	}
	begin := now.Add(-view.HistoryKept).UTC()
	p := newPlot("Units per second in the last hour (UTC): sent, as a line; "+allowed+", in dashes", begin, now.UTC(), most)
	p.fill(sent)
	p.Second = p.line(set)
	return p
}

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
	place, err := notation.Zone(zone)
	if err != nil {
		place = time.UTC
	}
	most, dots := 0.0, make([]dot, 0, 2*len(phases))
	for i := range phases {
		phase := &phases[i]
		phase.Start, phase.End = phase.Start.In(place), phase.End.In(place)
		dots = append(dots, dot{at: phase.Start, value: phase.Allowed}, dot{at: phase.End, value: phase.Allowed})
		most = max(most, phase.Allowed)
	}
	begin, end := phases[0].Start, phases[len(phases)-1].End
	p := newPlot(fmt.Sprintf("Units per second that its schedule allows (%s)", place), begin, end, most)
	p.fill(dots)
	return &ahead{Plot: p, Phases: phases, Zone: place.String(), Cut: cut}
}

// burnDown draws what was left of each window, and returns their names. Of a window that is shorter than a step a point would say nothing
// about the rest of the step, and the ledger merges minutes to hours after a day: it is not drawn. Beside that of a fixed one is what would be
// left if it were used evenly.
func burnDown(usage []catalog.Usage, step time.Duration, windows []view.Window) (plots []*plot, heads []string) {
	if len(usage) == 0 {
		return nil, nil
	}
	begin, end := usage[0].Start.UTC(), usage[len(usage)-1].End.UTC()
	for w, window := range usage[0].Remaining {
		heads = append(heads, fmt.Sprintf("%d/%s", window.Limit, window.Span))
		if span, err := notation.ParseSpan(window.Span); err != nil || span < step {
			continue
		}
		dots := make([]dot, 0, len(usage))
		for _, step := range usage {
			if w < len(step.Remaining) && step.Remaining[w].Units != nil {
				dots = append(dots, dot{at: step.End, value: float64(*step.Remaining[w].Units)})
			}
		}
		if len(dots) == len(usage) {
			p := newPlot("Left of "+short(float64(window.Limit))+" in "+window.Span, begin, end, max(1, float64(window.Limit)))
			p.fill(dots)
			p.Limit = p.Grid[plotLines].Y
			if i := slices.IndexFunc(windows, func(w view.Window) bool { return w.Span == window.Span }); i >= 0 && windows[i].Algorithm == delivery.AlgorithmFixed {
				p.even(&windows[i])
			}
			plots = append(plots, p)
		}
	}
	return plots, heads
}

// maxPeriods bounds the lines of a fixed window.
const maxPeriods = 1000

// even draws what would be left of a fixed window if it were used evenly from its begin to its end. Of one that begins with its first use,
// only the last begin is known.
func (p *plot) even(w *view.Window) {
	var dots []dot
	period := func(begin, end time.Time) {
		left := func(at time.Time) float64 {
			return float64(w.Limit) * end.Sub(at).Seconds() / max(1, end.Sub(begin).Seconds())
		}
		from, to := begin, end
		if from.Before(p.begin) {
			from = p.begin
		}
		if to.After(p.end) {
			to = p.end
		}
		if from.Before(to) {
			dots = append(dots, dot{from, left(from), true}, dot{at: to, value: left(to)})
		}
	}
	if w.Anchor == "" {
		if w.FullAt == nil {
			return
		}
		period(w.FullAt.Add(-time.Duration(w.Seconds*float64(time.Second))), *w.FullAt)
	} else if anchor, err := model.ParseAnchor(w.Anchor); err == nil {
		for at := p.begin; at.Before(p.end) && len(dots) < 2*maxPeriods; {
			bounds := anchor.Period(at.UnixMicro())
			begin, end := time.UnixMicro(bounds[0]), time.UnixMicro(bounds[1])
			period(begin, end)
			at = end
		}
	}
	if p.Second = p.line(dots); p.Second != "" {
		p.Title += "; in dashes, if it were used evenly"
	}
}

// spent draws how much was used in each step.
func spent(usage []catalog.Usage) *plot {
	if len(usage) == 0 {
		return nil
	}
	dots, most := make([]dot, 0, len(usage)), 1.0
	for _, step := range usage {
		dots = append(dots, dot{at: step.End, value: float64(step.Units)})
		most = max(most, float64(step.Units))
	}
	p := newPlot("Units used", usage[0].Start.UTC(), usage[len(usage)-1].End.UTC(), most)
	p.fill(dots)
	return p
}
