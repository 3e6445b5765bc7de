package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
	"github.com/pacer/pacer/internal/embedded"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/retry"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/sink"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

const (
	demoDaemons    = 2
	demoTopic      = requeue.DefaultPrefix + "jobs"
	demoPartitions = 6
	demoLanes      = 16
	demoGroup      = "pacer"
	readyTimeout   = 30 * time.Second
	firstRetry     = 200 * time.Millisecond // so that retries are seen within the demo
)

// environment holds the services and daemons of a demo.
type environment struct {
	scenario *scenario
	broker   *kfake.Cluster
	redis    *embedded.Redis
	receiver *count.Receiver
	catalog  *catalog.Memory
	topics   requeue.TopicSpec
	client   *broker.Client // the demo's own: it publishes and counts
	daemons  []*app.Daemon
	notes    []string // lines to print at the beginning
	closers  []func()

	seen  observations // what was done and when; the rest is filled in after the daemons have stopped
	waves atomic.Int64 // acknowledged by the broker
}

// newEnvironment starts the services and builds the daemons.
func newEnvironment(s *scenario, options *Options, log *slog.Logger) (*environment, error) {
	st := &environment{scenario: s, catalog: catalog.NewMemory()}
	err := st.start(log)
	if err == nil {
		st.populate()
		err = st.buildDaemons(options, log)
	}
	if err != nil {
		st.close()
		return nil, err
	}
	return st, nil
}

// behaviours returns the behaviour of the destinations: both answer with a delay, and the partner's sometimes refuses.
func behaviours(duration time.Duration) map[string]count.Behaviour {
	latency := count.Behaviour{MinLatency: 5 * time.Millisecond, MaxLatency: 30 * time.Millisecond}
	partner := latency
	partner.ErrorEvery = 200
	partner.ThrottleEvery = max(duration*37/100, 3*time.Second)
	partner.RetryAfter = time.Second
	return map[string]count.Behaviour{"/deliver": latency, "/partner": partner}
}

// topics returns the topics of the broker, each with its partitions: the ingress topic, and those that `pacer migrate up`
// creates.
func topics() map[string]int {
	made := map[string]int{
		demoTopic:                                   demoPartitions,
		requeue.LaneTopic(requeue.DefaultPrefix):    demoLanes,
		requeue.DeadTopic(requeue.DefaultPrefix):    1,
		requeue.ReplaysTopic(requeue.DefaultPrefix): 1,
	}
	for _, delay := range requeue.DefaultTimers() {
		made[requeue.TimerTopic(requeue.DefaultPrefix, delay)] = 2
	}
	return made
}

func (st *environment) start(log *slog.Logger) (err error) {
	if st.broker, err = embedded.StartBroker(topics()); err != nil {
		return err
	}
	st.closers = append(st.closers, st.broker.Close)
	if st.redis, err = embedded.StartRedis(); err != nil {
		return err
	}
	st.closers = append(st.closers, st.redis.Close)
	options := count.ReceiverOptions{Paths: behaviours(st.scenario.duration), Log: log}
	if st.receiver, err = count.Listen(options); err != nil {
		return err
	}
	own, err := st.services("", log)
	st.client, st.topics = own.Kafka, own.Topics
	return err
}

// populate writes the scenario's campaigns and quotas to the catalog.
func (st *environment) populate() {
	st.catalog.PutQuota(st.scenario.quota)
	for _, c := range st.scenario.campaigns {
		st.catalog.PutCampaign(delivery.Campaign{
			ID: c.id, Rate: delivery.PerSecond(c.rate), Sink: c.sink, PriorityWeight: 1,
		}, c.quotas...)
	}
}

func (st *environment) buildDaemons(options *Options, log *slog.Logger) error {
	listen := st.freeListen(options.Listen)
	for range demoDaemons {
		d, err := st.daemon(options, listen, log)
		if err != nil {
			return err
		}
		st.daemons = append(st.daemons, d)
		listen = "" // only the first daemon listens
	}
	return nil
}

// daemon builds one daemon. Like a process of its own, it shares only the services with the others.
func (st *environment) daemon(options *Options, listen string, log *slog.Logger) (*app.Daemon, error) {
	services, err := st.services(listen, log)
	if err != nil {
		return nil, err
	}
	sinks, err := sink.OpenAll(services.Config.Sinks, sink.Host{Version: app.Version, Logger: log})
	if err != nil {
		return nil, err
	}
	connection := shards.ClientOptions(st.redis.Addr())
	// This server does not know the command, and a client that sends it opens every connection twice.
	connection.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewUniversalClient(connection)
	client.AddHook(st.redis)
	st.closers = append(st.closers, func() { _ = client.Close() }) // nothing is written on closing
	d, err := app.NewDaemon(app.Parts{
		Services: services, Redis: shards.New(client), Catalog: st.catalog, Sinks: sinks, Registry: prometheus.NewRegistry(),
		KeepDelivered: true, WrapSinks: options.WrapSinks, WrapLimiter: options.WrapLimiter,
	})
	if err != nil {
		return nil, fmt.Errorf("put a daemon together: %w", err)
	}
	return d, nil
}

// services returns the connections of one daemon, or of the demo itself. They are closed with the environment.
func (st *environment) services(listen string, log *slog.Logger) (*app.Services, error) {
	cfg := config.Default()
	cfg.Kafka.Brokers, cfg.Kafka.Lanes = st.broker.ListenAddrs(), demoLanes
	cfg.Redis.KeyPrefix, cfg.HTTP.Listen, cfg.DefaultSink = cfg.Kafka.TopicPrefix, listen, demoSink
	cfg.Retry.Initial = firstRetry
	for name, path := range map[string]string{demoSink: "/deliver", partnerSink: "/partner"} {
		destination := sinkhttp.Default()
		destination.URL = st.receiver.URL(path)
		cfg.Sinks[name] = destination
	}
	s := app.NewServices(cfg, log)
	st.closers = append(st.closers, s.Close)
	return s, s.OpenKafka()
}

// freeListen returns the address asked, or one with a free port if that is taken.
func (st *environment) freeListen(asked string) string {
	if asked == "" {
		return ""
	}
	listener, err := net.Listen("tcp", asked)
	if err != nil {
		host, _, _ := net.SplitHostPort(asked) // "" if it is invalid
		free, freeErr := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), "0"))
		if freeErr != nil {
			st.notes = append(st.notes, fmt.Sprintf("--listen %s: %s; there is no /metrics this time", asked, cause(err)))
			return ""
		}
		st.notes = append(st.notes, fmt.Sprintf("--listen %s: %s; using %s", asked, cause(err), free.Addr()))
		listener = free
	}
	defer func() { _ = listener.Close() }() // only its port is needed
	st.notes = append(st.notes, fmt.Sprintf("console on http://%s/, metrics on http://%[1]s/metrics", listener.Addr()))
	return listener.Addr().String()
}

// cause returns the innermost part of a network error: "address already in use".
func cause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	return strings.TrimPrefix(err.Error(), "bind: ")
}

// close stops everything that the environment started, in reverse order.
func (st *environment) close() {
	for _, end := range slices.Backward(st.closers) {
		end()
	}
}

// awaitReady waits until jobs can flow through every daemon.
func (st *environment) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	for _, d := range st.daemons {
		for ok, why := d.Ready(); !ok; ok, why = d.Ready() {
			if retry.Sleep(ctx, 20*time.Millisecond) != nil {
				return fmt.Errorf("the daemons are not ready: %s: %w", why, context.Cause(ctx))
			}
		}
	}
	return nil
}
