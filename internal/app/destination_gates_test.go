package app

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"testing"

	"github.com/pacer/pacer/internal/delivery"
)

// TestGatesOfDestinationsAreReadOn: each change is passed on once, page by page, and from where a read failed.
func TestGatesOfDestinationsAreReadOn(t *testing.T) {
	var seen []string
	var asked []int64
	pages := []struct {
		names []string
		next  int64
		more  bool
		err   error
	}{{[]string{"a", "b"}, 7, true, nil}, {[]string{"c"}, 9, false, nil}, {nil, 0, false, errors.New("down")}, {[]string{"d"}, 12, false, nil}}
	g := &destinationGates{log: slog.New(slog.DiscardHandler), see: func(gates []delivery.DestinationGate) {
		for _, g := range gates {
			seen = append(seen, g.Destination)
		}
	}, read: func(_ context.Context, after int64) (gates []delivery.DestinationGate, next int64, more bool, err error) {
		page := pages[len(asked)]
		asked = append(asked, after)
		for _, name := range page.names {
			gates = append(gates, delivery.DestinationGate{Destination: name})
		}
		return gates, page.next, page.more, page.err
	}}
	for range 3 {
		g.update(t.Context())
	}
	if !slices.Equal(seen, []string{"a", "b", "c", "d"}) || !slices.Equal(asked, []int64{0, 7, 9, 9}) {
		t.Errorf("%q, from %d", seen, asked)
	}
}
