package page

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
)

// curve is a drawing of what became of jobs, with what its colours mean.
type curve struct {
	Plot   *plot // nil: there is none
	Legend []legend
	Why    string // there is none

	Last  string
	Spans []string
	Link  string // of the page with another span, which is to be appended
}

// legend is what a colour of a curve means.
type legend struct {
	Class, Name string
	Campaign    bool // the name is that of one
	Jobs        int64
	Known       bool // Jobs are
}

// curve draws what became of jobs, of one campaign or of all. of is the page, with a query that ends in what last is appended to.
func (s *Site) curve(ctx context.Context, campaign string, query url.Values, state *view.State, of string) *curve {
	c := &curve{Last: oneOf(query.Get("last"), view.CurveSpans), Spans: view.CurveSpans, Link: of}
	known, err := s.watcher.Curve(ctx, campaign, c.Last)
	switch {
	case err != nil:
		c.Why = "Not known: " + view.Line(err) + "."
	case len(known.Steps) == 0 && len(state.Paces(campaign)) == 0:
		c.Why = "Nothing was sent in the last " + c.Last + "."
	default:
		c.Plot, c.Legend = drawCurve(&known, campaign, state)
	}
	return c
}

// layer is one colour of a curve: jobs per second in each step.
type layer struct {
	legend

	values []float64
}

// drawCurve stacks the campaigns of a curve, or of one what was delivered, and failures on top.
func drawCurve(c *view.Curve, campaign string, state *view.State) (*plot, []legend) {
	ids, others := c.Largest()
	paces := map[string]view.Pace{}
	if c.Step == time.Minute {
		paces = state.Paces(campaign)
		ids, others = withPaces(ids, others, paces)
	}
	steps := int(c.Until.Sub(c.Since) / c.Step)
	at, layers := map[string]int{}, make([]layer, 0, len(ids)+2)
	add := func(l legend) int {
		l.Known = true
		layers = append(layers, layer{l, make([]float64, steps)})
		return len(layers) - 1
	}
	for i, id := range ids {
		l := legend{Class: "c" + strconv.Itoa(i+1), Name: id, Campaign: true}
		if campaign != "" {
			l.Name, l.Campaign = "delivered", false
		}
		at[id] = add(l)
	}
	if others {
		at[""] = add(legend{Class: "c0", Name: "others"})
	}
	failed, total, allowed := add(legend{Class: "cf", Name: "dead or rejected"}), make([]float64, steps), make([]float64, steps)
	for _, s := range c.Steps {
		i := int(s.Start.Sub(c.Since) / c.Step)
		if i < 0 || i >= steps {
			continue
		}
		seconds := c.Seconds(s.Start)
		one, bad := &layers[at[s.Campaign]], &layers[failed]
		one.values[i] += float64(s.Delivered) / seconds
		bad.values[i] += float64(s.Failed) / seconds
		one.Jobs, bad.Jobs = one.Jobs+s.Delivered, bad.Jobs+s.Failed
		allowed[i] += s.Allowed
	}
	if c.Step == time.Minute { // the minute that is not over is as it is sent now
		last := steps - 1
		for i := range layers {
			layers[i].values[last] = 0
		}
		allowed[last] = 0
		for id, pace := range paces {
			i, apart := at[id]
			if !apart {
				i = at[""]
			}
			layers[i].values[last] += pace.Sent
			allowed[last] += pace.Allowed
		}
	}
	most, rate := 0.0, 0.0
	for i := range total {
		for _, l := range layers {
			total[i] += l.values[i]
		}
		most, rate = max(most, total[i]), max(rate, allowed[i])
	}
	p := newPlot("Jobs per second", evenSteps(c.Since, c.Step, steps), max(most, min(rate, 2*most)))
	base, list := make([]float64, steps), make([]legend, 0, len(layers)+1)
	for _, l := range layers {
		if l.Class == "cf" && l.Jobs == 0 {
			continue
		}
		p.Layers = append(p.Layers, shape{l.Class, p.bars(base, l.values)})
		list = append(list, l.legend)
	}
	p.Dashes = p.line(allowed)
	p.point(func(i int) []string { return values(append(layers, layer{legend{Name: "allowed"}, allowed}), i) })
	p.Summary = fmt.Sprintf("at most %s, scale to %s", short(most), short(p.most))
	return p, append(list, legend{Class: "ca", Name: "allowed"})
}

// mostOfName bounds the names that the pointer shows: a chart has up to 84 columns with eight campaigns each.
const mostOfName = 20

// values says how much each layer has in a step, if it has something.
func values(layers []layer, step int) (lines []string) {
	for _, l := range layers {
		if name := []rune(l.Name); l.values[step] > 0 {
			if len(name) > mostOfName {
				name = append(name[:mostOfName-1:mostOfName-1], '…')
			}
			lines = append(lines, string(name)+" "+rate(l.values[step])+"/s")
		}
	}
	if lines == nil {
		return []string{"0/s"}
	}
	return lines
}

// withPaces adds campaigns that have just begun to send, as far as there is room beside those that have sent.
func withPaces(ids []string, others bool, paces map[string]view.Pace) ([]string, bool) {
	for _, id := range slices.Sorted(maps.Keys(paces)) {
		if slices.Contains(ids, id) {
			continue
		}
		if others = others || len(ids) == catalog.HistoryApart; !others {
			ids = append(ids, id)
		}
	}
	return ids, others
}
