// Package log is the sink that writes one line to the daemon's log for each job. The line gives the payload's size,
// never the payload: what is delivered may be personal.
package log

import (
	"context"
	"log/slog"

	"github.com/pacer/pacer/internal/delivery"
)

// Config configures a log sink.
type Config struct {
	MaxInFlight int    `koanf:"max_in_flight"`
	Record      string `koanf:"record"` // file that gets a line per job; "" for none
}

// Default is the configuration of a log sink that says nothing but its type.
func Default() *Config { return &Config{MaxInFlight: 1024} }

// Problems lists what is wrong with the configuration: one line each, beginning with the key. Every value will do.
func (c *Config) Problems() []string { return nil }

// InFlight is how many deliveries may be in flight at once.
func (c *Config) InFlight() int { return c.MaxInFlight }

// LogValue implements slog.LogValuer.
func (c *Config) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("max_in_flight", c.MaxInFlight), slog.String("record", c.Record))
}

// Sink writes jobs to a logger; it is as safe for concurrent use as the logger's handler.
type Sink struct{ log *slog.Logger }

// New makes a Sink that writes to logger at level Info.
func New(logger *slog.Logger) *Sink { return &Sink{log: logger} }

// Deliver writes the job's line: delivered. The attempt is this one, from 1 on; job.Attempt counts those before it.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job) delivery.Result {
	s.log.LogAttrs(ctx, slog.LevelInfo, "job delivered to the log",
		slog.String("campaign", job.Campaign), slog.String("job", job.ID), slog.Int64("weight", job.Weight),
		slog.Int("attempt", job.Attempt+1), slog.String("content_type", job.ContentType), slog.Int("bytes", len(job.Payload)))
	return delivery.Result{Class: delivery.Delivered}
}
