package test

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// plot is a picture of lines, as SVG.
type plot struct {
	title, x, y string
	logX        bool // the x axis has equal distances for 1, 10, 100 and so on; no x is below 1
	lines       []plotLine
}

type plotLine struct {
	name   string
	dashed bool // what would be ideal
	at     [][2]float64
}

// Sizes of the picture in pixels, and colours that are told apart with any sight (Okabe and Ito 2008).
const (
	plotWidth, plotHeight     = 720.0, 340.0
	plotLeft, plotRight       = 76.0, 150.0 // the right one for the names of the lines
	plotTop, plotBottom       = 40.0, 52.0
	plotTicks                 = 6
	plotRoom                  = 1.05 // above the largest value
	plotStyle                 = `text{font:12px "Liberation Sans",Arial,sans-serif;fill:#222}.title{font-size:15px}.end{text-anchor:end}.middle{text-anchor:middle}`
	plotLineStyle, plotDashed = "fill:none;stroke-width:1.6;stroke:", ";stroke-dasharray:5 4"
)

var plotColours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#882255", "#999933", "#222222"}

// write writes the picture to the file of this name in the folder that PLOTS names, if set.
func (p *plot) write(t *testing.T, name string) {
	t.Helper()
	folder := os.Getenv("PLOTS")
	if folder == "" {
		return
	}
	err := os.MkdirAll(folder, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(folder, name), []byte(p.String()), 0o644)
	}
	if err != nil {
		t.Errorf("write a plot: %v", err)
	}
}

// String is the picture. The same plot gives the same bytes.
func (p *plot) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "<svg xmlns=%q width=\"%g\" height=\"%g\" viewBox=\"0 0 %[2]g %[3]g\">\n<style>%s</style>\n",
		"http://www.w3.org/2000/svg", plotWidth, plotHeight, plotStyle)
	fmt.Fprintf(&b, "<rect width=\"%g\" height=\"%g\" style=\"fill:#fff\"/>\n", plotWidth, plotHeight)
	text := func(class string, x, y float64, s string) {
		fmt.Fprintf(&b, "<text class=%q x=%q y=%q>", class, pixel(x), pixel(y))
		_ = xml.EscapeText(&b, []byte(s)) // a builder takes everything
		b.WriteString("</text>\n")
	}
	line := func(style string, points ...[2]float64) {
		fmt.Fprintf(&b, "<polyline style=%q points=%q/>\n", style, coordinates(points))
	}
	text("title", plotLeft, 22, p.title)
	const ground, right = plotHeight - plotBottom, plotWidth - plotRight
	low, high, top := p.bounds()
	at := p.frame(low, high, top)
	for _, y := range ticks(0, top) {
		h := at([2]float64{low, y})[1]
		line("stroke:#ccc;stroke-width:.5", [2]float64{plotLeft, h}, [2]float64{right, h})
		text("end", plotLeft-6, h+4, short(y))
	}
	for _, x := range p.ticksX(low, high) {
		w := at([2]float64{x, 0})[0]
		line("stroke:#222", [2]float64{w, ground}, [2]float64{w, ground + 5})
		text("middle", w, ground+18, strconv.FormatFloat(x, 'f', -1, 64))
	}
	line("fill:none;stroke:#222", [2]float64{plotLeft, plotTop}, [2]float64{plotLeft, ground}, [2]float64{right, ground})
	text("middle", (plotLeft+right)/2, plotHeight-12, p.x)
	text("", 8, plotTop-6, p.y)
	for i, l := range p.lines {
		points := make([][2]float64, len(l.at))
		for j, v := range l.at {
			points[j] = at(v)
		}
		style := plotLineStyle + plotColours[i%len(plotColours)]
		if l.dashed {
			style += plotDashed
		}
		line(style, points...)
		y := plotTop + 8 + 18*float64(i)
		line(style, [2]float64{right + 12, y}, [2]float64{right + 36, y})
		text("", right+42, y+4, l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// bounds are the least and the largest x, and the upper end of the y axis.
func (p *plot) bounds() (low, high, top float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range p.lines {
		for _, v := range l.at {
			low, high, top = min(low, v[0]), max(high, v[0]), max(top, v[1])
		}
	}
	if low >= high {
		low, high = min(low, 0), max(high, 1)
	}
	return low, high, max(top*plotRoom, 1e-9)
}

// frame places values in the picture.
func (p *plot) frame(low, high, top float64) func(v [2]float64) [2]float64 {
	scale := func(x float64) float64 { return x }
	if p.logX {
		scale = func(x float64) float64 { return math.Log10(max(x, 1)) }
	}
	const width, height = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
	return func(v [2]float64) [2]float64 {
		part := (scale(v[0]) - scale(low)) / (scale(high) - scale(low))
		return [2]float64{plotLeft + width*part, plotTop + height*(1-v[1]/top)}
	}
}

func (p *plot) ticksX(low, high float64) (list []float64) {
	if !p.logX {
		return ticks(low, high)
	}
	for x := 1.0; x <= high; x *= 10 {
		if x >= low {
			list = append(list, x)
		}
	}
	return list
}

// ticks are the multiples of 1, 2 or 5 times a power of ten that part a stretch into a few.
func ticks(from, to float64) (list []float64) {
	step := math.Pow(10, math.Floor(math.Log10((to-from)/plotTicks)))
	for _, more := range []float64{2, 2.5, 2} {
		if (to-from)/step > plotTicks {
			step *= more
		}
	}
	for n := math.Ceil(from / step); n*step <= to; n++ {
		list = append(list, n*step)
	}
	return list
}

func coordinates(points [][2]float64) string {
	words := make([]string, len(points))
	for i, p := range points {
		words[i] = pixel(p[0]) + "," + pixel(p[1])
	}
	return strings.Join(words, " ")
}

// pixel spells a coordinate to a tenth.
func pixel(f float64) string { return strings.TrimSuffix(strconv.FormatFloat(f, 'f', 1, 64), ".0") }

func TestPlot(t *testing.T) {
	p := &plot{title: "rate < limit", x: "daemons", y: "jobs a second", lines: []plotLine{
		{name: "measured", at: [][2]float64{{1, 320}, {2, 630}, {8, 2500}}},
		{name: "ideal", dashed: true, at: [][2]float64{{1, 320}, {8, 2560}}},
	}}
	for _, p.logX = range []bool{false, true} {
		picture := p.String()
		for decoder := xml.NewDecoder(strings.NewReader(picture)); ; {
			_, err := decoder.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, picture)
			}
		}
		for _, part := range []string{"rate &lt; limit", "jobs a second", "measured", ">2000<", plotDashed, `points="76,`} {
			if !strings.Contains(picture, part) {
				t.Errorf("%q is not in\n%s", part, picture)
			}
		}
		if strings.Contains(picture, "NaN") || strings.Contains(picture, "Inf") {
			t.Errorf("not a number in\n%s", picture)
		}
	}
	for _, empty := range []*plot{{}, {lines: []plotLine{{at: [][2]float64{{3, 0}}}}}} {
		if picture := empty.String(); strings.Contains(picture, "NaN") || strings.Contains(picture, "Inf") {
			t.Errorf("not a number in\n%s", picture)
		}
	}
}
