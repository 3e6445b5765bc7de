package top

import (
	"context"
	"time"
)

const askWithin = 10 * time.Second

// Watch asks for frames periodically.
type Watch struct {
	Interval time.Duration // between two of them
	Query    Query
	Fetch    func(ctx context.Context) (*Frame, error) // with all campaigns
}

// Ask asks for a frame.
func (w *Watch) Ask(ctx context.Context) (*Frame, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return w.Fetch(ctx)
}
