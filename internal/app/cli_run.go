package app

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/sink"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
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
	go followMemory(ctx, int64(s.config.Pacing.MaxBufferBytes), parts.Catalog.Snapshot, parts.Catalog.Subscribe())
	s.log.Info("pacer starts", "version", Version)
	if err := d.RunToEnd(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	s.log.Info("pacer has ended; nothing is in flight")
	return nil
}

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
		Watchdog: cfg.Watchdog, SinkTimeout: longestTimeout(cfg.Sinks),
		Logger: s.log, Registry: registry,
	}, nil
}

// longestTimeout is the longest that a request to one of the sinks may take.
func longestTimeout(sinks map[string]sink.Config) (longest time.Duration) {
	for _, c := range sinks {
		if h, ok := c.(*sinkhttp.Config); ok {
			longest = max(longest, h.Timeout)
		}
	}
	return longest
}
