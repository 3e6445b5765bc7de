package page

import (
	"fmt"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

// A plot is drawn here, as SVG: it needs no script, follows the colours of the page, and is part of what the stream updates.
type plot struct {
	Title, Summary           string
	Width, Height            float64
	Left, Right, Top, Bottom float64
	LabelX, TimeY            float64
	Line, Area               string
	Limit                    float64 // 0: none is drawn
	Grid                     []gridLine
	Times                    []timeLine
}

type gridLine struct {
	Y, TextY float64
	Label    string
}

type timeLine struct {
	X     float64
	Label string
}

const (
	plotLines = 4 // horizontal lines of the grid, besides 0
	plotTimes = 6
)

// newPlot draws values at the ends of their steps, from 0 to most.
func newPlot(title string, values []float64, steps []view.Usage, most float64) *plot {
	p := &plot{Title: title, Width: 900, Height: 240, Left: 76, Right: 872, Top: 10, Bottom: 212, LabelX: 70, TimeY: 230}
	most = max(most, 1)
	y := func(value float64) float64 { return round(p.Bottom - (p.Bottom-p.Top)*min(value/most, 1)) }
	begin, end := steps[0].Start, steps[len(steps)-1].End
	x := func(t time.Time) float64 {
		return round(p.Left + (p.Right-p.Left)*t.Sub(begin).Seconds()/max(1, end.Sub(begin).Seconds()))
	}
	for i := range plotLines + 1 {
		value := most * float64(i) / plotLines
		p.Grid = append(p.Grid, gridLine{Y: y(value), TextY: y(value) + 4, Label: short(value)})
	}
	layout := "15:04"
	if end.Sub(begin) > 36*time.Hour {
		layout = "2 Jan"
	}
	for i := range plotTimes {
		at := begin.Add(end.Sub(begin) * time.Duration(i) / (plotTimes - 1))
		p.Times = append(p.Times, timeLine{X: x(at), Label: at.UTC().Format(layout)})
	}
	var line strings.Builder
	for i, v := range values {
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(&line, "%s%g %g", command, x(steps[i].End), y(v))
	}
	p.Line = line.String()
	p.Area = fmt.Sprintf("%sL%g %gL%g %gZ", p.Line, x(steps[len(values)-1].End), p.Bottom, x(steps[0].End), p.Bottom)
	p.Summary = fmt.Sprintf("%s at the end, scale to %s", short(values[len(values)-1]), short(most))
	return p
}

// burnDown draws what was left of each window, and returns their names. Of a window that is shorter than a step a point would say nothing
// about the rest of the step, and the ledger merges minutes to hours after a day: it is not drawn.
func burnDown(usage []view.Usage, step time.Duration) (plots []*plot, heads []string) {
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
			p := newPlot("Left of "+short(float64(window.Limit))+" in "+window.Span, values, usage, float64(window.Limit))
			p.Limit = p.Grid[plotLines].Y
			plots = append(plots, p)
		}
	}
	return plots, heads
}

// spent draws how much was used in each step.
func spent(usage []view.Usage) *plot {
	if len(usage) == 0 {
		return nil
	}
	values, most := make([]float64, 0, len(usage)), 0.0
	for _, step := range usage {
		values = append(values, float64(step.Units))
		most = max(most, float64(step.Units))
	}
	return newPlot("Units used", values, usage, most)
}

// round keeps a tenth of a pixel.
func round(v float64) float64 { return float64(int64(v*10+0.5)) / 10 }

// short formats a number in few digits.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if v >= unit.size {
			if unit.name == "k" {
				unit.size = 1e3
			}
			return strings.TrimSuffix(fmt.Sprintf("%.1f", v/unit.size), ".0") + unit.name
		}
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}
