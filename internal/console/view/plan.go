package view

import (
	"maps"
	"slices"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/progress"
)

// WhatIf is what a plan assumes instead of what is set.
type WhatIf struct {
	Rate     string   `query:"rate" maxLength:"64" example:"150/m" doc:"plan with this send_rate"`
	FinishBy string   `query:"finish_by" maxLength:"64" example:"18:00" doc:"plan with this finish_by"`
	Pause    []string `query:"pause,explode" maxItems:"64" nullable:"false" doc:"plan as if these other campaigns were paused"`
}

// Plan plans a campaign of the state.
func (s *State) Plan(id string, what WhatIf) (*progress.Plan, error) {
	e, shown := s.known, s.Campaign(id)
	for _, one := range append([]string{id}, what.Pause...) {
		if s.Campaign(one) == nil {
			return nil, catalog.UnknownCampaign(one)
		}
	}
	if e.fleet == nil {
		return nil, catalog.Fault(catalog.ErrUnreachable, "how many jobs are left is not known: Redis does not answer")
	}
	c := *e.snapshot.Campaigns[id]
	if what.Rate != "" {
		var err error
		if c.Rate, err = ParseRate(what.Rate); err != nil {
			return nil, err
		}
	}
	if what.FinishBy != "" {
		at, err := notation.ParseTimeIn(what.FinishBy, notation.ZoneOrUTC(shown.TimeZone), s.At)
		if err != nil {
			return nil, catalog.Fault(catalog.ErrInvalid, "finish_by: %s", err)
		}
		if c.FinishBy = at; !at.After(e.now) {
			return nil, catalog.Fault(catalog.ErrInvalid, "finish_by: %s is not ahead; give a later time", notation.Shorten(what.FinishBy))
		}
	}
	all := maps.Clone(e.snapshot.Campaigns)
	all[id] = &c
	for _, other := range what.Pause {
		paused := *all[other]
		paused.Status = delivery.StatusPaused
		all[other] = &paused
	}
	return progress.NewPlan(e.now, id, all, e.left, slices.Concat(slices.Collect(maps.Values(e.windows))...)), nil
}

// ParseRate reads a rate such as 500 or 150/m.
func ParseRate(text string) (rate delivery.Rate, err error) {
	micros, per, err := notation.ParseRate(text)
	if err == nil {
		rate, err = delivery.NewRate(micros, per)
	}
	if err != nil {
		return rate, catalog.Fault(catalog.ErrInvalid, "rate: %s", err)
	}
	return rate, nil
}

// left returns what a campaign has still to send.
func (e *evidence) left(c *delivery.Campaign) progress.Todo {
	board, left := e.fleet.Of(c), int64(0)
	if row := e.rows[c.ID]; row != nil && c.ExpectedTotal > 0 {
		left = c.ExpectedTotal - row.Progress.Settled()
	}
	here := board.Backlog.Total()
	return progress.Todo{Jobs: float64(max(here, left)), Coming: here == 0, Weight: max(1, board.Weight), Due: board.Due}
}
