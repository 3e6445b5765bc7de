package view

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/notation"
)

// historyFor is how old a history may be of a page that is watched: jobs are added to it every ten seconds. One of longer steps, which the
// database reads longer, may be a tenth of a step old.
const historyFor = 5 * time.Second

// historyKept is how old a history may be that is shown until a new one is there, and historyWithin bounds reading it: thousands of campaigns
// that always send have some million rows a day.
const historyKept, historyWithin = 10 * time.Minute, 5 * time.Second

// CurveSpans are how far back a curve may go, and CurveSteps how much time each of its steps covers: the stream sends all of them each second.
var (
	CurveSpans = []string{"1h", "24h", "7d"}
	CurveSteps = map[string]time.Duration{"1h": time.Minute, "24h": 20 * time.Minute, "7d": 2 * time.Hour}
)

// Point is a campaign in one step of its history.
type Point struct {
	At        time.Time `json:"at" doc:"when the step begins"`
	Seconds   float64   `json:"seconds" doc:"how long it is"`
	Delivered int64     `json:"delivered" doc:"jobs"`
	Failed    int64     `json:"failed" doc:"jobs that became dead or were rejected"`
	Allowed   float64   `json:"allowed" doc:"jobs per second that its schedule allowed"`
}

// Past is what became of the jobs of a campaign.
type Past struct {
	Since  time.Time `json:"since" doc:"how far back it goes"`
	Points []Point   `json:"points" doc:"steps in which jobs were settled, the oldest first: minutes, or of more than a day hours"`
}

// Curve is what became of jobs lately, of one campaign, or of all by campaign.
type Curve struct {
	At           time.Time // when it was read
	Since, Until time.Time // whole steps; the last one is not over
	Step         time.Duration
	Steps        []catalog.HistoryStep // the oldest first
}

// Curve returns what became of jobs of a campaign lately, or of all with the largest apart.
func (l *Watcher) Curve(ctx context.Context, campaign, last string) (Curve, error) {
	step := CurveSteps[last]
	span, err := notation.ParseSpan(last)
	if err != nil || step == 0 {
		return Curve{}, catalog.Fault(catalog.ErrInvalid, "last: it must be one of %s", strings.Join(CurveSpans, ", "))
	}
	return cached(ctx, l.cache, question{kind: "history", about: last + " " + campaign, fresh: max(historyFor, step/10), within: historyWithin, keep: historyKept}, func(ctx context.Context) (Curve, error) {
		return l.curve(ctx, campaign, span, step)
	})
}

func (l *Watcher) curve(ctx context.Context, campaign string, span, step time.Duration) (c Curve, err error) {
	now := time.Now().UTC()
	c = Curve{At: now, Since: now.Add(-span).Truncate(step), Until: now.Truncate(step).Add(step), Step: step}
	c.Steps, err = l.sources.History(ctx, catalog.HistoryOf{Campaign: campaign, Since: c.Since, Step: step})
	return c, err
}

// Past returns the history of a campaign, as far back as is asked for and kept.
func (l *Watcher) Past(ctx context.Context, campaign string, last time.Duration) (*Past, error) {
	span, step := min(last, catalog.HistoryKept), time.Minute
	if span > notation.Day {
		step = time.Hour
	}
	ctx, cancel := context.WithTimeout(ctx, l.within())
	defer cancel()
	c, err := l.curve(ctx, campaign, span, step)
	if err != nil {
		return nil, catalog.Fault(catalog.ErrUnreachable, "the history is not known: %s", err)
	}
	p := &Past{Since: c.Since, Points: make([]Point, 0, len(c.Steps))}
	for _, s := range c.Steps {
		p.Points = append(p.Points, Point{s.Start, step.Seconds(), s.Delivered, s.Failed, s.Allowed})
	}
	return p, nil
}

// Seconds returns how long a step lasts, or has lasted so far.
func (c *Curve) Seconds(start time.Time) float64 {
	return max(time.Minute, min(c.Step, c.At.Sub(start))).Seconds()
}

// Pace is how fast a campaign goes now, in jobs per second.
type Pace struct{ Sent, Allowed float64 }

// Paces returns how fast campaigns go that send something: all, or one.
func (s *State) Paces(only string) map[string]Pace {
	paces := map[string]Pace{}
	for _, c := range s.Campaigns {
		if c.Sent == nil || *c.Sent <= 0 || only != "" && c.ID != only {
			continue
		}
		if c.Held != nil && hold.Cause(c.Held.Cause).Destination() { // what it sends is tried, and not delivered
			continue
		}
		weight := max(1, c.weight)
		paces[c.ID] = Pace{*c.Sent / weight, c.Allowed / weight}
	}
	return paces
}

// Largest returns the campaigns that the curve has apart, those that sent most first, and whether it has others.
func (c *Curve) Largest() (ids []string, others bool) {
	totals := map[string]int64{}
	for _, s := range c.Steps {
		totals[s.Campaign] += s.Delivered + s.Failed
	}
	for id := range totals {
		if id != "" {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b string) int { return cmp.Or(cmp.Compare(totals[b], totals[a]), cmp.Compare(a, b)) })
	_, others = totals[""]
	return ids, others
}

// Allowed returns the units per second that the schedule of a campaign allows.
func Allowed(c *delivery.Campaign, now time.Time) float64 {
	if c.Status != delivery.StatusActive || c.Invalid != "" || !c.Active(now) || c.Ended(now) {
		return 0
	}
	rate, _, _ := c.RateAt(now)
	return rate.PerSecond()
}
