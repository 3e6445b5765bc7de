package app

import (
	"context"
	"fmt"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/sink"
)

// RunDaemon is `pacer run`. It returns nil after a graceful stop.
func RunDaemon(ctx context.Context, in Invocation) error {
	s, err := in.services(NeedTopics, NeedRedis, NeedPostgres, NeedSinks)
	if err != nil {
		return err
	}
	defer s.close()
	parts, err := s.parts()
	if err != nil {
		return err
	}
	defer func() { _ = parts.Redis.Close() }() // nothing is written on closing
	d, err := NewDaemon(parts)
	if err != nil {
		return UsageError{err}
	}
	limitMemory(int64(s.config.Pacing.MaxBufferBytes))
	s.log.Info("pacer starts", "version", Version)
	if err := d.Run(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	s.log.Info("pacer has ended; nothing is in flight")
	return nil
}

// limitMemory tells the garbage collector what the process may use: twice the buffer, for the jobs' bytes and what
// surrounds them, and a floor for everything else. GOMEMLIMIT in the environment wins.
func limitMemory(buffer int64) {
	if debug.SetMemoryLimit(-1) != unlimited {
		return
	}
	debug.SetMemoryLimit(2*buffer + memoryFloor)
}

const (
	unlimited   = 1<<63 - 1
	memoryFloor = 64 << 20
)

// parts puts together what a daemon of this configuration is made of.
func (s *services) parts() (Parts, error) {
	cfg := s.config
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	c, err := catalog.NewPostgres(catalog.Options{
		DSN: s.dsn, Logger: s.log, Registerer: registry, LanesTopic: requeue.LaneTopic(cfg.Kafka.TopicPrefix),
	})
	if err != nil {
		return Parts{}, UsageError{err}
	}
	sinks, err := sink.OpenAll(cfg.Sinks, sink.Host{Version: Version, Logger: s.log})
	if err != nil {
		return Parts{}, UsageError{err}
	}
	shards, err := s.shards()
	if err != nil {
		return Parts{}, err
	}
	eventual, err := s.eventual()
	if err != nil {
		return Parts{}, err
	}
	return Parts{
		Brokers: cfg.Kafka.Brokers, Transport: s.transport, Dialer: s.dialer, Group: cfg.Kafka.Group, Topics: s.topics,
		Redis: shards, KeyPrefix: cfg.Redis.KeyPrefix, Ledger: c, Eventual: eventual, Catalog: c, Sinks: sinks,
		DefaultSink: cfg.DefaultSink,
		Dedupe:      Dedupe{TTL: cfg.Dedupe.TTL, Open: cfg.Dedupe.OnStoreFailure == delivery.PolicyOpen},
		Pacing: Pacing{
			MinQuantum: cfg.Pacing.MinQuantum, MaxQuantum: cfg.Pacing.MaxQuantum, LateTolerance: cfg.Pacing.LateTolerance,
			MaxOpenAge: cfg.Pacing.MaxOpenAge, ItemsPerSecond: cfg.Pacing.ItemsPerSecond,
			UnknownGrace: cfg.UnknownGrace, MaxWeight: cfg.MaxWeight,
			Retry: pacer.Retry{
				MaxAttempts: cfg.Retry.MaxAttempts, Initial: cfg.Retry.Initial, Max: cfg.Retry.Max, Jitter: cfg.Retry.Jitter,
			},
		},
		MaxBufferBytes: int64(cfg.Pacing.MaxBufferBytes), ShutdownTimeout: cfg.ShutdownTimeout, Listen: cfg.HTTP.Listen,
		Logger: s.log, Registry: registry,
	}, nil
}
