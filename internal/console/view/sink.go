package view

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/hold"
)

// Sink is a sink that this process has configured, or that daemons tell of.
type Sink struct {
	Name        string `json:"name"`
	Type        string `json:"type" doc:"empty of one that only daemons have: it is not in the configuration of the process that answers"`
	MaxInFlight int    `json:"max_in_flight" doc:"of one daemon"`
	Default     bool   `json:"default"`
	Gates       []Gate `json:"gates" doc:"those that are closed"`
	Unknown     string `json:"unknown,omitempty" doc:"why it is not known which are closed"`
	Campaigns   int    `json:"campaigns" doc:"that use it"`
	Held        int    `json:"held" doc:"campaigns of these that send nothing because of it"`

	HeldCampaigns      []HeldCampaign      `json:"held_campaigns" doc:"of the held ones those that it fails or refuses alone, at most 20"`
	ClosedDestinations *int                `json:"closed_destinations,omitempty" doc:"destinations whose own gates are closed or half-open; absent while that is not known"`
	Destinations       []ClosedDestination `json:"destinations" doc:"of these at most as many as were asked for, those that were changed last first"`

	Figures *SinkFigures `json:"figures,omitempty" doc:"absent where no daemon has the sink"`
}

// Closed returns how many of its destinations are closed.
func (s *Sink) Closed() int { return orZero(s.ClosedDestinations) }

// SinkFigures are what all daemons tell of a sink together. Rates and quantiles are of the last minute, or since the daemons' start.
type SinkFigures struct {
	Daemons     int                `json:"daemons" doc:"that tell of it"`
	InFlight    int64              `json:"in_flight" doc:"jobs that it has not answered"`
	MaxInFlight int64              `json:"max_in_flight" doc:"of all these daemons together"`
	Answers     map[string]float64 `json:"answers_per_second" doc:"by class, without classes of which there was no answer within the last minute"`
	P50         *float64           `json:"p50_seconds,omitempty" doc:"time to answer, within an eighth; absent if nothing was answered within the last minute"`
	P99         *float64           `json:"p99_seconds,omitempty" doc:"likewise"`
	// LastFailure is of any of its jobs, and LastFailureAt when that was.
	LastFailure   string     `json:"last_failure,omitempty" doc:"what it answered last to a job that it did not take, of any campaign, or why it did not answer; absent if no daemon that runs has seen one"`
	LastFailureAt *time.Time `json:"last_failure_at,omitempty"`
}

// DestinationFigures are what daemons tell of a destination of a sink. Each daemon tells of the destinations that answer it most.
type DestinationFigures struct {
	Sink string
	*SinkFigures
}

// Answers returns what is told of a destination, by sink.
func (s *State) Answers(destination string) []DestinationFigures {
	if s.known == nil || s.known.fleet == nil {
		return nil
	}
	return s.known.fleet.Destinations[destination]
}

// LastAnswer returns the last answer of a destination that did not take its job; "" if it is not known.
func (s *State) LastAnswer(destination string) (last string) {
	for _, f := range s.Answers(destination) {
		last = cmp.Or(f.LastFailure, last)
	}
	return last
}

// Gate is a closed gate.
type Gate struct {
	Cause string     `json:"cause" enum:"throttled,failing,misconfigured"`
	Since *time.Time `json:"since,omitempty"`
	Until *time.Time `json:"until,omitempty" doc:"nothing is sent before; then one job is tried"`
}

// ClosedDestination is a destination of a sink whose own gate is closed or half-open.
type ClosedDestination struct {
	Destination string     `json:"destination"`
	Cause       string     `json:"cause" enum:"throttled,failing,misconfigured,refused"`
	Since       *time.Time `json:"since,omitempty"`
	Until       *time.Time `json:"until,omitempty" doc:"nothing is sent before; then one job is tried"`
}

// HeldCampaign is a campaign whose jobs alone a sink does not take: each daemon tries one of them a second.
type HeldCampaign struct {
	Campaign string     `json:"campaign"`
	Cause    string     `json:"cause" enum:"failing,refused"`
	Since    *time.Time `json:"since,omitempty"`
}

// ListedOfSink bounds each list of a sink, where more destinations are not asked for.
const ListedOfSink = 20

// sinks returns those of the configuration, and then those that only daemons tell of, in the order of their names.
func (l *Watcher) sinks(e *evidence) (list []*Sink) {
	told := map[string]*SinkFigures{}
	if e.fleet != nil {
		maps.Copy(told, e.fleet.Sinks)
	}
	for _, s := range l.sources.Sinks {
		s.Gates, s.Unknown = []Gate{}, e.ungated
		for _, g := range e.gates {
			if g.Sink == s.Name {
				s.Gates = append(s.Gates, Gate{Cause: g.Cause.String(), Since: instant(g.Since), Until: until(g.Until)})
			}
		}
		s.Figures = told[s.Name]
		delete(told, s.Name)
		list = append(list, &s)
	}
	for _, name := range slices.Sorted(maps.Keys(told)) {
		list = append(list, &Sink{Name: name, Gates: []Gate{}, Figures: told[name]})
	}
	return list
}

// Sinks returns the sinks of the state with what is known of each beside it: which of its destinations are closed, and which campaigns it
// holds alone. Each lists at most that many destinations.
func (l *Watcher) Sinks(ctx context.Context, s *State, destinations int) (list []*Sink) {
	closed, held := l.Closed(ctx), map[string][]HeldCampaign{}
	for _, c := range s.Campaigns {
		if c.Held != nil && (c.Held.Cause == string(hold.Failing) || c.Held.Cause == string(hold.Refused)) {
			held[c.Sink] = append(held[c.Sink], HeldCampaign{c.ID, c.Held.Cause, c.Held.Since})
		}
	}
	for _, known := range s.Sinks {
		one := *known
		one.Destinations = []ClosedDestination{}
		if shut := closed[one.Name]; closed != nil {
			one.ClosedDestinations = new(len(shut))
			for _, g := range shut[:min(len(shut), destinations)] {
				one.Destinations = append(one.Destinations, ClosedDestination{g.Destination, g.Cause.String(), instant(g.Since), until(g.Until)})
			}
		}
		one.HeldCampaigns = held[one.Name]
		slices.SortStableFunc(one.HeldCampaigns, func(a, b HeldCampaign) int { return orZero(b.Since).Compare(orZero(a.Since)) })
		one.HeldCampaigns = append([]HeldCampaign{}, one.HeldCampaigns[:min(len(one.HeldCampaigns), ListedOfSink)]...)
		list = append(list, &one)
	}
	return list
}
