// Package discard is the sink that accepts every job at once and does nothing with it. With a record file it shows
// the shape of a campaign's stream without a network.
package discard

import (
	"context"
	"log/slog"

	"github.com/pacer/pacer/internal/delivery"
)

// Config configures a discard sink.
type Config struct {
	MaxInFlight int    `koanf:"max_in_flight"`
	Record      string `koanf:"record"` // file that gets a line per job; "" for none
}

// Default is the configuration of a discard sink that says nothing but its type.
func Default() *Config { return &Config{MaxInFlight: 1024} }

// Problems lists what is wrong with the configuration: one line each, beginning with the key. Every value will do.
func (c *Config) Problems() []string { return nil }

// InFlight is how many deliveries may be in flight at once.
func (c *Config) InFlight() int { return c.MaxInFlight }

// LogValue implements slog.LogValuer.
func (c *Config) LogValue() slog.Value {
	return slog.GroupValue(slog.Int("max_in_flight", c.MaxInFlight), slog.String("record", c.Record))
}

// Sink accepts every job. The zero Sink is ready for use, by many goroutines at once.
type Sink struct{}

// Deliver returns at once: delivered.
func (Sink) Deliver(context.Context, *delivery.Job) delivery.Result {
	return delivery.Result{Class: delivery.Delivered}
}
