package view

import (
	"cmp"
	"context"
	"math"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

const (
	// paceOver is the time over which a quota's pace is measured.
	paceOver = 10 * time.Minute
	// outlookFor is how old an outlook may be: the ledger knows minutes.
	outlookFor = 10 * time.Second
	// keptAbove is the span above which the ledger keeps what was used of a quota.
	keptAbove = 2 * time.Minute
	// maxForeseen bounds the windows of a quota that are foreseen, and foreseenIn is in how many steps what they have counted is read.
	maxForeseen = 8
	foreseenIn  = 60
)

// Outlook is what will be left of a quota if it is used as in the last minutes.
type Outlook struct {
	Pace    float64           // units per second, of the last ten minutes
	Windows map[string]Future // by span; those that are not known are left out
}

// Future is what will be left of a window.
type Future struct {
	ExhaustedAt *time.Time // nil: never, at this pace
	Reset       bool       // not before it begins anew
}

// Outlook returns what will be left of a quota; nil where the ledger does not say what was used of it.
func (l *Watcher) Outlook(ctx context.Context, q *Quota) (*Outlook, error) {
	kept := slices.ContainsFunc(q.Windows, func(w Window) bool { return w.Seconds > keptAbove.Seconds() })
	if l.sources.Catalog == nil || q.Mode == delivery.ModeEventual || q.Rollout == 0 || !kept {
		return nil, nil //nolint:nilnil // there is none
	}
	return cached(ctx, l.cache, question{kind: "outlook", about: q.ID, fresh: outlookFor}, func(ctx context.Context) (*Outlook, error) { return l.outlook(ctx, q) })
}

func (l *Watcher) outlook(ctx context.Context, q *Quota) (*Outlook, error) {
	now := time.Now()
	lately, err := l.sources.Catalog.UsageHistory(ctx, q.ID, now.Add(-paceOver), now, time.Minute)
	if err != nil || len(lately) == 0 {
		return nil, err
	}
	units := int64(0)
	for _, step := range lately {
		units += step.Units
	}
	o := &Outlook{Pace: float64(units) / now.Sub(lately[0].Start).Seconds(), Windows: map[string]Future{}}
	for i := range q.Windows[:min(len(q.Windows), maxForeseen)] {
		w := &q.Windows[i]
		span, err := notation.ParseSpan(w.Span)
		if err != nil || w.Remaining == nil || span < keptAbove {
			continue
		}
		var counted []catalog.Usage
		if w.Algorithm != delivery.AlgorithmFixed {
			step := max(time.Minute, (span / foreseenIn).Round(time.Minute))
			if counted, err = l.sources.Catalog.UsageHistory(ctx, q.ID, now.Add(-span), now, step); err != nil {
				return nil, err
			}
		}
		o.Windows[w.Span] = Foresee(w, span, counted, o.Pace, now)
	}
	return o, nil
}

// Foresee returns what will be left of a window that is used at a pace, in units per second. A sliding window frees units in the order of
// their use. A fixed window frees all at its end.
func Foresee(w *Window, span time.Duration, counted []catalog.Usage, pace float64, now time.Time) Future {
	left := float64(*w.Remaining)
	at := func(seconds float64) Future {
		instant := now.Add(time.Duration(seconds * float64(time.Second))).UTC().Truncate(time.Second)
		return Future{ExhaustedAt: &instant}
	}
	if w.Algorithm == delivery.AlgorithmFixed {
		end := span.Seconds() // of one that begins with its first use
		if w.FullAt != nil {
			end = w.FullAt.Sub(now).Seconds()
		}
		if left > 0 && (pace <= 0 || left/pace >= end) {
			return Future{Reset: true}
		}
		return at(left / max(pace, math.SmallestNonzeroFloat64))
	}
	if left <= 0 {
		return at(0)
	}
	before := 0.0
	for _, step := range counted {
		from, to := step.Start.Add(span).Sub(now).Seconds(), step.End.Add(span).Sub(now).Seconds()
		if to <= before {
			continue
		}
		returned := float64(step.Units)
		if from < before { // a part of it has left
			returned *= (to - before) / (to - from)
		}
		after := left + returned - pace*(to-before)
		if after <= 0 {
			return at(before + (to-before)*left/(left-after))
		}
		left, before = after, to
	}
	return Future{}
}

// Share is what one campaign has of a quota.
type Share struct {
	Campaign *Campaign
	Part     float64 // by weight, of the campaigns that have something to send; 0 of others
	Asked    float64 // units per second that its schedule allows while it has something to send
}

// Shares are what campaigns have of a quota.
type Shares struct {
	List   []Share // those that have most, at most as many as were asked for
	Asking int     // campaigns that have something to send
	Asked  float64 // units per second that these may send by their schedules
	Got    float64 // units per second that are sent
}

// Shares returns what campaigns have of a quota: those first that get most, then those that ask for most.
func (s *State) Shares(id string, most int) Shares {
	var shares Shares
	weights := 0.0
	for _, c := range s.Campaigns {
		if !slices.Contains(c.Quotas, id) {
			continue
		}
		one := Share{Campaign: c}
		if sends := c.Sent != nil && *c.Sent > 0; sends || c.Backlog != nil && *c.Backlog > 0 && c.Allowed > 0 {
			one.Asked, one.Part = c.Allowed, float64(max(1, c.PriorityWeight))
			shares.Asking, shares.Asked, weights = shares.Asking+1, shares.Asked+c.Allowed, weights+one.Part
			if sends {
				shares.Got += *c.Sent
			}
		}
		shares.List = append(shares.List, one)
	}
	sent := func(one *Share) float64 {
		if one.Campaign.Sent == nil {
			return 0
		}
		return *one.Campaign.Sent
	}
	slices.SortStableFunc(shares.List, func(a, b Share) int { return cmp.Or(cmp.Compare(sent(&b), sent(&a)), cmp.Compare(b.Asked, a.Asked)) })
	shares.List = shares.List[:min(len(shares.List), most)]
	for i := range shares.List {
		shares.List[i].Part /= max(1, weights)
	}
	return shares
}
