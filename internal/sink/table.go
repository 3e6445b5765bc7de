package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
)

// Table is a sink that sends to rows of pacer.destinations.
type Table interface {
	// CheckRow returns what is wrong with a row, without connecting to it; ReachRow connects, and sends nothing.
	CheckRow(row *delivery.Destination) error
	ReachRow(ctx context.Context, row *delivery.Destination) error
}

// Tables are those of a configuration, by name.
type Tables map[string]Table

// Add adds a sink, if it sends to rows.
func (t Tables) Add(name string, cfg Config, opened Sink) {
	if by, ok := opened.(Table); ok && cfg.Entry().Destinations {
		t[name] = by
	}
}

// For returns the name of the sink that sends to a row: the one that it names, or else the first that it fits. The error is why nothing is sent to
// it; the name is then that of the first that could.
func (t Tables) For(row *delivery.Destination) (string, error) {
	names := slices.Sorted(maps.Keys(t))
	if len(names) == 0 {
		return "", errors.New("no sink of this configuration has destinations: true")
	}
	if row.Sink != "" {
		if t[row.Sink] == nil {
			return row.Sink, fmt.Errorf("its sink %s is not configured with destinations: true; use %s", row.Sink, strings.Join(names, " or "))
		}
		names = []string{row.Sink}
	}
	var first error
	for _, name := range names {
		err := t[name].CheckRow(row)
		if err == nil {
			return name, nil
		}
		first = cmp.Or(first, err)
	}
	return names[0], first
}
