package simulate

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Colours that are told apart with any sight (Okabe and Ito 2008). The face is measured nowhere: each text has room.
const svgStyle = `text{font:12px "Liberation Sans",Arial,sans-serif;fill:#222}
.title{font-size:15px}
.end{text-anchor:end}
.middle{text-anchor:middle}
.ground{fill:#fff}
.pause{fill:#e8e8e8}
.sent{fill:#56b4e9}
.axis,.grid,.limit,.rolling{fill:none;stroke:#222}
.grid{stroke:#ccc;stroke-width:.5}
.limit{stroke-dasharray:5 4}
.rolling{stroke:#d55e00;stroke-width:1.6}
`

// drawing is an SVG picture. Coordinates are pixels from its top left corner; class names a line of svgStyle.
type drawing struct{ out bytes.Buffer }

type point struct{ x, y float64 }

func newDrawing(width, height float64) *drawing {
	d := &drawing{}
	fmt.Fprintf(&d.out, "<svg xmlns=%q width=%q height=%q viewBox=\"0 0 %s %s\">\n<style>%s</style>\n",
		"http://www.w3.org/2000/svg", pixels(width), pixels(height), pixels(width), pixels(height), svgStyle)
	d.rectangle("ground", 0, 0, width, height)
	return d
}

func (d *drawing) rectangle(class string, x, y, width, height float64) {
	fmt.Fprintf(&d.out, "<rect class=%q x=%q y=%q width=%q height=%q/>\n",
		class, pixels(x), pixels(y), pixels(width), pixels(height))
}

// line joins the points.
func (d *drawing) line(class string, points ...point) { d.join("polyline", class, points) }

// area fills what the points enclose.
func (d *drawing) area(class string, points ...point) { d.join("polygon", class, points) }

func (d *drawing) join(element, class string, points []point) {
	fmt.Fprintf(&d.out, "<%s class=%q points=\"", element, class)
	for i, p := range points {
		if i > 0 {
			d.out.WriteByte(' ')
		}
		d.out.WriteString(pixels(p.x) + "," + pixels(p.y))
	}
	d.out.WriteString("\"/>\n")
}

// text writes s on the line at y, from x on unless the class says otherwise.
func (d *drawing) text(class string, x, y float64, s string) { d.turned(class, x, y, 0, s) }

// turned is text turned by degrees about its place.
func (d *drawing) turned(class string, x, y float64, degrees int, s string) {
	fmt.Fprintf(&d.out, "<text class=%q x=%q y=%q", class, pixels(x), pixels(y))
	if degrees != 0 {
		fmt.Fprintf(&d.out, " transform=\"rotate(%d %s %s)\"", degrees, pixels(x), pixels(y))
	}
	d.out.WriteByte('>')
	_ = xml.EscapeText(&d.out, []byte(s)) // a buffer takes everything
	d.out.WriteString("</text>\n")
}

func (d *drawing) writeTo(w io.Writer) error {
	d.out.WriteString("</svg>\n")
	if _, err := d.out.WriteTo(w); err != nil {
		return fmt.Errorf("write the plot: %w", err)
	}
	return nil
}

// pixels spells a coordinate to a hundredth.
func pixels(f float64) string {
	s := strconv.FormatFloat(f, 'f', 2, 64)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}
