// Package log is the sink that writes one line to the daemon's log for each job. The line contains the payload's size,
// not the payload, which may be personal data.
package log

import (
	"context"
	"log/slog"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/record"
)

// Config configures a log sink.
type Config struct{ record.Config }

// Default returns the default configuration of a log sink.
func Default() *Config { return &Config{record.Default()} }

// Sink writes jobs to a logger. It is as safe for concurrent use as the logger's handler.
type Sink struct{ log *slog.Logger }

// New makes a Sink that writes to logger at level Info.
func New(logger *slog.Logger) *Sink { return &Sink{log: logger} }

// Deliver logs the job and returns Delivered. The logged attempt counts from 1; job.Attempt counts the attempts before
// it.
func (s *Sink) Deliver(ctx context.Context, job *delivery.Job) delivery.Result {
	s.log.LogAttrs(ctx, slog.LevelInfo, "job delivered to the log",
		slog.String("campaign", job.Campaign), slog.String("job", job.ID), slog.Int64("weight", job.Weight),
		slog.Int("attempt", job.Attempt+1), slog.String("content_type", job.ContentType), slog.Int("bytes", len(job.Payload)))
	return delivery.Result{Class: delivery.Delivered}
}
