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
	Title, Summary           string
	Width, Height            float64
	Left, Right, Top, Bottom float64
	LabelX, TimeY, TickY     float64
	Line, Area               string
	Layers                   []shape // stacked
	Dashes                   string  // a line of them
	Limit                    float64 // 0: none is drawn
	Grid                     []gridLine
	Times                    []timeLine

	begin, end time.Time
	most       float64
}

type gridLine struct {
	Y, TextY float64
	Label    string
}

// timeLine is a time of the scale. At is set where a script may write it in the zone of who looks.
type timeLine struct {
	X         float64
	Label, At string
	Day       bool
}

// shape is an area of one colour, which is a class of the style sheet.
type shape struct{ Class, Path string }

// dot is a value at some time; gap: the line does not lead to it from the one before.
type dot struct {
	at    time.Time
	value float64
	gap   bool
}

const (
	plotLines = 4 // horizontal lines of the grid, besides 0
	plotTimes = 8 // fewer than that
)

// newPlot makes a plot of values from 0 to most, without lines. Times are in the zone of begin.
func newPlot(title string, begin, end time.Time, most float64) *plot {
	p := &plot{
		Title: title, Width: 900, Height: 260, Left: 66, Right: 890, Top: 12, Bottom: 222, LabelX: 58, TimeY: 246, TickY: 228,
		begin: begin, end: end, most: plotLines * niceStep(most/plotLines),
	}
	for i := range plotLines + 1 {
		value := p.most * float64(i) / plotLines
		p.Grid = append(p.Grid, gridLine{Y: p.y(value), TextY: p.y(value) + 4, Label: short(value)})
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
	for at := begin.Truncate(every).Add(every); at.Before(end); at = at.Add(every) {
		p.Times = append(p.Times, timeLine{X: p.x(at), Label: at.Format(layout), At: at.UTC().Format(time.RFC3339), Day: layout == "2 Jan"})
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
	return p.Bottom - (p.Bottom-p.Top)*max(0, min(value/p.most, 1))
}

func (p *plot) x(at time.Time) float64 {
	part := at.Sub(p.begin).Seconds() / max(1, p.end.Sub(p.begin).Seconds())
	return round(p.Left + (p.Right-p.Left)*max(0, min(part, 1)))
}

// line connects the dots.
func (p *plot) line(dots []dot) string {
	var line strings.Builder
	for i, d := range dots {
		command := "L"
		if i == 0 || d.gap {
			command = "M"
		}
		fmt.Fprintf(&line, "%s%g %g", command, p.x(d.at), p.y(d.value))
	}
	return line.String()
}

// fill draws the dots as a line with the area below it.
func (p *plot) fill(dots []dot) {
	var area strings.Builder
	for i := 0; i < len(dots); {
		next := i + 1
		for next < len(dots) && !dots[next].gap {
			next++
		}
		fmt.Fprintf(&area, "%sL%g %gL%g %gZ", p.line(dots[i:next]), p.x(dots[next-1].at), p.Bottom, p.x(dots[i].at), p.Bottom)
		i = next
	}
	p.Line, p.Area = p.line(dots), area.String()
	if len(dots) > 0 {
		p.Summary = fmt.Sprintf("%s at the end, scale to %s", short(dots[len(dots)-1].value), short(p.most))
	}
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
	if v > 0 && v < 1 {
		return fmt.Sprintf("%.2g", v)
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", v), ".0")
}
