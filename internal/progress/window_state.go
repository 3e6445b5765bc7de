package progress

import (
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

const (
	// settling is about how long after its grant a unit is sent and counted, in seconds.
	settling = 0.1
	ahead    = 0.05 // about how long before its time an evenly spent unit is granted
	tiny     = 1e-6
)

// windowState is a window as one campaign sees it: its part of the limit. Times are seconds from now, as in a curve.
type windowState struct {
	window      delivery.Window
	limit, left float64
	span        float64   // for how long units count, to the end of their bucket
	even        bool      // units take their part of the span
	leave       []leaving // of the units that are counted now, in order; evenly between one and the next
	width       float64   // of a bucket; 0: each unit leaves by itself
	phase       float64   // by how much now is after the begin of a bucket
	base        float64   // fixed: what was sent when its period began
	reset       float64   // fixed: when that ends; infinite: it begins with the next unit
	bound       float64   // until when there was no room last
	allow, due  float64   // even: what may be sent until when
	step        float64   // even: the units that go together
	whole       bool      // its limit is so small that units leave it one by one
}

// leaving is how many units have left a window by a time.
type leaving struct{ at, units float64 }

// newSpent makes the state of a window of a quota of which the campaign has a part, as it was observed.
func newSpent(q *delivery.Quota, part float64, s delivery.WindowState, now time.Time) *windowState {
	w := q.Windows[s.Window]
	x := &windowState{
		window: w, limit: part * float64(w.Limit), left: part * float64(s.Remaining), span: w.Span.Seconds(), even: q.Spend == delivery.SpendEven,
	}
	in := func(at int64) float64 { return max(0, time.UnixMicro(at).Sub(now).Seconds()) }
	switch w.Algorithm {
	case delivery.AlgorithmFixed:
		x.reset = math.Inf(1)
		if w.Anchor != "" {
			x.reset = max(tiny, in(model.PeriodOf(w, now.UnixMicro())[1]))
		} else if s.Remaining < w.Limit {
			x.reset = min(x.span, in(s.ResetAt))
		}
		return x
	case delivery.AlgorithmLog:
		x.span += settling
	default: // a bucket leaves when all of it may
		width := model.Step(w)
		x.width, x.phase = float64(width)/1e6, float64(now.UnixMicro()%width)/1e6
		x.span += settling
	}
	used := x.limit - x.left
	if used <= 0 {
		return x
	}
	full := x.span + x.width
	if s.ResetAt != 0 {
		full = min(full, in(s.ResetAt))
	}
	first := 0.0
	if s.FreeAt != 0 {
		first = min(full, in(s.FreeAt))
	}
	if s.Leaving[0] != 0 {
		first = min(full, in(s.Leaving[0]))
	}
	x.leave = []leaving{{first, 0}}
	if s.Leaving[0] != 0 {
		for i := 1; i < len(s.Leaving); i++ {
			x.leave = append(x.leave, leaving{min(full, in(s.Leaving[i])), used * float64(i) / float64(len(s.Leaving))})
		}
	}
	x.leave = append(x.leave, leaving{full, used})
	return x
}

// leavesAt is when what is sent at a time has left the window.
func (x *windowState) leavesAt(at float64) float64 {
	if x.width > 0 {
		at = (math.Floor((at+x.phase)/x.width+tiny)+1)*x.width - x.phase
	}
	return at + x.span
}

// length is after how long what goes on alike in a window is where it was.
func (x *windowState) length() float64 {
	if x.width > 0 {
		return (math.Floor(x.span/x.width) + 1) * x.width
	}
	return x.span
}

// free is how much may have been sent at t, how fast that grows, and until when it does.
func (x *windowState) free(c *curve, t float64) (units, slope, until float64) {
	if x.window.Algorithm == delivery.AlgorithmFixed {
		if units = x.left; x.whole {
			units = math.Floor(units + tiny)
		}
		return x.base + units, 0, x.reset
	}
	units, until = x.left, math.Inf(1)
	grow := func(at, next leaving) { // of those that leave from one time to the next
		if until = min(until, next.at); next.units > at.units && next.at > at.at {
			grows := (next.units - at.units) / (next.at - at.at)
			units, slope = units+grows*max(0, t-at.at), slope+grows
		}
	}
	for i := len(x.leave) - 1; i >= 0; i-- {
		if l := x.leave[i]; t >= l.at-tiny {
			if units += l.units; i+1 < len(x.leave) {
				grow(l, x.leave[i+1])
			}
			break
		}
		until = x.leave[i].at
	}
	if x.whole {
		return x.freeWhole(c, t, line{units, slope, until})
	}
	if x.width > 0 {
		begin := x.first(t)
		gone := c.by(begin)
		if i := c.last(func(i int) bool { return c.sent[i] <= gone }); i+1 < len(c.at) {
			until = min(until, x.leavesAt(max(begin, c.at[i])))
		} else if end, _ := c.end(); true {
			until = min(until, x.leavesAt(end))
		}
		return units + gone, slope, until
	}
	i := c.last(func(i int) bool { return x.leavesAt(c.at[i]) <= t+tiny })
	if i < 0 {
		return units, slope, min(until, x.leavesAt(0))
	}
	units += c.sent[i]
	if i+1 < len(c.at) {
		grow(leaving{x.leavesAt(c.at[i]), c.sent[i]}, leaving{x.leavesAt(c.at[i+1]), c.sent[i+1]})
	}
	return units, slope, until
}

// evenly is how much may be sent at t, and until when no more, if units are spent evenly; room is what the window has.
// Units go one by one or, of many, together: a hundredth of what may go until the schedule changes, or a fiftieth of all.
func (x *windowState) evenly(p *simulation, t, sent, room float64) (allow, next float64) {
	if t >= x.due-ahead-tiny {
		part, most := x.window.Span.Seconds()/max(tiny, x.limit), x.limit
		if x.whole {
			most = math.Floor(most + tiny)
		}
		if x.window.Algorithm == delivery.AlgorithmFixed { // no more goes in its period than remains
			if most = max(tiny, room); !math.IsInf(x.reset, 1) {
				part = (x.reset - t) / most
			}
		}
		x.step = min(max(1, math.Ceil(min((p.next-t)/part/100, most, (p.units-sent)/50))), max(1, most))
		x.allow, x.due = sent+x.step, max(t, x.due)+x.step*part
	}
	return x.allow, x.due - ahead
}

// first is the begin of the first bucket that counts at t.
func (x *windowState) first(t float64) float64 {
	return math.Floor((t-x.span+x.phase)/x.width+tiny)*x.width - x.phase
}

// renew begins the period of a fixed window anew if it has ended by t. What is sent at its end counts in the next one, too.
func (x *windowState) renew(c *curve, now time.Time, t float64) {
	if x.window.Algorithm != delivery.AlgorithmFixed || t < x.reset-tiny {
		return
	}
	x.base, x.left = x.sent(c, t), x.limit
	late := x.base - x.sent(c, t-settling)
	x.left = max(0, x.left-late)
	switch {
	case x.window.Anchor != "":
		at := now.Add(seconds(t + tiny))
		x.reset = max(t+tiny, time.UnixMicro(model.PeriodOf(x.window, at.UnixMicro()+1)[1]).Sub(now).Seconds())
	case late > tiny:
		x.reset = t + x.span
	default:
		x.reset = math.Inf(1)
	}
}

// move moves on the period of a fixed window after periods in which so much was sent have been passed over.
func (x *windowState) move(c *curve, now time.Time, long, units float64) {
	if x.window.Algorithm != delivery.AlgorithmFixed {
		return
	}
	x.base += units
	if x.window.Anchor == "" {
		x.reset += long
		return
	}
	end, _ := c.end()
	at := model.PeriodOf(x.window, now.Add(seconds(end)).UnixMicro())
	x.base, x.left = c.by(time.UnixMicro(at[0]).Sub(now).Seconds()), x.limit
	x.reset = time.UnixMicro(at[1]).Sub(now).Seconds()
}

// curve is how many units a campaign has sent by a time: straight lines from one point to the next, the first at 0.
type curve struct{ at, sent []float64 }

// last is the last point that passes, of which all earlier ones do.
func (c *curve) last(passes func(i int) bool) int {
	low, high := 0, len(c.at)
	for low < high {
		if i := (low + high) / 2; passes(i) {
			low = i + 1
		} else {
			high = i
		}
	}
	return low - 1
}

// by is how many units were sent by a time.
func (c *curve) by(at float64) float64 {
	i, exact := slices.BinarySearch(c.at, at)
	switch {
	case exact:
		return c.sent[i]
	case i == 0:
		return 0
	case i == len(c.at):
		return c.sent[i-1]
	}
	return c.sent[i-1] + (c.sent[i]-c.sent[i-1])*(at-c.at[i-1])/(c.at[i]-c.at[i-1])
}

// when is the time by which so many units, of those that the curve knows, were sent.
func (c *curve) when(sent float64) float64 {
	_, most := c.end()
	i, exact := slices.BinarySearch(c.sent, min(sent, most))
	if exact || i == 0 {
		return c.at[i]
	}
	return c.at[i-1] + (c.at[i]-c.at[i-1])*(sent-c.sent[i-1])/(c.sent[i]-c.sent[i-1])
}

// end is the last point.
func (c *curve) end() (at, sent float64) { return c.at[len(c.at)-1], c.sent[len(c.sent)-1] }

// insert inserts a line at a time, after which the curve goes on as it did.
func (c *curve) insert(at, long, units float64) {
	sent := c.by(at)
	i := c.last(func(i int) bool { return c.at[i] < at-tiny }) + 1
	for j := i; j < len(c.at); j++ {
		c.at[j] += long
		c.sent[j] += units
	}
	c.at = slices.Insert(c.at, i, at, at+long)
	c.sent = slices.Insert(c.sent, i, sent, sent+units)
	if j := i + 2; j < len(c.at) && c.at[j] <= c.at[j-1]+tiny { // a point was there
		c.at, c.sent = slices.Delete(c.at, j, j+1), slices.Delete(c.sent, j, j+1)
	}
}

// draw adds a line. One that goes on as the last one is made a part of it: where the curve bends, windows bend it again later.
func (c *curve) draw(t, sent, slope float64) {
	if n := len(c.at); n > 1 && math.Abs(c.sent[n-1]-c.sent[n-2]-slope*(c.at[n-1]-c.at[n-2])) < tiny {
		c.at[n-1], c.sent[n-1] = t, sent
		return
	}
	c.at, c.sent = append(c.at, t), append(c.sent, sent)
}
