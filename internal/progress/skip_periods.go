package progress

import (
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

const (
	// alike is how many periods of a window must be alike, to alikeTo, until more of them are passed over at once. Of what is sent in
	// them, one step of an evenly spent window is no more than stepTo.
	alike, alikeTo, stepTo = 4, 0.03, 0.03
	// Periods of few units are not alike, since units are whole: then it is looked for periods several times as long, of severalTo lengths.
	several, severalTo = 4, 3
	// triedEvery is after how many points it is looked for periods again.
	triedEvery = 8
)

// pass passes over periods that are alike, if there are many to come.
func (p *simulation) pass(t, sent float64) (float64, float64) {
	var lengths []float64
	for _, x := range p.windows {
		lengths = append(lengths, x.length())
	}
	for i, length := range lengths {
		for range severalTo {
			if t-p.since < alike*length {
				break
			}
			if p.passes(t, sent, length, p.next, p.windows[i].window.Span) {
				return p.curve.end()
			}
			length *= several
		}
	}
	if p.campaign.Hours == nil || t-p.paced < alike*week {
		return t, sent
	}
	changes := math.Inf(1)
	at := p.now.Add(seconds(t))
	if _, _, step := p.campaign.RateAt(at); !step.IsZero() {
		return t, sent
	}
	if !p.campaign.EndsAt.IsZero() {
		changes = p.campaign.EndsAt.Sub(p.now).Seconds()
	}
	p.passes(t, sent, week, changes, 7*24*time.Hour)
	return p.curve.end()
}

// passes passes over periods of a length, if the last ones were alike, until the schedule changes or a window longer than span
// may bind.
func (p *simulation) passes(t, sent, length, changes float64, span time.Duration) bool {
	by := p.curve.by
	if p.whole { // at the border of two periods, a unit that is under way belongs to the first
		by = p.curve.begun
	}
	each := (by(t) - by(t-alike*length)) / alike
	if each <= tiny {
		return false
	}
	for i := range alike {
		n := by(t-float64(i)*length) - by(t-float64(i+1)*length)
		if math.Abs(n-each) > each*alikeTo {
			return false
		}
	}
	most := min((p.units-sent)/each, (changes-t)/length)
	var spare []*windowState // fixed windows of which periods are passed over, too
	for _, x := range p.windows {
		if x.even && x.step > alike*each*stepTo {
			return false
		}
		if x.window.Span <= span {
			continue
		}
		if x.bound > t-alike*length {
			return false // they may have been alike because of it
		}
		if long := x.length(); !x.even && t > long && (2*long <= alike*length || each*(math.Ceil(long/length)+1) <= x.limit) {
			if x.window.Algorithm == delivery.AlgorithmFixed {
				spare = append(spare, x)
			}
			continue // it has room for what goes on like that, however long
		}
		room, _, _ := x.free(&p.curve, t)
		most = min(most, (room-sent)/each)
		if x.even && x.due > t+length {
			most = min(most, (x.allow-sent)/each)
		}
		if x.window.Algorithm == delivery.AlgorithmFixed {
			most = min(most, (x.reset-t)/length)
		}
	}
	n := math.Floor(most) - 1
	if n < alike {
		return false
	}
	units := n * each
	if p.whole {
		units = math.Round(units)
	}
	p.curve.insert(t-alike*length, n*length, units)
	for _, x := range p.windows {
		if x.due <= t+length {
			x.due += n * length
			x.allow += units
		}
		if slices.Contains(spare, x) {
			x.base += units
		}
		if x.window.Span <= span {
			x.move(&p.curve, p.now, n*length, units)
		}
	}
	return true
}
