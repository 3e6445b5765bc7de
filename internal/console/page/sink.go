package page

import (
	"context"
	"net/url"

	"github.com/pacer/pacer/internal/console/view"
)

func fillSinks(ctx context.Context, s *Site, _ url.Values, c *content) {
	c.Title = "Sinks"
	c.Data = struct {
		Sinks []*view.Sink
		Shut  *view.Shut
	}{s.watcher.Sinks(ctx, c.State, view.ListedOfSink), new(s.watcher.Shut(ctx))}
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
