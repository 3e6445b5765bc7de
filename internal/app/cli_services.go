package app

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/requeue"
)

const (
	dialTimeout = 5 * time.Second
	// metadataTTL is how long what is known of topics is believed: new ones are noticed within it.
	metadataTTL   = 2 * time.Second
	clientTimeout = 20 * time.Second
	clientID      = "pacer"
)

// services are the connections that a command uses. Nothing is connected before it is used.
type services struct {
	config    *Config
	log       *slog.Logger
	topics    requeue.TopicSpec
	transport *kafka.Transport
	dialer    *kafka.Dialer
	kafka     *kafka.Client
	dsn       string
}

// services loads the configuration and prepares connections to what the command needs.
func (in Invocation) services(needs ...Section) (*services, error) {
	cfg, log, err := in.load(needs...)
	if err != nil {
		return nil, err
	}
	s := &services{config: cfg, log: log, topics: topicsOf(cfg), dsn: cfg.Postgres.DSN.Reveal()}
	if !slices.Contains(needs, NeedKafka) && !slices.Contains(needs, NeedTopics) {
		return s, nil
	}
	if err := s.openKafka(); err != nil {
		return nil, UsageError{err}
	}
	return s, nil
}

// load reads the configuration and says on the log what is odd about it.
func (in Invocation) load(needs ...Section) (*Config, *slog.Logger, error) {
	cfg, warnings, err := Load(in.ConfigPath, in.ConfigSet, in.Environ)
	if err != nil {
		return nil, nil, err
	}
	if err := cfg.Require(needs...); err != nil {
		return nil, nil, withHints(err, warnings)
	}
	log := cfg.Log.Logger(in.Stderr)
	for _, w := range warnings {
		log.Warn("configuration", "problem", w)
	}
	return cfg, log, nil
}

// withHints adds the warnings to what is missing: a variable whose name is misspelled is the likely reason.
func withHints(err error, warnings []string) error {
	var problems Problems
	if !errors.As(err, &problems) {
		return err
	}
	return UsageError{slices.Concat(problems, warnings)}
}

func topicsOf(cfg *Config) requeue.TopicSpec {
	return requeue.TopicSpec{
		Prefix: cfg.Kafka.TopicPrefix, Ingress: cfg.Kafka.Topics, Lanes: cfg.Kafka.Lanes, Timers: cfg.Kafka.TimerDelays,
		ReplicationFactor: cfg.Kafka.ReplicationFactor, Results: cfg.Kafka.Results,
	}
}

func (s *services) openKafka() error {
	encryption, err := s.config.Kafka.TLS.Client()
	if err != nil {
		return fmt.Errorf("kafka.tls.%w", err)
	}
	mechanism, err := s.config.Kafka.SASL.mechanism()
	if err != nil {
		return fmt.Errorf("kafka.sasl: %w", err)
	}
	dial := dialBroker
	if encryption != nil {
		dial = nil // the library's own: in TLS the first bytes are not the broker's
	}
	s.transport = &kafka.Transport{
		Dial: dial, ClientID: clientID, DialTimeout: dialTimeout, MetadataTTL: metadataTTL,
		MetadataTopics: s.topics.Names(), TLS: encryption, SASL: mechanism,
	}
	s.dialer = &kafka.Dialer{
		DialFunc: dial, ClientID: clientID, Timeout: dialTimeout, DualStack: true, TLS: encryption, SASLMechanism: mechanism,
	}
	s.kafka = &kafka.Client{Addr: kafka.TCP(s.config.Kafka.Brokers...), Transport: s.transport, Timeout: clientTimeout}
	return nil
}

// mechanism is the kafka-go form of the configuration; nil for none.
func (c SASLConfig) mechanism() (sasl.Mechanism, error) {
	algorithm := map[string]scram.Algorithm{"scram-sha-256": scram.SHA256, "scram-sha-512": scram.SHA512}
	switch c.Mechanism {
	case "":
		return nil, nil
	case "plain":
		return plain.Mechanism{Username: c.Username, Password: c.Password.Reveal()}, nil
	default:
		m, err := scram.Mechanism(algorithm[c.Mechanism], c.Username, c.Password.Reveal())
		if err != nil {
			return nil, fmt.Errorf("username or password: %w", err)
		}
		return m, nil
	}
}

// close ends idle connections.
func (s *services) close() {
	if s.transport != nil {
		s.transport.CloseIdleConnections()
	}
}

// topology is where the configuration says that the quota engine's store is.
func (s *services) topology() (limits.TopologyOptions, error) {
	c := s.config.Redis
	encryption, err := c.TLS.Client()
	if err != nil {
		return limits.TopologyOptions{}, UsageError{fmt.Errorf("redis.tls.%w", err)}
	}
	return limits.TopologyOptions{
		Mode: c.Mode, Addrs: c.Addrs, MasterName: c.MasterName, Shards: c.Shards,
		Username: c.Username, Password: c.Password.Reveal(), DB: c.DB, TLS: encryption,
		SentinelUsername: c.SentinelUsername, SentinelPassword: c.SentinelPassword.Reveal(),
	}, nil
}

// shards make the clients of the store that the quota engine needs.
func (s *services) shards() (limits.Shards, error) {
	topology, err := s.topology()
	if err != nil {
		return nil, err
	}
	redis.SetLogger(redisLog{s.log})
	shards, err := limits.Connect(topology)
	if err != nil {
		return nil, UsageError{fmt.Errorf("redis.%w", err)}
	}
	return shards, nil
}

// eventual configures the quotas of mode eventual. Their roots are servers of their own, with the same credentials.
func (s *services) eventual() (limits.EventualOptions, error) {
	c := s.config.Eventual
	o := limits.EventualOptions{Sync: c.Sync, LowBurst: c.LowBurst, HighBurst: c.HighBurst}
	topology, err := s.topology()
	if err != nil {
		return o, err
	}
	for _, root := range c.Roots {
		topology.Mode, topology.Addrs, topology.MasterName, topology.Shards = "single", []string{root}, "", 1
		server, err := limits.Connect(topology)
		if err != nil {
			return o, UsageError{fmt.Errorf("eventual.roots: %s: %w", root, err)}
		}
		o.Roots = append(o.Roots, server.Master(0))
	}
	return o, nil
}

// admin opens the catalog for changes.
func (in Invocation) admin() (*catalog.Admin, error) {
	cfg, _, err := in.load(NeedPostgres)
	if err != nil {
		return nil, err
	}
	a, err := catalog.NewAdmin(cfg.Postgres.DSN.Reveal())
	if err != nil {
		return nil, UsageError{err}
	}
	return a, nil
}

// heldBySink says why the campaign is held for want of its sink, "" when it is not. Where the configuration at hand
// has no sinks at all, that of the daemons is somewhere else, and nothing is said.
func (in Invocation) heldBySink(name string) string {
	cfg, _, err := Load(in.ConfigPath, in.ConfigSet, in.Environ)
	if err != nil || len(cfg.Sinks) == 0 {
		return ""
	}
	if name == "" {
		name = cfg.DefaultSink
	}
	if _, ok := cfg.Sinks[name]; ok {
		return ""
	}
	if name == "" {
		return "it names no sink, and there is no default_sink"
	}
	return fmt.Sprintf("its sink %s is not configured; add it under sinks, or set another with --sink", name)
}
