package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// TableSink is a sink that sends to rows of pacer.destinations.
type TableSink interface {
	// CheckRow returns what is wrong with a row, without connecting to it; ReachRow connects, and sends nothing.
	CheckRow(row *delivery.Destination) error
	ReachRow(ctx context.Context, row *delivery.Destination) error
}

// TableSinks are those of a configuration, by name.
type TableSinks map[string]TableSink

// Add adds the sink of an entry, if it is one.
func (t TableSinks) Add(name string, cfg sink.Config, opened sink.Sink) {
	if h, ok := cfg.(*sinkhttp.Config); ok && h.Destinations {
		if by, ok := opened.(TableSink); ok {
			t[name] = by
		}
	}
}

// For returns the sink that a row is sent to with. A row that names none has to fit one of them. The error is why nothing is sent to it.
func (t TableSinks) For(row *delivery.Destination) (TableSink, error) {
	names := slices.Sorted(maps.Keys(t))
	if len(names) == 0 {
		return nil, errors.New("no sink of this configuration has destinations: true")
	}
	if row.Sink != "" {
		by, ok := t[row.Sink]
		if !ok {
			return nil, fmt.Errorf("its sink %s is not configured with destinations: true; use %s", row.Sink, strings.Join(names, " or "))
		}
		return by, by.CheckRow(row)
	}
	var first error
	for _, name := range names {
		err := t[name].CheckRow(row)
		if err == nil {
			return t[name], nil
		}
		if first == nil {
			first = err
		}
	}
	return nil, first
}

// DestinationFault returns why nothing is sent to a destination, as far as this process's configuration, files and variables say; "" if that
// is not known, as where no sink is configured. What a disabled one needs may be on its way.
func (s *Services) DestinationFault(row *delivery.Destination) string {
	if row.Disabled() || len(s.Config.Sinks) == 0 || s.Config.Fault(config.NeedSinks) != nil {
		return ""
	}
	tables := TableSinks{}
	for name, cfg := range s.Config.Sinks {
		if h, ok := cfg.(*sinkhttp.Config); !ok || !h.Destinations {
			continue
		}
		entry, err := sink.Open(cfg, sink.Host{Version: Version, Logger: s.Log})
		if err != nil {
			return "" // that is no fault of the row's
		}
		tables.Add(name, cfg, entry.Sink)
		defer func() { _ = entry.Sink.Close() }() // it has opened no connection
	}
	if _, err := tables.For(row); err != nil {
		return err.Error()
	}
	return ""
}
