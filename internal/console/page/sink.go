package page

import (
	"context"
	"net/url"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

func fillSinks(ctx context.Context, s *Site, _ url.Values, c *content) {
	c.Title = "Sinks"
	c.Data = struct {
		Sinks []*view.Sink
		Known func(id string) *delivery.Destination
	}{s.watcher.Sinks(ctx, c.State, view.ListedOfSink), s.watcher.Sources().Snapshot().Destination}
}

// openSink opens the gate of a sink, or of one of its destinations, as pacer sink open does.
func openSink(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	closed, err := s.watcher.Sources().Open(ctx, form.Get("id"), form.Get("destination"))
	if err != nil {
		return "", nil, err
	}
	if !closed {
		return "sinks?done=open", nil, nil
	}
	return "sinks?done=opened", nil, nil
}
