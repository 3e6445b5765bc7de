package progress

import (
	"math"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// Plan is how fast a campaign goes, and when it will be done.
type Plan struct {
	Jobs     int64      `json:"jobs" doc:"that are left: those that wait, and with expected_total those still to come"`
	SendRate float64    `json:"send_rate" doc:"units per second, at most"`
	FinishBy *time.Time `json:"finish_by,omitempty"`
	Needed   *float64   `json:"rate_needed,omitempty" doc:"units per second that spread what is left until finish_by, at most send_rate; absent without one that is ahead"`
	Quotas   []Leaves   `json:"quotas" doc:"those that bind the campaign"`
	DoneAt   *time.Time `json:"done_at,omitempty" doc:"absent if it is not known"`
	Late     *Late      `json:"late,omitempty" doc:"by how much it misses finish_by; absent if it does not"`
}

// Leaves is what a quota leaves to a campaign beside the others.
type Leaves struct {
	Quota     string  `json:"quota"`
	PerSecond float64 `json:"per_second" doc:"units, over long"`
}

// NewPlan plans one of the campaigns. left returns what each has still to send.
func NewPlan(now time.Time, id string, all map[string]*delivery.Campaign, left func(*delivery.Campaign) Todo, windows []delivery.WindowState) *Plan {
	c, waiting := *all[id], map[*delivery.Campaign]Todo{}
	for _, other := range all {
		if todo := left(other); todo.Jobs > 0 && other.ID != id {
			waiting[other] = todo
		}
	}
	own, free := left(&c), c.WithoutFinish()
	waiting[free] = own
	f := newForecast(now, waiting, windows)
	p := &Plan{Jobs: int64(own.Jobs), SendRate: c.Rate.PerSecond(), Quotas: []Leaves{}}
	at, ok := f.done(free, own)
	if !c.FinishBy.IsZero() {
		p.FinishBy = &c.FinishBy
		if own.Jobs > 0 && c.Status == delivery.StatusActive && c.Invalid == "" {
			p.Late = f.late(free, own, c.FinishBy)
		}
	}
	if now.Before(c.FinishBy) && own.Jobs > 0 {
		by := goal(c.FinishBy, now)
		needed, _ := c.Needed(now, by, own.units())
		if p.Needed = &needed; at.Before(by) {
			at = by
		}
	}
	if ok {
		p.DoneAt = &at
	}
	for _, q := range c.Quotas {
		if !binds(q) || len(q.Windows) == 0 {
			continue
		}
		leaves := Leaves{q.ID, math.MaxFloat64}
		for i, w := range q.Windows {
			leaves.PerSecond = min(leaves.PerSecond, f.part(q, free, i)*sustained(w))
		}
		p.Quotas = append(p.Quotas, leaves)
	}
	return p
}
