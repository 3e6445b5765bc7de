package app

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink"
)

// Version is set by the linker; "dev" in a binary built without it.
var Version = "dev"

// showBuild exports the version.
func showBuild(r prometheus.Registerer) {
	promauto.With(r).NewGauge(prometheus.GaugeOpts{
		Name: "pacer_build_info", Help: "1; the version is in the label.", ConstLabels: prometheus.Labels{"version": Version},
	}).Set(1)
}

// showThrottle exports how long the brokers have throttled the daemon.
func showThrottle(r prometheus.Registerer, kafka *broker.Client) {
	for kind, name := range broker.Kinds {
		promauto.With(r).NewCounterFunc(prometheus.CounterOpts{
			Name: "pacer_kafka_throttle_seconds", ConstLabels: prometheus.Labels{"request": name},
			Help: "Time for which brokers told this daemon to send no requests of a kind, since a client quota was exceeded.",
		}, func() float64 { return kafka.Throttled(kind).Seconds() })
	}
}

// RunDaemon runs the daemon that the configuration describes. It returns nil after a graceful stop. Certificates and
// secrets are read again after a hangup.
func (s *Services) RunDaemon(ctx context.Context, hangup <-chan os.Signal) error {
	parts, err := s.parts(prometheus.NewRegistry())
	if err != nil {
		return err
	}
	defer func() { _ = parts.Redis.Close() }() // nothing is written on closing
	d, err := NewDaemon(parts)
	if err != nil {
		return config.UsageError{Err: err}
	}
	go followMemory(ctx, int64(s.Config.Pacing.MaxBufferBytes), d.size)
	go s.followAccess(ctx, hangup, d.sinks.Reread)
	s.Log.Info("pacer starts", "version", Version)
	if err := d.RunToEnd(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	s.Log.Info("pacer has ended; nothing is in flight")
	return nil
}

// parts makes the parts of a daemon from the configuration, with its metrics in the registry.
func (s *Services) parts(registry Registry) (Parts, error) {
	cfg := s.Config
	registry.MustRegister(
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), s.keeper.expiry,
	)
	if _, err := s.access(); err != nil {
		return Parts{}, err
	}
	c, err := catalog.NewPostgres(catalog.Options{
		DSN: s.DSN(), Renewal: s.renewal(), Logger: s.Log, Registerer: registry,
		HasSink: func(name string) bool { _, ok := cfg.Sinks[cmp.Or(name, cfg.DefaultSink)]; return ok },
	})
	if err != nil {
		return Parts{}, config.UsageError{Err: err}
	}
	sinks, err := sink.OpenAll(cfg.Sinks, sink.Host{
		Version: Version, Logger: s.Log, Writer: recordWriter{s.Kafka},
		Endpoints: func(id string) *delivery.Destination { return c.Snapshot().Destination(id) },
	})
	if err != nil {
		return Parts{}, config.UsageError{Err: err}
	}
	shards, err := s.Shards()
	if err != nil {
		return Parts{}, err
	}
	roots, err := s.Roots()
	if err != nil {
		return Parts{}, err
	}
	return Parts{Services: s, Redis: shards, Roots: roots.Masters(), Ledger: c, Catalog: c, Sinks: sinks, Registry: registry}, nil
}
