package progress

import (
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// maxBends bounds the steps to the curve of one campaign, forecastBends those of all that are forecast together.
	maxBends, minBends, forecastBends = 20_000, 400, 100_000
	// manyUnits are so many that some more or less make no difference.
	manyUnits = 100

	day     = 24 * 60 * 60.0
	week    = 7 * day
	longest = 10 * 366 * 24 * 60 * 60.0
)

// simulation is how the units that a campaign has sent grow, as the windows of its quotas allow: as fast as its rate while all of
// them have room, and while one has none, as fast as what it has counted leaves it. So a long window that is used up at once
// stands still until its units leave it, all at once again. What goes on alike, span after span of a window, while no longer one
// binds, is passed over: see skip_periods.go. Units flow evenly, except where a window is small: see whole_units.go. Times are seconds from now.
type simulation struct {
	campaign *delivery.Campaign
	now      time.Time
	windows  []*windowState
	most     float64 // units per second that is allowed besides
	each     float64 // units of the campaign that are one unit here
	units    float64 // to be sent
	curve    curve
	next     float64    // when the schedule changes
	since    float64    // when it did so last
	went     [2]float64 // from when to when something went between two changes last; 0: not known
	pace     float64    // units per second of the schedule, in its active hours
	paced    float64    // since when
	try      int        // with how many points it is looked for periods next
	whole    bool       // units go one by one, since a window is so small that each of them matters
}

// rate is what the schedule allows at t, and until when.
func (p *simulation) rate(t float64) (perSecond, until float64, ended bool) {
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
	return rate.PerSecond() / p.each, until, false
}

// finish returns when the units will have been sent: never if ok is false. If so many bends are not enough to tell, the rest goes on
// like that, or as in the last span of the longest window that had no room, or as windows that are longer allow in the long run.
func (p *simulation) finish(bends int) (at float64, ok bool) {
	slices.SortFunc(p.windows, func(a, b *windowState) int { return int(a.window.Span - b.window.Span) })
	p.curve = curve{at: []float64{0}, sent: []float64{0}}
	t, sent := 0.0, 0.0
	for range bends {
		slope, until, ended := p.step(t, sent)
		if ended {
			return 0, false
		}
		if slope > 0 && sent+slope*(until-t) >= p.units-tiny {
			return t + (p.units-sent)/slope, true
		}
		if math.IsInf(until, 1) || t > longest {
			return 0, false
		}
		until = max(until, t+tiny)
		sent += slope * (until - t)
		if p.whole {
			sent = whole(sent, slope)
		}
		t = until
		p.curve.draw(t, sent, slope)
		if len(p.curve.at) >= p.try {
			t, sent = p.pass(t, sent)
			p.try = len(p.curve.at) + triedEvery
		}
	}
	at = t
	switch {
	case p.campaign.Hours != nil && t < alike*day && sent > tiny:
		if at, ok = p.inHours(t, sent); !ok {
			return 0, false
		}
	case p.campaign.Hours == nil && sent > 0:
		at = p.again(t, sent)
	case sent > 0:
		at = t * p.units / sent
	}
	for _, x := range p.windows {
		span := x.window.Span.Seconds()
		switch after := p.units - x.base - x.left; { // the periods of which the first is under way
		case x.span*alike <= t:
		case x.window.Algorithm == delivery.AlgorithmFixed && !x.even && !math.IsInf(x.reset, 1):
			if after > 0 {
				at = max(at, x.reset+(math.Ceil(after/x.limit)-1)*span)
			}
		case x.window.Algorithm != delivery.AlgorithmFixed && !x.even: // a span after any time, no more than its limit goes besides
			spans := math.Ceil(min((p.units-sent)/x.limit, p.units/x.limit-1))
			at = max(at, spans*x.span+p.curve.when(p.units-spans*x.limit))
		default:
			at = max(at, (p.units-x.limit)*span/x.limit)
		}
	}
	return at, at < longest
}

// inHours is when the units will have been sent if active hours go like the last ones, of which all is known, or as these began.
func (p *simulation) inHours(t, sent float64) (at float64, ok bool) {
	gone, rest, from := sent-p.curve.by(p.since), p.units-sent, t
	pace := gone / max(tiny, t-p.since)
	if begin, end := p.went[0], p.went[1]; end > 0 {
		before := p.curve.by(begin)
		all := p.curve.by(end) - before
		if pace = all / (end - begin); p.campaign.Active(p.now.Add(seconds(t + tiny))) {
			if gone+rest <= all {
				return max(t, p.since+p.curve.when(before+gone+rest)-begin), true
			}
			from, rest = p.next, rest-max(0, all-gone)
		}
	}
	if pace <= tiny {
		return t * p.units / sent, true
	}
	last, ok := p.campaign.Finish(p.now.Add(seconds(from)), rest*p.each, delivery.Sustained{PerSecond: pace * p.each})
	return last.Sub(p.now).Seconds(), ok
}

// again is when the units will have been sent if each span of the longest window that had no room goes like the last one: of a
// day in whose first minutes all goes that may, the minutes count. Before a span is over, what is to come goes as fast as what went.
func (p *simulation) again(t, sent float64) float64 {
	for _, x := range slices.Backward(p.windows) {
		if x.bound == 0 {
			continue
		}
		length := x.length()
		before := p.curve.by(t - length)
		if t-p.since < length || sent-before <= tiny {
			break
		}
		if n := math.Floor(min((t-p.since)/length, manyUnits/(sent-before))); n > 1 { // of few units, it matters which are among them
			length *= n
			before = p.curve.by(t - length)
		}
		each := sent - before
		spans := math.Floor((p.units - sent) / each)
		return t + spans*length + p.curve.when(before+p.units-sent-spans*each) - (t - length)
	}
	return t * p.units / sent
}

// step is how fast units are sent at t, and until when.
func (p *simulation) step(t, sent float64) (slope, until float64, ended bool) {
	slope, until, ended = p.rate(t)
	if t >= p.next-tiny {
		if p.since > 0 && sent-p.curve.by(p.since) > tiny {
			p.went = [2]float64{p.since, t}
		}
		p.since, p.next = t, until
	}
	if slope > 0 && slope != p.pace {
		p.pace, p.paced = slope, t
	}
	if slope = min(slope, p.most); slope == 0 || ended {
		return slope, until, ended
	}
	if p.whole && math.Ceil(sent) > sent {
		return slope, p.completed(t, sent, slope, until), false
	}
	lines := make([]line, len(p.windows))
	stands := 0.0 // until when it stands still
	for i, x := range p.windows {
		x.renew(&p.curve, p.now, t)
		room, grows, ends := x.free(&p.curve, t)
		room -= sent
		lines[i] = line{room, grows, ends}
		some := min(max(1, min(x.limit/100, (p.units-sent)/20)), x.limit, p.units-sent)
		if room >= some-tiny || room >= tiny && x.bound < t-tiny {
			continue
		}
		if grows > 0 { // units are whole, and of many, some go together
			ends = min(ends, t+max(tiny, some-room)/grows)
		}
		x.bound, stands = ends, max(stands, ends)
	}
	if stands > 0 {
		return 0, stands, false
	}
	for i, x := range p.windows {
		if x.even && slope*x.window.Span.Seconds() > x.limit {
			allow, next := x.evenly(p, t, sent, lines[i].room)
			if allow-sent < tiny {
				return 0, next, false
			}
			until = min(until, t+(allow-sent)/slope)
		}
		if x.window.Algorithm == delivery.AlgorithmFixed {
			if math.IsInf(x.reset, 1) && slope > 0 {
				x.reset = t + x.span
			}
			until = min(until, x.reset)
		}
		l := lines[i]
		hit := math.Inf(1)
		if slope > l.slope {
			hit = t + l.room/(slope-l.slope)
		}
		if hit > l.until && slope > 0 { // not before what is sent comes to what there is room for at the end of the line
			hit = t + (l.room+l.slope*(l.until-t))/slope
		}
		until = min(until, hit)
	}
	return slope, until, false
}

func seconds(s float64) time.Duration { return time.Duration(min(s, 2*longest) * float64(time.Second)) }
