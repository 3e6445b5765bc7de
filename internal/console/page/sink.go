package page

import (
	"context"
	"net/url"
	"slices"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

func fillSinks(ctx context.Context, s *Site, _ url.Values, c *content) {
	c.Title = "Sinks"
	data := struct {
		Sinks  []*view.Sink
		Open   bool // gates can be opened
		Untold bool // figures of some are not told
	}{Sinks: s.looker.Sinks(ctx, c.State), Open: c.Who.Role >= auth.Operator && s.looker.Sources().Open != nil}
	data.Untold = slices.ContainsFunc(data.Sinks, func(s *view.Sink) bool { return s.Figures == nil })
	c.Data = data
}

// openSink opens the gate of a sink, or of one of its destinations, as pacer sink open does.
func openSink(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	open := s.looker.Sources().Open
	if open == nil {
		return "", nil, view.Fault(view.ErrForbidden, "Gates cannot be opened here.")
	}
	closed, err := open(ctx, actor(ctx, form), form.Get("id"), form.Get("destination"))
	if err != nil {
		return "", nil, err
	}
	if !closed {
		return "sinks?done=open", nil, nil
	}
	return "sinks?done=opened", nil, nil
}
