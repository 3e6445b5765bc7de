package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/segmentio/kafka-go"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/embedded"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/requeue"
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
)

// runner is a daemon as the demo sees it.
type runner interface {
	Run(ctx context.Context) error
	ready() (ok bool, why string)
}

// stage is everything a demo needs, brought up and not yet playing.
type stage struct {
	scene    *scene
	broker   *embedded.Broker
	redis    *embedded.Redis
	receiver *embedded.Receiver
	catalog  *catalog.Memory
	topics   requeue.TopicSpec
	client   *kafka.Client // the demo's own: it publishes and counts
	daemons  []runner
	notes    []string // what to tell at the beginning
	closers  []func()

	record sceneRecord
}

// newStage starts the services and puts the daemons together.
func newStage(s *scene, options *DemoOptions, log *slog.Logger) (*stage, error) {
	st := &stage{
		scene: s, catalog: catalog.NewMemory(), redis: embedded.NewRedis(),
		topics: requeue.TopicSpec{
			Prefix: requeue.DefaultPrefix, Ingress: []string{demoTopic}, Lanes: demoLanes,
			Timers: requeue.DefaultTimers(), TimerPartitions: 2, DeadPartitions: 1,
		},
		receiver: embedded.NewReceiver(embedded.ReceiverOptions{Paths: demoBehaviours(s.duration), Log: log}),
	}
	st.broker = embedded.NewBroker(embedded.BrokerOptions{Topics: demoTopics(st.topics), MaxMessageBytes: 2 << 20})
	if err := st.start(); err != nil {
		st.close()
		return nil, err
	}
	st.populate()
	listen := st.freeListen(options.Listen)
	for range demoDaemons {
		d, err := st.daemon(options, listen, log)
		if err != nil {
			st.close()
			return nil, err
		}
		st.daemons = append(st.daemons, d)
		listen = "" // one page is enough
	}
	return st, nil
}

// demoBehaviours says how the destinations answer: both take their time, and the partner's is a difficult one.
func demoBehaviours(duration time.Duration) map[string]embedded.Behaviour {
	latency := embedded.Behaviour{MinLatency: 5 * time.Millisecond, MaxLatency: 30 * time.Millisecond}
	partner := latency
	partner.ErrorShare = 0.005
	partner.ThrottleEvery = max(duration*37/100, 3*time.Second)
	partner.RetryAfter = time.Second
	return map[string]embedded.Behaviour{"/deliver": latency, "/partner": partner}
}

// demoTopics are the topics of the broker: those that people make, and those that `pacer migrate up` makes.
func demoTopics(spec requeue.TopicSpec) []embedded.Topic {
	topics := []embedded.Topic{
		{Name: demoTopic, Partitions: demoPartitions},
		{Name: requeue.LaneTopic(spec.Prefix), Partitions: spec.Lanes},
		{Name: requeue.DeadTopic(spec.Prefix), Partitions: spec.DeadPartitions},
		{Name: requeue.ReplaysTopic(spec.Prefix), Partitions: 1},
	}
	for _, delay := range spec.Timers {
		topics = append(topics, embedded.Topic{Name: requeue.TimerTopic(spec.Prefix, delay), Partitions: spec.TimerPartitions})
	}
	return topics
}

func (st *stage) start() error {
	if err := st.broker.Start(); err != nil {
		return err
	}
	if err := st.redis.Start(); err != nil {
		return err
	}
	if err := st.receiver.Start(); err != nil {
		return err
	}
	st.client = &kafka.Client{Addr: kafka.TCP(st.broker.Addrs()...), Transport: st.transport(), Timeout: 10 * time.Second}
	return nil
}

// transport makes connections to the broker that end with the stage.
func (st *stage) transport() *kafka.Transport {
	t := &kafka.Transport{MetadataTopics: st.topics.Names(), MetadataTTL: 2 * time.Second}
	st.closers = append(st.closers, t.CloseIdleConnections)
	return t
}

// populate writes the scene's campaigns and quotas into the catalog, and their first rates into the record.
func (st *stage) populate() {
	st.catalog.PutQuota(st.scene.quota)
	for _, c := range st.scene.campaigns {
		st.catalog.PutCampaign(delivery.Campaign{
			ID: c.id, Rate: delivery.PerSecond(c.rate), Sink: c.sink, PriorityWeight: c.weight,
		}, c.quotas...)
	}
}

// daemon puts one daemon together. Nothing is shared with the others but the services, as if it were a process of
// its own.
func (st *stage) daemon(options *DemoOptions, listen string, log *slog.Logger) (*Daemon, error) {
	parts, err := st.parts(options, listen, log)
	if err != nil {
		return nil, err
	}
	d, err := NewDaemon(parts)
	if err != nil {
		return nil, fmt.Errorf("put a daemon together: %w", err)
	}
	return d, nil
}

// parts are those of one daemon.
func (st *stage) parts(options *DemoOptions, listen string, log *slog.Logger) (Parts, error) {
	sinks := make(map[string]sink.Entry)
	for name, path := range map[string]string{demoSink: "/deliver", partnerSink: "/partner"} {
		cfg := sinkhttp.Default()
		cfg.URL = st.receiver.URL(path)
		entry, err := sink.Open(cfg, sink.Host{Version: Version, Logger: log})
		if err != nil {
			return Parts{}, fmt.Errorf("sink %s: %w", name, err)
		}
		sinks[name] = entry
	}
	connection := limits.ClientOptions(st.redis.Addr())
	// This server does not know the command, and a client that asks for it makes every connection twice.
	connection.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	client := redis.NewUniversalClient(connection)
	st.closers = append(st.closers, func() { _ = client.Close() }) // nothing is written on closing
	return Parts{
		Brokers: st.broker.Addrs(), Transport: st.transport(), Dialer: &kafka.Dialer{Timeout: 5 * time.Second},
		Group: demoGroup, Topics: st.topics,
		Redis: limits.Single(client), KeyPrefix: requeue.DefaultPrefix, Catalog: st.catalog,
		Sinks: sinks, DefaultSink: demoSink,
		// A first back-off of 200 ms, so that retries are seen within the demo.
		Pacing: Pacing{Retry: pacer.Retry{MaxAttempts: 8, Initial: 200 * time.Millisecond, Max: 30 * time.Minute, Jitter: 0.2}},
		Listen: listen, ShutdownTimeout: 20 * time.Second, KeepDelivered: true,
		Logger: log, Registry: prometheus.NewRegistry(),
		WrapSinks: options.WrapSinks, WrapLimiter: options.WrapLimiter,
	}, nil
}

// freeListen is the address asked for, or one with a free port where that is taken.
func (st *stage) freeListen(asked string) string {
	if asked == "" {
		return ""
	}
	listener, err := net.Listen("tcp", asked)
	if err != nil {
		host, _, splitErr := net.SplitHostPort(asked)
		if splitErr != nil || host == "" {
			host = "127.0.0.1"
		}
		free, freeErr := net.Listen("tcp", net.JoinHostPort(host, "0"))
		if freeErr != nil {
			st.notes = append(st.notes, fmt.Sprintf("--listen %s: %s; there is no /metrics this time", asked, cause(err)))
			return ""
		}
		st.notes = append(st.notes, fmt.Sprintf("--listen %s: %s; using %s", asked, cause(err), free.Addr()))
		listener = free
	}
	defer func() { _ = listener.Close() }() // only its port is wanted
	st.notes = append(st.notes, fmt.Sprintf("metrics on http://%s/metrics", listener.Addr()))
	return listener.Addr().String()
}

// cause is the innermost part of a network error: "address already in use".
func cause(err error) string {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		err = op.Err
	}
	text := err.Error()
	return strings.TrimPrefix(text, "bind: ")
}

// close ends everything that the stage started.
func (st *stage) close() {
	for _, end := range st.closers {
		end()
	}
	st.redis.Close()
	st.broker.Close()
}

// awaitReady waits until jobs can flow through every daemon.
func (st *stage) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for _, d := range st.daemons {
		for {
			ok, why := d.ready()
			if ok {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("the daemons are not ready: %s: %w", why, context.Cause(ctx))
			case <-tick.C:
			}
		}
	}
	return nil
}
