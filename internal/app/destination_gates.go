package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/retry"
)

// maxPages bounds the replies about destinations that are read in one second.
const maxPages = 10

// destinationGates reads every second what became of the gates of destinations, and passes it on. While it cannot be read, this daemon
// goes by what it finds itself.
type destinationGates struct {
	read func(ctx context.Context, after int64) (gates []delivery.DestinationGate, next int64, more bool, err error)
	see  func([]delivery.DestinationGate)
	log  *slog.Logger

	after int64 // of the store's time
}

// Run reads the gates until ctx ends.
func (g *destinationGates) Run(ctx context.Context) error {
	g.update(ctx)
	retry.Every(ctx, gatesEvery, func(time.Time) { g.update(ctx) })
	return nil
}

func (g *destinationGates) update(ctx context.Context) {
	call, cancel := context.WithTimeout(ctx, gatesWithin)
	defer cancel()
	for range maxPages {
		gates, next, more, err := g.read(call, g.after)
		if err != nil {
			g.log.Debug("which destinations are closed is not known", "error", err)
			return
		}
		g.after = next
		g.see(gates)
		if !more {
			return
		}
	}
}
