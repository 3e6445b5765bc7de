package page

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/notation"
)

// A plot is drawn here, as SVG: it needs no script, follows the colours of the page, and is part of what the stream updates.
type plot struct {
	Title, Summary string
	Line, Area     string
	Layers         []shape // stacked
	Dashes         string  // a line of them
	Limit          float64 // 0: none is drawn
	Grid           []gridLine
	Times          []timeLine
	Columns        []column
	Zoned          bool // times stay in the zone of begin

	begin, end time.Time
	most       float64
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

// dot is a value at some time; gap: the line does not lead to it from the one before.
type dot struct {
	at    time.Time
	value float64
	gap   bool
}

const (
	plotLines = 4 // horizontal lines of the grid at most, besides 0
	plotTimes = 8 // fewer than that
	// mostColumns bounds the columns of a line: a page may have several charts, and the stream sends them each second.
	mostColumns = 60

	// The drawing is stretched to the space that the page has for it. Its texts are not.
	plotWidth, plotHeight, plotTop, plotBottom = 1000, 204, 2, 202
)

// newPlot makes a plot of values from 0 to most, without lines. Times are in the zone of begin.
func newPlot(title string, begin, end time.Time, most float64) *plot {
	p := &plot{Title: title, begin: begin, end: end, most: most}
	step := niceStep(most / plotLines)
	lines := max(1, math.Ceil(most/step*(1-1e-9)))
	p.most = lines * step
	for i := range int(lines) + 1 {
		value := step * float64(i)
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
	for at := begin.Truncate(every).Add(every); at.Before(end); at = at.Add(every) {
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

// column adds what the pointer shows between two times.
func (p *plot) column(from, to time.Time, lines ...string) {
	if left, right := p.x(from), p.x(to); right > left {
		layout := "2006-01-02T15:04Z" // which a script writes in the zone of who looks
		if p.Zoned {
			layout = "Mon 2 Jan 15:04 MST"
		}
		text := strings.Join(append([]string{from.In(p.begin.Location()).Format(layout)}, lines...), "\n")
		p.Columns = append(p.Columns, column{left, round(right - left), text})
	}
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

// fill draws the dots as a line with the area below it. unit follows the values that the pointer shows.
func (p *plot) fill(dots []dot, unit string) {
	var area strings.Builder
	for i := 0; i < len(dots); {
		next := i + 1
		for next < len(dots) && !dots[next].gap {
			next++
		}
		fmt.Fprintf(&area, "%sL%g %gL%g %gZ", p.line(dots[i:next]), p.x(dots[next-1].at), float64(plotBottom), p.x(dots[i].at), float64(plotBottom))
		i = next
	}
	p.Line, p.Area = p.line(dots), area.String()
	from := p.begin
	for _, d := range dots {
		p.column(from, d.at, rate(d.value)+unit)
		from = d.at
	}
	p.thin()
	if len(dots) > 0 {
		p.Summary = fmt.Sprintf("%s at the end, scale to %s", short(dots[len(dots)-1].value), short(p.most))
	}
}

// thin joins columns if they are too many. The pointer then shows the last step of those that were joined.
func (p *plot) thin() {
	all := p.Columns
	p.Columns = nil
	for part := range slices.Chunk(all, 1+(len(all)-1)/mostColumns) {
		last := part[len(part)-1]
		p.Columns = append(p.Columns, column{part[0].X, round(last.X + last.Width - part[0].X), last.Text})
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
