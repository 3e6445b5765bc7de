package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/dedupe"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/jobs"
	"github.com/pacer/pacer/internal/keyed"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/sink"
)

const (
	// localPatience bounds a look at the database by a command, which has bounds of its own.
	localPatience = time.Minute
	// snapshotFor is how old the catalog may be that a command which goes on sees.
	snapshotFor = 3 * time.Second
)

// newSite makes the daemon's console; nil if none is configured.
func (d *Daemon) newSite() (*console.Site, error) {
	cfg := d.parts.Config
	if cfg.HTTP.Listen == "" || !cfg.HTTP.Console {
		return nil, nil
	}
	var admin *catalog.Admin
	if d.parts.DSN() != "" {
		var err error
		if admin, err = d.parts.admin(); err != nil {
			return nil, err
		}
	}
	sources := d.parts.sources(d.parts.Redis, d.limits, admin)
	sources.Snapshot, sources.Refresh, sources.History = d.parts.Catalog.Snapshot, d.parts.Catalog.Refresh, d.parts.Catalog.History
	sources.Degraded, sources.Stores = d.health.degraded, d.health.list
	sources.Windows = func(ctx context.Context, quotas []*delivery.Quota) ([]delivery.WindowState, error) {
		if latest := d.gauges.Latest(); latest != nil {
			return latest, nil
		}
		return d.limits.Peek(ctx, quotas)
	}
	return d.parts.site(sources, d.parts.Registry), nil
}

func (s *Services) site(sources view.Sources, r prometheus.Registerer) *console.Site {
	return console.NewSite(console.SiteOptions{
		Sources: sources, BasePath: s.Config.HTTP.BasePath, Guard: s.guard(), TrustedOrigins: s.Config.HTTP.TrustedOrigins,
		Logger: s.Log, Registerer: r,
	})
}

// sources returns what every console has: of Redis, the quota engine and the database what is not nil.
func (s *Services) sources(set *shards.Set, engine *limits.Engine, admin *catalog.Admin) view.Sources {
	sources := view.Sources{
		Version: Version, Ledger: s.Config.Dedupe.Waits(), Hidden: s.Config.HTTP.Payloads == view.PayloadsHidden,
		Sink: func(name string) (id, fault string) {
			id = cmp.Or(name, s.Config.DefaultSink)
			if _, ok := s.Config.Sinks[id]; !ok && len(s.Config.Sinks) > 0 {
				return "", hold.SinkFault(name)
			}
			return id, ""
		},
	}
	for _, name := range slices.Sorted(maps.Keys(s.Config.Sinks)) {
		cfg := s.Config.Sinks[name]
		sources.Sinks = append(sources.Sinks, view.Sink{
			Name: name, Type: sink.KindOf(cfg), MaxInFlight: cfg.Entry().MaxInFlight, Default: name == s.Config.DefaultSink,
		})
	}
	if set != nil {
		exchange := progress.NewRedisExchange(set.Master(0), s.Config.Redis.KeyPrefix)
		sources.Fleet = func(ctx context.Context) (*view.Fleet, error) {
			fleet, err := view.ReadFleet(ctx, exchange)
			if err == nil && len(fleet.Daemons) == 0 { // daemons may run, and not be able to say so
				err = errors.Join(set.Up(ctx, s.Config.Redis.KeyPrefix)...)
			}
			return fleet, err
		}
		sources.Senders = func(ctx context.Context, c *delivery.Campaign) ([]progress.Sender, error) {
			return progress.ReadSenders(ctx, exchange, c)
		}
	}
	if admin != nil {
		sources.Catalog, sources.Fault, sources.Test = admin, s.DestinationFault, s.testDestination(admin)
	}
	if engine != nil {
		sources.AddStore(engine, keyed.Desk{Shards: set, KeyPrefix: s.Config.Redis.KeyPrefix}, s.Log)
	}
	if s.Kafka != nil {
		letters := &view.DeadLetters{Topics: s.DeadTopics(), Ingress: s.Topics.Ingress, Payloads: s.Config.HTTP.Payloads, Explain: BrokersFault, Log: s.Log}
		sources.Ingress = s.Topics.Ingress
		sources.Letters, sources.Letter, sources.Replays = letters.Find, letters.Read, replay.New(letters.Replay, s.HoldReplays, s.Log)
		topics := jobs.Topics{Client: s.Kafka, Group: s.Config.Kafka.Group, TopicSpec: s.Topics}
		if ttl := s.Config.Dedupe.TTL; set != nil && ttl > 0 {
			topics.Marks = &dedupe.Desk{Shards: set, KeyPrefix: s.Config.Redis.KeyPrefix, Keep: max(ttl, s.Config.MaxNotBefore)}
		}
		sources.Job = topics.Find
		if admin != nil {
			sources.Replays.Share(admin)
			sources.CancelJobs = func(ctx context.Context, c jobs.Cancellation) (jobs.Cancelled, error) {
				return topics.Cancel(ctx, c, admin.CancelJobs)
			}
		}
	}
	return sources
}

// DestinationFault returns why nothing is sent to a destination, as far as this process's configuration, files and variables say; "" if
// that is not known, as where no sink is configured. The files of a disabled one may be on their way.
func (s *Services) DestinationFault(row *delivery.Destination) string {
	if row.Disabled() || len(s.Config.Sinks) == 0 || s.Config.Fault(config.NeedSinks) != nil {
		return ""
	}
	if _, err := s.sinkOf(s.Config, row); err != nil {
		return err.Error()
	}
	return ""
}

// DeadTopics are the topics of dead letters.
func (s *Services) DeadTopics() deadletter.Topics {
	return deadletter.Topics{
		Client: s.Kafka, Letters: requeue.DeadTopic(s.Topics.Prefix), Replays: requeue.ReplaysTopic(s.Topics.Prefix), Left: s.discount,
	}
}

// discount takes replayed letters out of the counts of dead and expired jobs: from now on they wait.
func (s *Services) discount(ctx context.Context, letters []*deadletter.Letter) {
	if s.DSN() == "" {
		return
	}
	jobs := map[[2]string]delivery.Settled{} // by campaign, and by destination
	for _, d := range letters {
		one := delivery.Settled{}
		one[requeue.OutcomeOf(delivery.Reroute{Kind: delivery.ToDead, Reason: d.Reason})] = 1
		for _, of := range [][2]string{{d.Campaign, ""}, {"", d.Destination}} {
			jobs[of] = jobs[of].Minus(one)
		}
	}
	var list []delivery.Progress
	for of, left := range jobs {
		list = append(list, delivery.Progress{Campaign: of[0], Destination: of[1], Settled: left})
	}
	admin, err := s.admin()
	if err == nil {
		err = admin.AddSettled(ctx, list)
	}
	if err != nil {
		s.Log.Warn("replayed jobs go on to be counted as dead", "error", err)
	}
}

// HoldReplays implements replay.Lease for the console and pacer dead replay: letters are chosen by what notes say when a replay begins,
// so that two at a time would publish each letter twice. Without a database nothing is forbidden.
func (s *Services) HoldReplays(ctx context.Context) (held context.Context, release func(), err error) {
	if s.DSN() == "" {
		return ctx, func() {}, nil
	}
	admin, err := s.admin()
	if err != nil {
		return nil, nil, err
	}
	held, release, err = admin.Hold(ctx, "replay of "+requeue.DeadTopic(s.Topics.Prefix))
	if errors.Is(err, catalog.ErrLocked) {
		err = fmt.Errorf("in another process %w", replay.ErrBusy)
	}
	return held, release, err
}

// guard says who may do what on the console. The tokens are those that were read last.
func (s *Services) guard() *auth.Guard {
	h := &s.Config.HTTP
	anonymous, _ := auth.ParseRole(h.Anonymous) // checked by the configuration
	options := auth.Options{
		Tokens:    func() string { return s.latest().HTTP.Tokens.Reveal() },
		Admin:     func() string { return s.latest().AdminToken.Reveal() },
		Anonymous: anonymous, InsecureLogin: h.InsecureLogin, Logger: s.Log,
		Proxy: auth.Proxy{
			UserHeader: h.Proxy.UserHeader, GroupsHeader: h.Proxy.GroupsHeader, Operators: h.Proxy.Operators, Admins: h.Proxy.Admins,
		},
	}
	for _, text := range h.Proxy.Networks {
		if network, err := netip.ParsePrefix(text); err == nil { // checked by the configuration
			options.Proxy.Networks = append(options.Proxy.Networks, network)
		}
	}
	return auth.NewGuard(options)
}

// storeUp returns what asks the servers of the quota store whether they take writes.
func (s *Services) storeUp(set *shards.Set) func(ctx context.Context) []error {
	return func(ctx context.Context) []error { return set.Up(ctx, s.Config.Redis.KeyPrefix) }
}

// engine makes a quota engine that takes nothing: it reads, opens gates and corrects counts.
func (s *Services) engine(set *shards.Set) *limits.Engine {
	return limits.New(limits.Options{Shards: set, KeyPrefix: s.Config.Redis.KeyPrefix, Logger: s.Log, Registerer: prometheus.NewRegistry()})
}

// RunConsole serves the console of an installation, without taking part in its work, until ctx ends. Certificates and secrets are read again
// after a hangup.
func (s *Services) RunConsole(ctx context.Context, hangup <-chan os.Signal) error {
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
	admin, err := s.admin()
	if err != nil {
		return err
	}
	var kafka func(context.Context) error
	s.Catalogued = follower.Snapshot
	if s.Kafka != nil {
		kafka = s.Kafka.Ping
	}
	health := newHealth(s.storeUp(set), kafka, follower.Snapshot, s.Log, registry)
	sources := s.sources(set, s.engine(set), admin)
	sources.Snapshot, sources.Refresh, sources.History, sources.Stores, sources.Degraded = follower.Snapshot, follower.Refresh, follower.History, health.list, health.degraded
	server := &console.Server{
		Listen: s.Config.HTTP.Listen, MetricsListen: s.Config.HTTP.MetricsListen, Site: s.site(sources, registry),
		Gatherer: registry, Logger: s.Log, Degraded: health.degraded,
		Healthy: func() (bool, string) { return true, "" },
		Ready:   func() (bool, string) { return follower.Ready(), notLoaded },
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go s.followAccess(ctx, hangup)
	end := runs{"catalog": follower.Run, "health": health.Run, "console": server.Run}.start(ctx, stop)
	<-ctx.Done()
	return end()
}

// local has the API in the process of a command, which it serves one request at a time.
type local struct {
	*console.Local
	admin *catalog.Admin // nil: the command needs no database
	set   *shards.Set    // nil: the configuration has no store

	mu       sync.Mutex // guards what follows
	snapshot *delivery.Snapshot
	fault    error     // why the database could not be read
	loadedAt time.Time // when it was asked for these two
}

// Local returns the transport to the API in this process, for the user by, and what closes it. Without database it has none.
func (s *Services) Local(by string, database bool) (transport http.RoundTripper, end func(), err error) {
	l := &local{}
	degraded := ""
	var engine *limits.Engine
	if fault := s.Config.Fault(config.NeedRedis); fault != nil {
		degraded = fault.Error()
	} else if len(s.Config.Redis.Addrs) == 0 {
		degraded = "redis.addrs is not set, so gates, quotas and daemons were not asked"
	} else if l.set, err = s.Shards(); err == nil {
		engine = s.engine(l.set)
	}
	if err != nil { // the rest is of use where there is a database
		degraded = err.Error()
		l.close()
		if l.set = nil; !database {
			return nil, nil, err
		}
	}
	if database {
		if l.admin, err = catalog.NewAdmin(s.DSN()); err != nil {
			l.close()
			return nil, nil, config.UsageError{Err: err}
		}
	}
	s.Config.HTTP.Payloads = view.PayloadsAll // who reaches Kafka may see them
	sources := s.sources(l.set, engine, l.admin)
	sources.Replays.Quiet()
	sources.Patience, sources.Snapshot, sources.Degraded = localPatience, l.latest, func() string { return degraded }
	l.Local = console.NewLocal(sources, by)
	return l, l.close, nil
}

// RoundTrip implements http.RoundTripper. An answer that lacks what the database has is none.
func (l *local) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		l.mu.Lock()
		l.loadedAt, l.fault = time.Time{}, nil
		l.mu.Unlock()
	}
	answer, err := l.Local.RoundTrip(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.fault != nil {
		return nil, l.fault
	}
	return answer, err
}

// latest returns the catalog, which it reads if it is old.
func (l *local) latest() *delivery.Snapshot {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.admin == nil || time.Since(l.loadedAt) < snapshotFor {
		return l.snapshot
	}
	l.snapshot, l.fault = l.admin.Snapshot(context.Background()) // it bounds that itself
	l.loadedAt = time.Now()
	return l.snapshot
}

func (l *local) close() {
	if l.admin != nil {
		l.admin.Close()
	}
	if l.set != nil {
		_ = l.set.Close() // nothing is written on closing
	}
}
