package page

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/notation"
)

// A plot is drawn here, as SVG: it needs no script, follows the colours of the page, and is part of what the stream updates.
type plot struct {
	Title, Summary string
	Layers         []shape // stacked
	Dashes         string  // a line of them
	Limit          float64 // 0: none is drawn
	Grid           []gridLine
	Times          []timeLine
	Columns        []column
	Zoned          bool // times stay in the zone of begin

	steps      []step
	begin, end time.Time
	most       float64
}

// step is a stretch of time that has one value.
type step struct{ from, to time.Time }

// evenSteps are as long as each other.
func evenSteps(since time.Time, each time.Duration, n int) []step {
	steps := make([]step, n)
	for i := range steps {
		steps[i] = step{since.Add(time.Duration(i) * each), since.Add(time.Duration(i+1) * each)}
	}
	return steps
}

// gridLine is a line of the scale, at Y in the drawing. Percent is the place of its label, from the top.
type gridLine struct {
	Y, Percent float64
	Label      string
}

// timeLine is a time of the scale. Percent is its place from the left.
type timeLine struct {
	Percent   float64
	Label, At string
	Day       bool
}

// column is a step of the drawing. Text is what the pointer shows there: when the step begins, and a line for each value.
type column struct {
	X, Width float64
	Text     string
}

// shape is an area of one colour, which is a class of the style sheet.
type shape struct{ Class, Path string }

const (
	plotLines = 4 // horizontal lines of the grid at most, besides 0
	plotTimes = 8 // fewer than that

	// The drawing is stretched to the space that the page has for it. Its texts are not.
	plotWidth, plotHeight, plotTop, plotBottom = 1000, 204, 2, 202
)

// newPlot makes a plot without values, for those from 0 to most. Times are in the zone of the first step.
func newPlot(title string, steps []step, most float64) *plot {
	begin, end := steps[0].from, steps[len(steps)-1].to
	p := &plot{Title: title, steps: steps, begin: begin, end: end, most: most}
	height := niceStep(most / plotLines)
	lines := max(1, math.Ceil(most/height*(1-1e-9)))
	p.most = lines * height
	for i := range int(lines) + 1 {
		value := height * float64(i)
		p.Grid = append(p.Grid, gridLine{Y: p.y(value), Percent: round(p.y(value) / plotHeight * 100), Label: short(value)})
	}
	every := end.Sub(begin)
	for _, one := range timeSteps {
		if every = one; end.Sub(begin)/one < plotTimes {
			break
		}
	}
	layout := "15:04"
	if every%notation.Day == 0 {
		layout = "2 Jan"
	}
	_, east := begin.Zone() // Truncate goes by UTC, and days begin at midnight of the zone
	offset := time.Duration(east) * time.Second
	for at := begin.Add(offset).Truncate(every).Add(every - offset); at.Before(end); at = at.Add(every) {
		p.Times = append(p.Times, timeLine{Percent: round(p.x(at) / plotWidth * 100), Label: at.Format(layout), At: at.UTC().Format(time.RFC3339), Day: layout == "2 Jan"})
	}
	return p
}

// timeSteps are what may lie between two times of a scale.
var timeSteps = []time.Duration{10 * time.Minute, time.Hour, 4 * time.Hour, notation.Day, 5 * notation.Day, 30 * notation.Day}

// niceStep returns the next number that people count in: 1, 2, 2.5 or 5 times a power of ten.
func niceStep(least float64) float64 {
	if least <= 0 {
		return 0.25
	}
	power := math.Pow(10, math.Floor(math.Log10(least)))
	for _, digit := range []float64{1, 2, 2.5, 5} {
		if digit*power >= least*(1-1e-9) {
			return digit * power
		}
	}
	return 10 * power
}

func (p *plot) y(value float64) float64 { return round(p.height(value)) }

func (p *plot) height(value float64) float64 {
	return plotBottom - (plotBottom-plotTop)*max(0, min(value/p.most, 1))
}

func (p *plot) x(at time.Time) float64 {
	part := at.Sub(p.begin).Seconds() / max(1, p.end.Sub(p.begin).Seconds())
	return round(plotWidth * max(0, min(part, 1)))
}

// draw draws one value for each step. unit follows the values that the pointer shows.
func (p *plot) draw(values []float64, unit string) {
	p.Layers = []shape{{"c1", p.bars(make([]float64, len(values)), values)}}
	p.point(func(i int) []string { return []string{rate(values[i]) + unit} })
	p.Summary = fmt.Sprintf("%s at the end, scale to %s", short(values[len(values)-1]), short(p.most))
}

// bars draws a bar for each step on those that are drawn already, and adds its height to theirs.
func (p *plot) bars(base, values []float64) string {
	var path strings.Builder
	for i, value := range values {
		if value <= 0 {
			continue
		}
		left, right := p.x(p.steps[i].from), p.x(p.steps[i].to)
		gap := min(1.2, 0.15*(right-left))
		bottom := p.height(base[i])
		fmt.Fprintf(&path, "M%g %.2fV%.2fH%gV%.2fZ", left, bottom, p.height(base[i]+value), round(right-gap), bottom)
		base[i] += value
	}
	return path.String()
}

// line draws a line that is level in each step, and has gaps where there is nothing.
func (p *plot) line(values []float64) string {
	var path strings.Builder
	drawn := false
	for i, value := range values {
		if value <= 0 {
			drawn = false
			continue
		}
		left, y := p.x(p.steps[i].from), p.y(value)
		if drawn {
			fmt.Fprintf(&path, "V%g", y)
		} else {
			fmt.Fprintf(&path, "M%g %g", left, y)
		}
		fmt.Fprintf(&path, "H%g", p.x(p.steps[i].to))
		drawn = true
	}
	return path.String()
}

// point has the pointer show the values of each step.
func (p *plot) point(values func(i int) (lines []string)) {
	layout := "2006-01-02T15:04Z" // which a script writes in the zone of who looks
	if p.Zoned {
		layout = "Mon 2 Jan 15:04 MST"
	}
	for i, of := range p.steps {
		left, right := p.x(of.from), p.x(of.to)
		text := strings.Join(append([]string{of.from.Format(layout)}, values(i)...), "\n")
		p.Columns = append(p.Columns, column{left, round(right - left), text})
	}
}

// round keeps a tenth of a pixel.
func round(v float64) float64 { return float64(int64(v*10+0.5)) / 10 }

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
	if v > 0 && v < 1 {
		return fmt.Sprintf("%.2g", v)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}
