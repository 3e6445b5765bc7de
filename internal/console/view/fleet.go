package view

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/progress"
)

// HostOf returns the host and the address of a daemon, by which people know it; its name if it is not known.
func (s *State) HostOf(name string) string {
	for _, d := range s.Daemons {
		if d.Name == name {
			return strings.TrimSpace(d.Host + " " + d.Address)
		}
	}
	return name
}

// ReadFleet reads what the daemons have exchanged.
func ReadFleet(ctx context.Context, exchange *progress.RedisExchange) (*Fleet, error) {
	b, err := progress.ReadBoard(ctx, exchange)
	if err != nil {
		return nil, err
	}
	f := &Fleet{
		At: b.At, Counter: b.Counter, Sent: b.Sent, Of: b.Of, Failure: b.Failure, Daemons: []progress.Daemon{}, Keys: b.Keys,
		LateCapacity: b.Late.Capacity(), LateDestination: b.Late.Destination, Sinks: map[string]*SinkFigures{}, Destinations: map[string][]DestinationFigures{},
	}
	for i := range b.Sinks {
		if s := &b.Sinks[i]; s.Of == "" {
			f.Sinks[s.Sink] = sinkFigures(s)
		} else {
			f.Destinations[s.Of] = append(f.Destinations[s.Of], DestinationFigures{s.Sink, sinkFigures(s)})
		}
	}
	for _, n := range b.Nodes {
		n.Started, n.Figures.Sinks = n.Started.UTC(), append([]progress.SinkCalls{}, n.Figures.Sinks...)
		f.Daemons = append(f.Daemons, n)
	}
	slices.SortFunc(f.Daemons, func(a, b progress.Daemon) int {
		return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Name, b.Name))
	})
	return f, nil
}

// keys returns how a keyed quota lets jobs wait; nil if it lets none, or if it is not known.
func (f *Fleet) keys(quota string) *delivery.KeyWaits {
	if f == nil {
		return nil
	}
	for i := range f.Keys {
		if f.Keys[i].Quota == quota {
			return new(f.Keys[i])
		}
	}
	return nil
}

func sinkFigures(s *progress.SinkReport) *SinkFigures {
	f := &SinkFigures{Daemons: s.Daemons, InFlight: s.InFlight, MaxInFlight: s.Most, Answers: map[string]float64{}}
	for class, perSecond := range s.Answers {
		if perSecond > 0 {
			f.Answers[delivery.ResultClass(class).String()] = perSecond
		}
	}
	if last := s.Failure; !last.At.IsZero() {
		f.LastFailure, f.LastFailureAt = last.Detail, instant(last.At)
	}
	if s.Took.Total() > 0 {
		f.P50, f.P99 = new(s.Took.Quantile(0.5).Seconds()), new(s.Took.Quantile(0.99).Seconds())
	}
	return f
}
