package progress

import (
	"math"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

// window is a window of a quota as one campaign uses it. Times are seconds from the time when the campaign begins to send.
type window struct {
	limit, free float64 // units of the campaign in a span, and those that may go at once
	span        float64
	from, to    float64 // when the other units return: evenly in this time, or all at its end if they return together
	together    bool
}

// newWindow returns the campaign's part of a window. Jobs of one weight fill the limit as far as whole jobs do.
func newWindow(w delivery.Window, s delivery.WindowState, part, weight float64, begin time.Time) window {
	whole := func(units int64) float64 {
		if weight == math.Trunc(weight) && float64(w.Limit) >= weight {
			return part * math.Floor(float64(units)/weight) * weight
		}
		return part * float64(units)
	}
	in := func(at int64) float64 { return time.UnixMicro(at).Sub(begin).Seconds() }
	x := window{limit: whole(w.Limit), free: whole(s.Remaining), span: w.Span.Seconds(), to: in(s.ResetAt)}
	if w.Algorithm == delivery.AlgorithmFixed {
		x.together = s.Remaining < w.Limit || w.Anchor != ""
		if w.Anchor != "" {
			x.to = in(model.PeriodOf(w, begin.UnixMicro())[1])
		}
	} else if s.FreeAt != 0 {
		x.from = max(0, in(s.FreeAt))
	}
	if x.to <= 0 || s.Remaining >= w.Limit && !x.together {
		x.free, x.from, x.to, x.together = x.limit, 0, 0, false
	}
	return x
}

// path is the windows that a campaign's units pass, and how many units per second they are at most.
type path struct {
	rate    float64
	windows []window
}

// finish returns in how many seconds the units will have passed all windows: the latest time of any window.
func (p *path) finish(units float64) (at float64) {
	for i := range p.windows {
		at = max(at, p.through(&p.windows[i], units))
	}
	return at
}

// through returns in how many seconds the units will have passed a window. A span of it goes like the one before.
func (p *path) through(w *window, units float64) float64 {
	switch {
	case units <= w.free:
		return p.fresh(units)
	case w.limit <= 0:
		return math.Inf(1)
	case w.together:
		return w.to + p.fresh(units-w.free)
	}
	spans := w.spans(units)
	if units -= spans * w.limit; units <= w.free {
		return spans*w.span + p.fresh(units)
	}
	units -= w.free
	return spans*w.span + w.from + max((w.to-w.from)*units/(w.limit-w.free), p.fresh(units))
}

// fresh returns in how many seconds the units pass the windows, if these are unused: by the one that takes longest.
func (p *path) fresh(units float64) (at float64) {
	at = units / p.rate
	for i := range p.windows {
		w := &p.windows[i]
		spans := w.spans(units)
		at = max(at, spans*w.span+(units-spans*w.limit)/p.rate)
	}
	return at
}

// spans returns how many spans are used up before the span of the last unit.
func (w *window) spans(units float64) float64 { return max(0, math.Ceil(units/w.limit)-1) }

// inHours returns how many units per second pass all windows in the active hours, as the mean of a week. A window that is
// used up when they end is unused when they begin again.
func (p *path) inHours(hours *delivery.ActiveHours) float64 {
	open, times := hours.Weekly()
	if times == 0 {
		return p.rate
	}
	active, each := open.Seconds()/float64(times), week.Seconds()/float64(times)
	rate := p.rate
	for _, w := range p.windows {
		rate = min(rate, math.Ceil(active/w.span)*w.limit/active, each/active*w.limit/w.span)
	}
	return rate
}

const week = 7 * 24 * time.Hour
