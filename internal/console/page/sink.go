package page

import (
	"context"
	"net/url"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

func fillSinks(ctx context.Context, s *Site, _ url.Values, c *content) {
	c.Title = "Sinks"
	c.Data = struct {
		Sinks []*view.Sink
		Open  bool // gates can be opened
		Shut  *view.Shut
	}{s.watcher.Sinks(ctx, c.State, view.ListedOfSink), c.Who.Role >= auth.Operator && s.watcher.Sources().Open != nil, new(s.watcher.Shut(ctx))}
}

// openSink opens the gate of a sink, or of one of its destinations, as pacer sink open does.
func openSink(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	open := s.watcher.Sources().Open
	if open == nil {
		return "", nil, view.Fault(catalog.ErrForbidden, "Gates cannot be opened here.")
	}
	closed, err := open(ctx, form.Get("id"), form.Get("destination"))
	if err != nil {
		return "", nil, err
	}
	if !closed {
		return "sinks?done=open", nil, nil
	}
	return "sinks?done=opened", nil, nil
}
