package simulate

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"
	"strconv"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The charts are in bins of a tenth of a second, or longer ones where there would be more than so many.
const (
	minBin  = second / 10
	maxBins = 240
)

// Sizes of the pictures.
const (
	chartWidth  = 9 * vg.Inch
	chartHeight = 3.6 * vg.Inch
	stripHeight = 1.5 * vg.Inch
	titleSize   = vg.Length(12)
	textSize    = vg.Length(9)

	legendHeight = 34 // three lines, between the title and the data
	legendLeft   = chartWidth - 2.4*vg.Inch
)

// Colours that are told apart with any sight (Okabe and Ito 2008).
var (
	blue   = color.NRGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff}
	orange = color.NRGBA{R: 0xd5, G: 0x5e, A: 0xff}
	grey   = color.NRGBA{R: 0xe8, G: 0xe8, B: 0xe8, A: 0xff}
)

// Chart draws results of one load as SVG, all to one scale. The same results give the same bytes.
type Chart struct {
	load    *Load
	results []Result
	bin     int64   // microseconds
	end     int64   // the last of all jobs, rounded up to bins
	top     float64 // the largest number shown
}

// NewChart prepares the drawing of results, of which there is at least one.
func NewChart(load *Load, results []Result) *Chart {
	c := &Chart{load: load, results: results, bin: minBin}
	for i := range results {
		c.end = max(c.end, results[i].Finished()+1)
	}
	for c.end > maxBins*c.bin {
		c.bin += minBin
	}
	c.end = (c.end + c.bin - 1) / c.bin * c.bin
	c.top = float64(load.Rate)
	for i := range results {
		c.top = max(c.top, float64(results[i].MaxRolling(max(second, c.bin))))
	}
	return c
}

// One draws the result with the given index.
func (c *Chart) One(w io.Writer, index int) error {
	p, err := c.plot(index)
	if err != nil {
		return err
	}
	p.X.Label.Text = "seconds"
	return write(w, []*plot.Plot{p}, chartHeight)
}

// Overview draws all results, one above the other; the first has the legend.
func (c *Chart) Overview(w io.Writer) error {
	plots := make([]*plot.Plot, len(c.results))
	for i := range plots {
		p, err := c.plot(i)
		if err != nil {
			return err
		}
		if i > 0 {
			p.Legend, p.Title.Padding = plot.NewLegend(), 4
		}
		plots[i] = p
	}
	plots[len(plots)-1].X.Label.Text = "seconds"
	return write(w, plots, stripHeight*vg.Length(len(plots)))
}

// write draws the plots one below the other on a white ground. They are measured with a face that the reader may not
// have; the one named after it has the same widths.
func write(w io.Writer, plots []*plot.Plot, height vg.Length) error {
	svg := vgsvg.New(chartWidth, height)
	canvas := draw.New(svg)
	canvas.SetColor(color.White)
	canvas.Fill(canvas.Path())
	rows := make([][]*plot.Plot, len(plots))
	for i, p := range plots {
		rows[i] = []*plot.Plot{p}
	}
	tiles := draw.Tiles{Rows: len(rows), Cols: 1, PadTop: 6, PadBottom: 6, PadLeft: 6, PadRight: 12, PadY: 10}
	areas := plot.Align(rows, tiles, canvas)
	for i, p := range plots {
		p.Draw(areas[i][0])
	}
	var picture bytes.Buffer
	_, err := svg.WriteTo(&picture)
	if err == nil {
		_, err = w.Write(bytes.ReplaceAll(picture.Bytes(), []byte("Liberation Sans"), []byte("Liberation Sans,Arial,sans-serif")))
	}
	if err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}

// plot is the picture of one result: what went in each bin, what had gone in the second before, the limit, the pauses.
func (c *Chart) plot(index int) (*plot.Plot, error) {
	r := &c.results[index]
	p := plot.New()
	p.Title.Text = fmt.Sprintf("%s: at most %s in a second", r.Title, grouped(r.MaxRolling(second)))
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, seconds(c.end), 0, c.top*1.05
	p.Y.Label.Text = "jobs"
	p.BackgroundColor = nil
	p.Title.Padding = legendHeight
	p.Legend.Top, p.Legend.Left, p.Legend.XOffs, p.Legend.YOffs = true, true, legendLeft, legendHeight
	sans(p)

	sent, err := plotter.NewPolygon(append(c.steps(r.Bins(c.bin)), plotter.XY{X: seconds(c.end)}, plotter.XY{}))
	if err != nil {
		return nil, fmt.Errorf("plot %s: %w", r.Name, err)
	}
	sent.Color, sent.LineStyle.Width = blue, 0
	rolling, errRolling := plotter.NewLine(c.steps(r.rolling(c.bin, c.end)))
	limit, errLimit := plotter.NewLine(plotter.XYs{{Y: float64(c.load.Rate)}, {X: seconds(c.end), Y: float64(c.load.Rate)}})
	if err := errors.Join(errRolling, errLimit); err != nil {
		return nil, fmt.Errorf("plot %s: %w", r.Name, err)
	}
	rolling.Color, rolling.Width = orange, 1.2
	limit.Dashes, limit.Width = []vg.Length{4, 3}, 0.7
	if err := c.shade(p); err != nil {
		return nil, err
	}
	p.Add(sent, limit, rolling)
	p.Legend.Add(fmt.Sprintf("sent per %s", time.Duration(c.bin)*time.Microsecond), sent)
	p.Legend.Add("in the second before", rolling)
	p.Legend.Add("limit", limit)
	return p, nil
}

// shade marks the pauses.
func (c *Chart) shade(p *plot.Plot) error {
	for _, pause := range c.load.Idle {
		from, until := pause.At.Seconds(), min((pause.At+pause.For).Seconds(), seconds(c.end))
		if from >= until {
			continue
		}
		area, err := plotter.NewPolygon(plotter.XYs{{X: from}, {X: from, Y: p.Y.Max}, {X: until, Y: p.Y.Max}, {X: until}})
		if err != nil {
			return fmt.Errorf("plot the pause %s: %w", pause, err)
		}
		area.Color, area.LineStyle.Width = grey, 0
		p.Add(area)
	}
	return nil
}

// steps is a line over the values of bins, and 0 for those that are not there.
func (c *Chart) steps(values []int64) plotter.XYs {
	var line plotter.XYs
	at := func(i int64) int64 {
		if i < int64(len(values)) {
			return values[i]
		}
		return 0
	}
	bins := c.end / c.bin
	for i := range bins {
		if i == 0 || at(i) != at(i-1) {
			line = append(line, plotter.XY{X: seconds(i * c.bin), Y: float64(at(i))})
		}
		if i == bins-1 || at(i) != at(i+1) {
			line = append(line, plotter.XY{X: seconds((i + 1) * c.bin), Y: float64(at(i))})
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

// sans sets the text in a plain face of a size that suits the pictures.
func sans(p *plot.Plot) {
	for _, style := range []*text.Style{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		style.Font.Variant, style.Font.Size = "Sans", textSize
	}
	p.Title.TextStyle.Font.Size = titleSize
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
