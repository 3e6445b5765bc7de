package sink

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/pacer/pacer/internal/sink/discard"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/log"
	"github.com/pacer/pacer/internal/sink/record"
)

// Config is the configuration of one sink: *http.Config, *log.Config or *discard.Config. The `yaml` tags of its fields
// are their keys, and `secret` tags mark values that must never be shown.
type Config interface {
	// Problems returns the errors in the configuration, one line each, beginning with the key.
	Problems() []string
	// InFlight returns max_in_flight.
	InFlight() int
}

var kinds = map[string]func() Config{
	"http":    func() Config { return http.Default() },
	"log":     func() Config { return log.Default() },
	"discard": func() Config { return discard.Default() },
}

// Kinds returns the types that a sink may have.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// NewConfig returns the default configuration of a sink of the given type; ok is false for an unknown one.
func NewConfig(kind string) (cfg Config, ok bool) {
	f, ok := kinds[kind]
	if !ok {
		return nil, false
	}
	return f(), true
}

// KindOf returns the type of the sink that cfg configures.
func KindOf(cfg Config) string {
	switch cfg.(type) {
	case *http.Config:
		return "http"
	case *log.Config:
		return "log"
	case *discard.Config:
		return "discard"
	}
	return fmt.Sprintf("%T", cfg)
}

// maxInFlight bounds max_in_flight: each delivery in flight takes a goroutine, and for http a connection.
const maxInFlight = 65_536

// Problems returns the errors in the configuration of one sink, one line each, beginning with the key.
func Problems(cfg Config) []string {
	p := cfg.Problems()
	if n := cfg.InFlight(); n < 1 || n > maxInFlight {
		p = append(p, fmt.Sprintf("max_in_flight: %d is out of range; use a number between 1 and %d", n, maxInFlight))
	}
	return p
}

// Host is what the daemon provides to its sinks.
type Host struct {
	Version string // of pacer
	Logger  *slog.Logger
}

// Open makes the sink that cfg describes. It reads the files that cfg names, and opens no connection.
func Open(cfg Config, host Host) (Entry, error) {
	if p := Problems(cfg); len(p) > 0 {
		return Entry{}, errors.New(p[0])
	}
	e := Entry{MaxInFlight: cfg.InFlight()}
	switch c := cfg.(type) {
	case *http.Config:
		s, err := http.New(http.Options{Config: *c, Version: host.Version, Logger: host.Logger})
		if err != nil {
			return Entry{}, err
		}
		e.Sink, e.Timeout, e.MaxRetryAfter = s, c.Timeout, c.MaxRetryAfter
	case *log.Config:
		e.Sink = recorded(c.Record, log.New(host.Logger), host.Logger)
	case *discard.Config:
		e.Sink = recorded(c.Record, discard.Sink{}, host.Logger)
	default:
		return Entry{}, fmt.Errorf("type: no sink is made from a %T", cfg)
	}
	return e, nil
}

// OpenAll opens every sink of the configuration, by name. The error names the sink's key.
func OpenAll(configs map[string]Config, host Host) (map[string]Entry, error) {
	entries := make(map[string]Entry, len(configs))
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		e, err := Open(configs[name], host)
		if err != nil {
			return nil, fmt.Errorf("sinks.%s.%w", name, err)
		}
		entries[name] = e
	}
	return entries, nil
}

func recorded(path string, s Sink, logger *slog.Logger) Sink {
	if path == "" {
		return s
	}
	return record.New(path, s, logger)
}
