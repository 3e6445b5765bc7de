package app

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/sink"
)

// consoleApplication is how the console calls itself at the database.
const consoleApplication = "pacer console"

// node describes this daemon to those who look at the fleet.
func (d *Daemon) node() progress.Node {
	host, _ := os.Hostname() // "" if it has none
	ok, why := d.Ready()
	if ok {
		why = d.Degraded()
	}
	node := progress.Node{Host: host, Address: d.parts.Config.HTTP.Listen, Version: Version, Ready: ok, State: why}
	if !d.consumer.Joined() { // until it has lost its partitions it sends what it has read
		node.KafkaAway = d.stores.KafkaAway()
	}
	return node
}

// newSite makes the daemon's console; nil if none is configured.
func (d *Daemon) newSite() (*console.Site, error) {
	if cfg := d.parts.Config; cfg.HTTP.Listen == "" || !cfg.HTTP.Console {
		return nil, nil
	}
	sources := d.parts.sources(d.parts.Redis)
	sources.Snapshot, sources.Refresh = d.parts.Catalog.Snapshot, d.parts.Catalog.Refresh
	sources.Degraded, sources.Gates = d.Degraded, d.closedGates
	sources.Windows = func(context.Context, []*delivery.Quota) ([]delivery.WindowState, error) {
		return d.windows.latest(), nil
	}
	sources.Claims = d.limits.Claims
	sources.Stores = func() []view.Store { return d.stores.list(d.parts.Catalog.Snapshot) }
	showGates(&sources, d.limits, d.log)
	if d.parts.DSN() != "" {
		var err error
		if d.console.admin, err = d.parts.admin(); err != nil {
			return nil, err
		}
		d.parts.addCatalog(&sources, d.console.admin, d.limits)
	}
	return d.parts.site(sources, d.parts.Registry), nil
}

// addCatalog lets the console read and change what the database has, and know the replays of other processes.
func (s *Services) addCatalog(sources *view.Sources, admin *catalog.Admin, engine *limits.Engine) {
	sources.Catalog, sources.Fault = admin, s.DestinationFault
	if engine != nil {
		sources.Adjust = adjuster(admin, engine)
	}
	if sources.Replays != nil {
		sources.Replays.Share(admin)
	}
}

func (s *Services) admin() (*catalog.Admin, error) {
	admin, err := catalog.NewAdminAs(s.DSN(), consoleApplication, s.renewal())
	if err != nil {
		return nil, config.UsageError{Err: err}
	}
	return admin, nil
}

func (s *Services) site(sources view.Sources, r prometheus.Registerer) *console.Site {
	return console.NewSite(console.SiteOptions{
		Sources: sources, BasePath: s.Config.HTTP.BasePath, Guard: s.guard(), TrustedOrigins: s.Config.HTTP.TrustedOrigins,
		Logger: s.Log, Registerer: r,
	})
}

// sources returns what every console has. set is nil where the store is not known.
func (s *Services) sources(set *shards.Set) view.Sources {
	sources := view.Sources{
		Version: Version,
		Sink: func(name string) (id, fault string) {
			id = cmp.Or(name, s.Config.DefaultSink)
			if _, ok := s.Config.Sinks[id]; !ok && len(s.Config.Sinks) > 0 {
				return "", hold.SinkFault(name)
			}
			return id, ""
		},
	}
	if set != nil {
		exchange := progress.NewRedisExchange(set.Master(0), s.Config.Redis.KeyPrefix)
		sources.Fleet = func(ctx context.Context) (*view.Fleet, error) {
			board, err := progress.ReadBoard(ctx, exchange)
			if err != nil {
				return nil, err
			}
			return view.FleetOf(board), nil
		}
		sources.Senders = func(ctx context.Context, c *delivery.Campaign) ([]progress.Sender, error) {
			return progress.ReadSenders(ctx, exchange, c)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Config.Sinks)) {
		cfg := s.Config.Sinks[name]
		sources.Sinks = append(sources.Sinks, view.Sink{
			Name: name, Type: sink.KindOf(cfg), MaxInFlight: cfg.Entry().MaxInFlight, Default: name == s.Config.DefaultSink,
		})
	}
	if s.Kafka != nil {
		sources.Letters, sources.Letter, sources.Replays = s.letters, s.letter, replay.New(s.replay, s.HoldReplays, s.Log)
	}
	return sources
}

// addStore makes a console that is not a daemon's read the store, and open gates.
func (s *Services) addStore(sources *view.Sources, engine *limits.Engine) {
	sources.Windows, sources.Claims = engine.Peek, engine.Claims
	sources.Gates = func(ctx context.Context) ([]delivery.Gate, error) {
		return engine.Gates(ctx, slices.Sorted(maps.Keys(s.Config.Sinks)))
	}
	showGates(sources, engine, s.Log)
}

// RunConsole serves the console of an installation, without taking part in its work, until ctx ends.
func (s *Services) RunConsole(ctx context.Context) error {
	registry := prometheus.NewRegistry()
	showBuild(registry)
	follower, err := catalog.NewPostgres(catalog.Options{
		DSN: s.DSN(), Renewal: s.renewal(), Logger: s.Log, Registerer: registry,
	})
	if err != nil {
		return config.UsageError{Err: err}
	}
	set, err := s.Shards()
	if err != nil {
		return err
	}
	defer func() { _ = set.Close() }() // nothing is written on closing
	engine, err := limits.New(limits.Options{
		Shards: set, KeyPrefix: s.Config.Redis.KeyPrefix, Logger: s.Log, Registerer: prometheus.NewRegistry(),
	})
	if err != nil {
		return err
	}
	admin, err := s.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	var kafka func(context.Context) error
	s.Catalogued = follower.Snapshot
	if s.Kafka != nil {
		kafka = s.Kafka.Ping
	}
	watched := newStores(set.Up, kafka, s.Log, registry)
	sources := s.sources(set)
	sources.Snapshot, sources.Refresh = follower.Snapshot, follower.Refresh
	sources.Stores = func() []view.Store { return watched.list(follower.Snapshot) }
	s.addStore(&sources, engine)
	s.addCatalog(&sources, admin, engine)
	sources.Degraded = degradedBy(watched, follower.Snapshot)
	server := &console.Server{
		Listen: s.Config.HTTP.Listen, MetricsListen: s.Config.HTTP.MetricsListen, Site: s.site(sources, registry),
		Gatherer: registry, Logger: s.Log, Degraded: sources.Degraded,
		Healthy: func() (bool, string) { return true, "" },
		Ready: func() (bool, string) {
			return follower.Ready(), "the catalog is not loaded: is PostgreSQL reachable, and migrated?"
		},
	}
	go s.followAccess(ctx, nil)
	var group errgroup.Group
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for name, run := range map[string]func(context.Context) error{"catalog": follower.Run, "stores": watched.Run, "console": server.Run} {
		group.Go(func() error {
			defer stop()
			if err := run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}
