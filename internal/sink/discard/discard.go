// Package discard is the sink that accepts every job at once and does nothing with it. With a record file it shows the
// shape of a campaign's stream without a network.
package discard

import (
	"context"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/record"
)

// Config configures a discard sink.
type Config struct{ record.Config }

// Default returns the default configuration of a discard sink.
func Default() *Config { return &Config{record.Default()} }

// Sink accepts every job. The zero Sink is ready to use, and safe for concurrent use.
type Sink struct{}

// Deliver returns Delivered at once.
func (Sink) Deliver(context.Context, *delivery.Job) delivery.Result {
	return delivery.Result{Class: delivery.Delivered}
}
