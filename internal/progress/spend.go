package progress

import (
	"math"
	"sort"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/model"
)

const (
	maxBends    = 400 // of the curve of one campaign, before its shortest window counts as a rate
	maxSpending = 4   // attempts to find the curve of a campaign
	manySpans   = 50  // a window of which so many spans pass counts as a rate
	fewSpans    = 10  // but not one of which fewer pass in a stretch of active hours: it is full again when they begin
	// settling is about how long after its grant a unit is sent and counted, in seconds.
	settling = 0.1
	tiny     = 1e-6
)

// spending is how the units that a campaign has sent grow, as the windows of its quotas allow: as fast as its rate while all of
// them have room, and while one has none, as fast as what it has counted leaves it. So a long window that is used up at once
// stands still until its units leave it, all at once again. The curve is made of straight lines; times are seconds from now.
type spending struct {
	campaign *delivery.Campaign
	now      time.Time
	windows  []*spent
	most     float64 // units per second that short windows and evenly spent ones allow
	at, sent []float64
}

// spent is a window as one campaign sees it: its part of the limit.
type spent struct {
	window      delivery.Window
	limit, left float64
	span        float64   // for how long units count
	leave       []leaving // of the units that are counted now, in order; evenly between one and the next
	base        float64   // fixed: what was sent when its period began
	reset       float64   // fixed: when that ends
}

// leaving is how many units have left a window by a time.
type leaving struct{ at, units float64 }

// newSpent makes the state of a window of a quota of which the campaign has a part, as it was observed. The shorter windows of
// the quota have counted the same units: what one of them has not counted was sent before its span.
func newSpent(q *delivery.Quota, index int, part float64, seen map[int]delivery.WindowState, now time.Time) *spent {
	w, s := q.Windows[index], seen[index]
	x := &spent{window: w, limit: part * float64(w.Limit), left: part * float64(s.Remaining), span: w.Span.Seconds()}
	from := func(at int64) float64 { return max(0, time.UnixMicro(at).Sub(now).Seconds()) }
	full, gone := x.span, 0.0
	if s.ResetAt != 0 {
		full = min(x.span, from(s.ResetAt))
	}
	if s.FreeAt != 0 {
		gone = min(full, from(s.FreeAt))
	}
	used := x.limit - x.left
	x.leave = []leaving{{gone, 0}}
	for i, shorter := range q.Windows {
		at, state := x.span-shorter.Span.Seconds(), seen[i]
		if i == index || shorter.Algorithm == delivery.AlgorithmFixed || state.ResetAt == 0 || at <= gone || at >= full {
			continue
		}
		if units := used - part*float64(shorter.Limit-state.Remaining); units > 0 {
			x.leave = append(x.leave, leaving{at, min(used, units)})
		} else {
			x.leave = append(x.leave, leaving{at, 0})
		}
	}
	x.leave = append(x.leave, leaving{full, used})
	sort.Slice(x.leave, func(i, j int) bool { return x.leave[i].at < x.leave[j].at })
	switch w.Algorithm {
	case delivery.AlgorithmFixed:
		if x.reset = full; w.Anchor != "" {
			x.reset = max(tiny, from(model.PeriodOf(w, now.UnixMicro())[1]))
		} else if s.Remaining >= w.Limit {
			x.reset = x.span
		}
	case delivery.AlgorithmLog:
		x.span += settling
	default: // the oldest bucket counts in full
		x.span += x.span/120 + settling
	}
	return x
}

// room is how much may have been sent at t, how fast that grows, and until when it does.
func (x *spent) room(p *spending, t float64) (units, slope, until float64) {
	if x.window.Algorithm == delivery.AlgorithmFixed {
		return x.base + x.left, 0, x.reset
	}
	units, until = x.left, math.Inf(1)
	for i := len(x.leave) - 1; i >= 0; i-- {
		if l := x.leave[i]; t >= l.at-tiny {
			if units += l.units; i+1 < len(x.leave) {
				next := x.leave[i+1]
				slope = (next.units - l.units) / max(tiny, next.at-l.at)
				units += slope * max(0, t-l.at)
			}
			break
		}
		until = x.leave[i].at
	}
	if t < x.span-tiny {
		return units, slope, min(until, x.span)
	}
	before := t - x.span + tiny
	i := sort.SearchFloat64s(p.at, before) // the line from i-1 to i
	if i >= len(p.at) {
		return units + p.sent[len(p.at)-1], slope, until
	}
	line := (p.sent[i] - p.sent[i-1]) / (p.at[i] - p.at[i-1])
	return units + p.sent[i-1] + line*(t-x.span-p.at[i-1]), slope + line, min(until, p.at[i]+x.span)
}

// renew begins the periods of fixed windows that have ended by t.
func (p *spending) renew(t, sent float64) {
	for _, x := range p.windows {
		if x.window.Algorithm != delivery.AlgorithmFixed || t < x.reset-tiny {
			continue
		}
		x.base, x.left = sent, x.limit
		if x.reset = t + x.span; x.window.Anchor != "" {
			at := p.now.Add(seconds(t + tiny))
			x.reset = max(t+tiny, time.UnixMicro(model.PeriodOf(x.window, at.UnixMicro()+1)[1]).Sub(p.now).Seconds())
		}
	}
}

// rate is what the schedule allows at t, and until when.
func (p *spending) rate(t float64) (perSecond, until float64, ended bool) {
	at := p.now.Add(seconds(t + tiny))
	if p.campaign.Ended(at) {
		return 0, 0, true
	}
	until = math.Inf(1)
	if next := p.campaign.NextChange(at); !next.IsZero() {
		until = next.Sub(p.now).Seconds()
	}
	if !p.campaign.Active(at) {
		return 0, until, false
	}
	rate, _, _ := p.campaign.RateAt(at)
	return rate.PerSecond(), until, false
}

// run returns when so many units will have been sent: never if ok is false, and not known if known is.
func (p *spending) run(units float64) (at float64, ok, known bool) {
	p.at, p.sent = []float64{0}, []float64{0}
	t, sent := 0.0, 0.0
	for range maxBends {
		slope, until, ended := p.rate(t)
		if ended {
			return 0, false, true
		}
		slope = min(slope, p.most)
		hit := math.Inf(1)
		type line struct{ room, slope float64 }
		lines := make([]line, len(p.windows))
		for i, x := range p.windows {
			units, grows, ends := x.room(p, t)
			lines[i] = line{units, grows}
			if until = min(until, ends); units-sent < tiny*(1+sent) {
				slope = min(slope, max(0, grows))
			}
		}
		for _, l := range lines {
			if l.room-sent >= tiny*(1+sent) && slope > l.slope {
				hit = min(hit, t+(l.room-sent)/(slope-l.slope))
			}
		}
		if until = min(until, hit); slope > 0 && sent+slope*(until-t) >= units-tiny {
			return t + (units-sent)/slope, true, true
		}
		if math.IsInf(until, 1) {
			return 0, false, true
		}
		until = max(until, t+tiny)
		sent += slope * (until - t)
		t = until
		p.draw(t, sent, slope)
		p.renew(t, sent)
	}
	return 0, false, false
}

// draw adds a line of the given slope to the curve. One that goes on as the last one is made a part of it: where the curve bends,
// windows bend it again a span later.
func (p *spending) draw(t, sent, slope float64) {
	if n := len(p.at); n > 1 && math.Abs(p.sent[n-1]-p.sent[n-2]-slope*(p.at[n-1]-p.at[n-2])) < tiny {
		p.at[n-1], p.sent[n-1] = t, sent
		return
	}
	p.at, p.sent = append(p.at, t), append(p.sent, sent)
}

// finish returns when so many units will have been sent; about is when that is in the long run. known is false if it takes too
// long to find out.
func (p *spending) finish(units float64, about float64) (at float64, ok, known bool) {
	sort.Slice(p.windows, func(i, j int) bool { return p.windows[i].span < p.windows[j].span })
	kept := p.windows
	stretch := p.stretch()
	for len(kept) > 0 && kept[0].span*manySpans < about && kept[0].span*fewSpans < stretch {
		p.most, kept = min(p.most, kept[0].limit/kept[0].span), kept[1:]
	}
	for range maxSpending {
		p.windows = make([]*spent, len(kept))
		for i, x := range kept {
			fresh := *x
			p.windows[i] = &fresh
		}
		if at, ok, known = p.run(units); known || len(kept) == 0 {
			return at, ok, known
		}
		p.most, kept = min(p.most, kept[0].limit/kept[0].span), kept[1:]
	}
	return 0, false, false
}

// stretch is how long the shortest of the campaign's next active hours are, in seconds.
func (p *spending) stretch() float64 {
	shortest := math.Inf(1)
	if p.campaign.Hours == nil {
		return shortest
	}
	at, active := p.now, false
	for range 16 { // of a week with two stretches a day
		next := p.campaign.Hours.NextChange(at)
		if next.IsZero() {
			break
		}
		if active {
			shortest = min(shortest, next.Sub(at).Seconds())
		}
		at, active = next, p.campaign.Hours.Active(next)
	}
	return shortest
}

func seconds(s float64) time.Duration {
	return time.Duration(min(s, (20*366*24*time.Hour).Seconds()) * float64(time.Second))
}
