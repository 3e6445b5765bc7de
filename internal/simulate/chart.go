package simulate

import (
	"fmt"
	"io"
	"strconv"
	"time"
)

// The charts are in bins of a tenth of a second, or in longer ones where there would be more than maxBins.
const (
	minBin  = second / 10
	maxBins = 240
)

// Sizes of the pictures, in pixels.
const (
	chartWidth  = 864
	chartHeight = 340
	stripHeight = 150

	marginLeft   = 76 // the labels of the y axis
	marginRight  = 20
	titleHeight  = 30
	legendHeight = 22
	labelHeight  = 24 // the labels of the x axis
	unitHeight   = 20 // what the x axis is in
	tickLength   = 5
)

// Chart draws results of one load as SVG, all to one scale. The same results give the same bytes.
type Chart struct {
	load    *Load
	results []Result
	bin     int64 // microseconds
	end     int64 // microseconds; the last of all jobs, rounded up to bins
	top     int64 // the largest number shown
}

// NewChart prepares the drawing of at least one result.
func NewChart(load *Load, results []Result) *Chart {
	c := &Chart{load: load, results: results, bin: minBin}
	for i := range results {
		c.end = max(c.end, results[i].Finished()+1)
	}
	for c.end > maxBins*c.bin {
		c.bin += minBin
	}
	c.end = (c.end + c.bin - 1) / c.bin * c.bin
	c.top = load.Rate
	for i := range results {
		c.top = max(c.top, results[i].MaxRolling(max(second, c.bin)))
	}
	return c
}

// One draws the result with the given index.
func (c *Chart) One(w io.Writer, index int) error {
	d := newDrawing(chartWidth, chartHeight)
	c.draw(d, index, 0, chartHeight-unitHeight, true)
	d.text("middle", (marginLeft+chartWidth-marginRight)/2, chartHeight-8, "seconds")
	return d.writeTo(w)
}

// Overview draws all results, one above the other; the first has the legend.
func (c *Chart) Overview(w io.Writer) error {
	height := float64(len(c.results)*stripHeight + legendHeight + unitHeight)
	d := newDrawing(chartWidth, height)
	y := 0.0
	for i := range c.results {
		next := y + stripHeight
		if i == 0 {
			next += legendHeight
		}
		c.draw(d, i, y, next, i == 0)
		y = next
	}
	d.text("middle", (marginLeft+chartWidth-marginRight)/2, height-8, "seconds")
	return d.writeTo(w)
}

// draw shows one result between two heights: what went in each bin, what had gone in the second before, the limit and
// the pauses.
func (c *Chart) draw(d *drawing, index int, y, bottom float64, legend bool) {
	r := &c.results[index]
	d.text("title", marginLeft, y+22, fmt.Sprintf("%s: at most %s in a second", r.Title, grouped(r.MaxRolling(second))))
	y += titleHeight
	if legend {
		c.legend(d, y)
		y += legendHeight
	}
	f := frame{y: y, height: bottom - labelHeight - y, end: c.end, top: float64(c.top) * 1.05}
	for _, pause := range c.load.Idle {
		from, until := pause.At.Microseconds(), min((pause.At+pause.For).Microseconds(), c.end)
		if from < until {
			d.rectangle("pause", f.at(from, 0).x, f.y, f.at(until, 0).x-f.at(from, 0).x, f.height)
		}
	}
	f.axes(d, c.top)
	d.area("sent", append(c.steps(f, r.Bins(c.bin)), f.at(c.end, 0), f.at(0, 0))...)
	d.line("limit", f.at(0, c.load.Rate), f.at(c.end, c.load.Rate))
	d.line("rolling", c.steps(f, r.rolling(c.bin, c.end))...)
	d.line("axis", f.at(0, 0), f.at(c.end, 0))
}

// legend is a row of samples with their names.
func (c *Chart) legend(d *drawing, y float64) {
	const sample, gap = 26, 8
	x := float64(marginLeft)
	name := func(text string, width float64) {
		d.text("name", x+sample+gap, y+12, text)
		x += width
	}
	d.rectangle("sent", x, y+2, sample, 11)
	name(fmt.Sprintf("sent per %s", time.Duration(c.bin)*time.Microsecond), 160)
	d.line("rolling", point{x, y + 8}, point{x + sample, y + 8})
	name("in the second before", 180)
	d.line("limit", point{x, y + 8}, point{x + sample, y + 8})
	name("limit", 80)
	if len(c.load.Idle) > 0 {
		d.rectangle("pause", x, y+2, sample, 11)
		name("nothing to send", 0)
	}
}

// frame is where the data of one result lie in the picture.
type frame struct {
	y, height float64 // pixels
	end       int64   // microseconds at the right edge
	top       float64 // jobs at the upper edge
}

// at is where n jobs at an instant lie.
func (f frame) at(micros, n int64) point {
	const width = chartWidth - marginLeft - marginRight
	return point{
		x: marginLeft + width*float64(micros)/float64(f.end),
		y: f.y + f.height*(1-float64(n)/f.top),
	}
}

// axes draws both axes, with ticks at round numbers, of jobs up to most.
func (f frame) axes(d *drawing, most int64) {
	d.turned("middle", 14, f.y+f.height/2, -90, "jobs")
	step := round(most, int64(f.height/32))
	for n := int64(0); n <= most; n += step {
		left, right := f.at(0, n), f.at(f.end, n)
		if n > 0 {
			d.line("grid", left, right)
		}
		d.line("axis", point{left.x - tickLength, left.y}, left)
		d.text("end", left.x-tickLength-4, left.y+4, grouped(n))
	}
	d.line("axis", f.at(0, 0), point{marginLeft, f.y})
	step = round(f.end, 12)
	for t := int64(0); t <= f.end; t += step {
		foot := f.at(t, 0)
		d.line("axis", foot, point{foot.x, foot.y + tickLength})
		d.text("middle", foot.x, foot.y+tickLength+13, strconv.FormatFloat(seconds(t), 'f', -1, 64))
	}
}

// round is the smallest of 1, 2, 5, 10, 20, 50 and so on that parts n into at most the given number of steps.
func round(n, steps int64) int64 {
	for unit := int64(1); ; unit *= 10 {
		for _, step := range []int64{unit, 2 * unit, 5 * unit} {
			if n/step <= max(1, steps) {
				return step
			}
		}
	}
}

// steps is a line over the values of bins, and 0 for those that are not there.
func (c *Chart) steps(f frame, values []int64) []point {
	var line []point
	at := func(i int64) int64 {
		if i < int64(len(values)) {
			return values[i]
		}
		return 0
	}
	bins := c.end / c.bin
	for i := range bins {
		if i == 0 || at(i) != at(i-1) {
			line = append(line, f.at(i*c.bin, at(i)))
		}
		if i == bins-1 || at(i) != at(i+1) {
			line = append(line, f.at((i+1)*c.bin, at(i)))
		}
	}
	return line
}

// rolling is, per bin until end, the largest number of jobs in a second that ends in it.
func (r *Result) rolling(bin, end int64) []int64 {
	most := make([]int64, end/bin)
	from := 0
	for i, at := range r.Sent {
		for r.Sent[from] <= at-second {
			from++
		}
		most[at/bin] = max(most[at/bin], int64(i-from+1))
	}
	for i := range most {
		start := int64(i) * bin
		most[i] = max(most[i], r.within(start-second+1, start+1))
	}
	return most
}

func seconds(micros int64) float64 { return float64(micros) / float64(second) }

// grouped is a number with its thousands set apart by commas.
func grouped(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
