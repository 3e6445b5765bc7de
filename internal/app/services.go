package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/shards"
)

// Services are the connections that a configuration describes. They are opened at their first use.
type Services struct {
	Config *config.Config
	Log    *slog.Logger
	Topics requeue.TopicSpec
	Kafka  *broker.Client // nil before OpenKafka
	// Catalogued returns the catalog, which has the id of the only Kafka cluster that is used; nil for any. It is set before Kafka is used.
	Catalogued func() *delivery.Snapshot
	keeper     *certificateCache

	once     sync.Once      // makes the next two; see admin
	database *catalog.Admin // nil: none was made
	fault    error
}

// NewServices prepares connections to the services of a configuration, except Kafka.
func NewServices(cfg *config.Config, log *slog.Logger) *Services {
	return &Services{Config: cfg, Log: log, keeper: newCertificateCache(), Catalogued: func() *delivery.Snapshot { return nil }, Topics: requeue.TopicSpec{
		Prefix: cfg.Kafka.TopicPrefix, Ingress: cfg.Kafka.Topics, Lanes: cfg.Kafka.Lanes, Timers: cfg.Kafka.TimerDelays,
		ReplicationFactor: cfg.Kafka.ReplicationFactor, Results: cfg.Kafka.Results, Responses: cfg.ResponseTopics(),
	}}
}

// DSN returns the DSN of the catalog.
func (s *Services) DSN() string { return s.Config.Postgres.DSN.Reveal() }

// OpenKafka makes the client of Kafka.
func (s *Services) OpenKafka() error {
	a, err := s.access()
	if err != nil {
		return err
	}
	if a.kafka.fault != nil {
		return config.UsageError{Err: a.kafka.fault}
	}
	s.Kafka, err = broker.New(broker.Options{
		Brokers: s.Config.Kafka.Brokers, Topics: s.Topics.Names(), Security: s.kafkaAccess,
		MaxRecordBytes: int64(s.Config.Kafka.MaxRecordBytes), Logger: s.Log,
		Cluster: func() string {
			if c := s.Catalogued(); c != nil {
				return c.Installation.Cluster
			}
			return ""
		},
	})
	if err != nil {
		return config.UsageError{Err: fmt.Errorf("kafka.sasl: %w", err)}
	}
	return nil
}

// Installation is what the configuration says of it.
func (s *Services) Installation() delivery.Installation {
	i := delivery.Installation{Group: s.Config.Kafka.Group, Prefix: s.Topics.Prefix}
	if store := s.Config.Redis.Options(); len(store.Addrs) > 0 {
		i.Shards = store.Count()
	}
	return i
}

// admin returns the database as the console uses it. Close closes it.
func (s *Services) admin() (*catalog.Admin, error) {
	s.once.Do(func() {
		var err error
		if s.database, err = catalog.NewAdminAs(s.DSN(), "pacer console", s.renewal()); err != nil {
			s.fault = config.UsageError{Err: err}
		}
	})
	return s.database, s.fault
}

// Close closes connections: those to Kafka that are idle, and those of admin. No one uses s any more.
func (s *Services) Close() {
	if s.Kafka != nil {
		s.Kafka.Close()
	}
	if s.database != nil {
		s.database.Close()
	}
}

// topology returns the configured topology of the quota engine's store.
func (s *Services) topology() (o shards.Options, err error) {
	a, err := s.access()
	if err != nil {
		return o, err
	}
	if a.redis.fault != nil {
		return o, config.UsageError{Err: a.redis.fault}
	}
	o = s.Config.Redis.Options()
	o.Renew = s.redisAccess
	return o, nil
}

// Shards makes the clients of the quota engine's store.
func (s *Services) Shards() (*shards.Set, error) {
	topology, err := s.topology()
	if err != nil {
		return nil, err
	}
	redis.SetLogger(redisLog{s.Log})
	shards, err := shards.Connect(topology)
	if err != nil {
		return nil, config.UsageError{Err: fmt.Errorf("redis.%w", err)}
	}
	return shards, nil
}

// Roots makes the clients of the servers of quotas in mode eventual, which have the same credentials as the store.
func (s *Services) Roots() (*shards.Set, error) {
	topology, err := s.topology()
	if err != nil || len(s.Config.Eventual.Roots) == 0 {
		return shards.New(), err
	}
	topology.Mode, topology.Addrs, topology.MasterName, topology.Shards = shards.ModeRing, s.Config.Eventual.Roots, "", 0
	topology.SentinelUsername, topology.SentinelPassword = "", ""
	roots, err := shards.Connect(topology)
	if err != nil {
		return nil, config.UsageError{Err: fmt.Errorf("eventual.roots: %w", err)}
	}
	return roots, nil
}

// BrokersFault names the setting in an error if a command could not reach the brokers; other errors are unchanged.
func BrokersFault(err error) error {
	var network *net.OpError
	if errors.As(err, &network) || errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("kafka.brokers: %w", err)
	}
	return broker.Explained(err)
}

// redisLog logs what go-redis would write to standard error, in a format of its own, for every attempt to connect. The
// caller of the client gets the error and logs it once; these lines are for debugging.
type redisLog struct{ log *slog.Logger }

// Printf is called by go-redis.
func (r redisLog) Printf(ctx context.Context, format string, args ...any) {
	if !r.log.Enabled(ctx, slog.LevelDebug) {
		return
	}
	r.log.DebugContext(ctx, "redis client", "says", fmt.Sprintf(format, args...))
}
