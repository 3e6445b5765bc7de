package config

import (
	"crypto/tls"
	"io"
	"log/slog"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/broker"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/consumer"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits/eventual"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/pacer"
	"github.com/pacer/pacer/internal/progress"
	"github.com/pacer/pacer/internal/requeue"
	"github.com/pacer/pacer/internal/shards"
	"github.com/pacer/pacer/internal/sink"
	"github.com/pacer/pacer/internal/sink/access"
)

// Config is the whole configuration. The `yaml` tag of a field is its key in the file, and "PACER_" with the path in
// capitals its environment variable; docs/configuration.md describes each, which a test checks. LoadFor returns a
// validated Config. Other tags say which values a field takes: see setting.check.
//
// It may be logged and printed: secrets are not shown.
type Config struct {
	Kafka    Kafka    `yaml:"kafka"`
	Redis    Redis    `yaml:"redis"`
	Eventual Eventual `yaml:"eventual"`
	Postgres Postgres `yaml:"postgres"`
	HTTP     HTTP     `yaml:"http"`
	Metrics  Metrics  `yaml:"metrics"`
	Tracing  Tracing  `yaml:"tracing"`
	Pacing   Pacing   `yaml:"pacing"`
	Retry    Retry    `yaml:"retry"`
	Dedupe   Dedupe   `yaml:"dedupe"`
	Results  Results  `yaml:"results"`

	UnknownGrace time.Duration `yaml:"unknown_grace" range:"1s..30d"`    // how long jobs of an unknown campaign wait for the campaign
	MaxWeight    int64         `yaml:"max_weight" range:"1..65536"`      // the largest pacer-weight
	MaxNotBefore time.Duration `yaml:"max_not_before" range:"1m..3650d"` // how far ahead pacer-not-before may lie

	DefaultSink string                 `yaml:"default_sink"` // of campaigns that name none; the only sink where there is one
	Sinks       map[string]sink.Config `yaml:"-"`            // by name; keys depend on the sink's type

	Log             Log           `yaml:"log"`
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout" range:"1s..10m"` // of a graceful stop
	Watchdog        time.Duration `yaml:"watchdog" range:"15s..1d"`         // how long a step of a reader may take
	AdminToken      Secret        `yaml:"admin_token"`                      // of an administrator of the console

	sources map[string]func() (string, error) // of secrets that refer to files, by path
	unused  Problems                          // of sections that are not needed
}

// Kafka configures the brokers, the ingress topics and the topics of waiting jobs.
type Kafka struct {
	Brokers           []string        `yaml:"brokers" need:"kafka,topics" is:"address" such:"127.0.0.1:9092"`
	Topics            []string        `yaml:"topics" need:"topics" is:"topic" such:"orders, of letters, digits, dots, - and _" once:"yes"` // ingress
	Group             string          `yaml:"group"`
	TopicPrefix       string          `yaml:"topic_prefix"` // of the topics that pacer owns
	Lanes             int             `yaml:"lanes" range:"1..10000"`
	TimerDelays       []time.Duration `yaml:"timer_delays" range:"1ms..7d" once:"yes"`
	ReplicationFactor int             `yaml:"replication_factor" range:"0..15"`     // 0: min(3, brokers)
	MaxRecordBytes    notation.Size   `yaml:"max_record_bytes" range:"64KiB..1GiB"` // a larger record is a dead letter without its content
	Results           bool            `yaml:"results"`                              // write an event for each job with a final outcome
	TLS               TLS             `yaml:"tls"`
	SASL              SASL            `yaml:"sasl"`
}

// SASL is pacer's authentication to Kafka; Mechanism "" means none.
type SASL struct {
	Mechanism string `yaml:"mechanism" oneof:"plain, scram-sha-256, scram-sha-512" zero:""`
	Username  string `yaml:"username"`
	Password  Secret `yaml:"password"`
}

// TLS configures the encryption of a connection. In the file, `tls: true` stands for `tls: {enabled: true}`.
type TLS struct {
	Enabled bool `yaml:"enabled"`
	access.Certificates
	ServerName string `yaml:"server_name"` // "": the host of the connection
}

// Redis configures the quota engine's store.
type Redis struct {
	Addrs      []string `yaml:"addrs" need:"redis"` // host:port
	Mode       string   `yaml:"mode"`               // single, cluster, sentinel, ring
	MasterName string   `yaml:"master_name"`        // sentinel only
	Shards     int      `yaml:"shards"`             // number of shards (hash tags) of the keys; 0: the mode's default
	KeyPrefix  string   `yaml:"key_prefix"`         // Kafka.TopicPrefix unless set
	Username   string   `yaml:"username"`
	Password   Secret   `yaml:"password"`
	DB         int      `yaml:"db"`
	TLS        TLS      `yaml:"tls"`

	SentinelUsername string `yaml:"sentinel_username"` // of the sentinels themselves
	SentinelPassword Secret `yaml:"sentinel_password"`
}

// Options converts the settings, except TLS, for package shards.
func (r *Redis) Options() shards.Options {
	return shards.Options{
		Mode: r.Mode, Addrs: r.Addrs, MasterName: r.MasterName, Shards: r.Shards,
		Username: r.Username, Password: r.Password.Reveal(), DB: r.DB,
		SentinelUsername: r.SentinelUsername, SentinelPassword: r.SentinelPassword.Reveal(),
	}
}

// Eventual configures how daemons exchange their use of quotas of mode eventual. The bursts bound how far all daemons together may run
// ahead of such a quota's limit, as a time at the limit's rate.
type Eventual struct {
	Roots     []string      `yaml:"roots" is:"address" such:"127.0.0.1:6379" most:"16" once:"yes"` // independent Redis servers, host:port; Redis.Addrs in mode single unless set
	Sync      time.Duration `yaml:"sync" range:"50ms..1m"`                                         // between two exchanges with a root
	LowBurst  time.Duration `yaml:"low_burst" range:"0s..1h"`                                      // from here on jobs begin to wait
	HighBurst time.Duration `yaml:"high_burst" range:"1ms..1h"`                                    // from here on all jobs wait
}

// Postgres configures the database of campaigns and quotas.
type Postgres struct {
	DSN Secret `yaml:"dsn" need:"postgres"`
}

// Metrics configures /metrics.
type Metrics struct {
	Campaigns string `yaml:"campaigns" oneof:"all, active, none"` // which have series of their own
}

// Tracing configures where spans of attempts to send jobs go.
type Tracing struct {
	Endpoint      string  `yaml:"endpoint"`            // of an OpenTelemetry collector, OTLP over HTTP; "": no tracing
	Sample        float64 `yaml:"sample" range:"0..1"` // the part of the attempts that have a span; all do whose producer's trace is sampled
	Authorization Secret  `yaml:"authorization"`       // the header of that name
	CAFile        string  `yaml:"ca_file"`             // "": the system's authorities
}

// Client returns the TLS configuration for the collector, nil for the system's authorities.
func (t Tracing) Client() (*tls.Config, error) {
	return TLS{Enabled: t.CAFile != "", Certificates: access.Certificates{CAFile: t.CAFile}}.Client()
}

// Pacing bounds the pacing core.
type Pacing struct {
	MinQuantum     time.Duration `yaml:"min_quantum" range:"10ms..1s"`
	MaxQuantum     time.Duration `yaml:"max_quantum" range:"10ms..1s"`
	LateTolerance  time.Duration `yaml:"late_tolerance" range:"1ms..1s"`
	MaxOpenAge     time.Duration `yaml:"max_open_age" range:"100ms..1h"`
	MaxBufferBytes notation.Size `yaml:"max_buffer_bytes" range:"1MiB..1024GiB"`
	ItemsPerSecond int           `yaml:"items_per_second" range:"100..10000000"`
}

// Retry configures the back-off after temporary failures.
type Retry struct {
	MaxAttempts int           `yaml:"max_attempts" range:"1..1000"`
	Initial     time.Duration `yaml:"initial" range:"10ms..1d"`
	Max         time.Duration `yaml:"max" range:"10ms..7d"`
	Jitter      float64       `yaml:"jitter" range:"0..1"`
}

// Dedupe configures how long delivered jobs are remembered, so that none is sent again with the same id.
type Dedupe struct {
	TTL            time.Duration `yaml:"ttl" range:"1s..30d" zero:"no deduplication"`
	OnStoreFailure string        `yaml:"on_store_failure" oneof:"closed, open"`
}

// Waits reports whether jobs wait while Redis does not answer.
func (d *Dedupe) Waits() bool { return d.TTL > 0 && d.OnStoreFailure == delivery.PolicyClosed }

// Results configures the events of Kafka.Results.
type Results struct {
	Headers []string `yaml:"headers" is:"own header" such:"tenant, whose name does not begin with pacer-" most:"16" once:"yes"` // of the job
}

// Log configures what the daemon writes to standard error.
type Log struct {
	Level  string `yaml:"level" oneof:"debug, info, warn, error"`
	Format string `yaml:"format" oneof:"text, json"`
}

// Default returns the default configuration. Each default is defined by the component that uses the setting.
func Default() *Config {
	p := pacer.Defaults()
	return &Config{
		Kafka: Kafka{
			Group: "pacer", TopicPrefix: requeue.DefaultPrefix, Topics: []string{requeue.DefaultPrefix + "jobs"},
			Lanes: requeue.DefaultLanes, TimerDelays: requeue.DefaultTimers(), MaxRecordBytes: broker.DefaultMaxRecordBytes,
		},
		Eventual: Eventual{Sync: eventual.DefaultSync, LowBurst: eventual.DefaultLowBurst, HighBurst: eventual.DefaultHighBurst},
		HTTP: HTTP{
			Listen: "127.0.0.1:8080", Console: true, Anonymous: auth.Viewer.String(), Payloads: "all",
			Proxy: HTTPProxy{UserHeader: "X-Forwarded-User", GroupsHeader: "X-Forwarded-Groups"},
		},
		Tracing: Tracing{Sample: 0.01},
		Metrics: Metrics{Campaigns: string(progress.ShowActive)},
		Pacing: Pacing{
			MinQuantum: p.MinQuantum, MaxQuantum: p.MaxQuantum, LateTolerance: p.LateTolerance, MaxOpenAge: p.MaxOpenAge,
			MaxBufferBytes: consumer.DefaultMaxBufferBytes, ItemsPerSecond: p.ItemsPerSecond,
		},
		Retry:           Retry(p.Retry),
		Dedupe:          Dedupe{OnStoreFailure: delivery.PolicyClosed},
		UnknownGrace:    p.UnknownGrace,
		MaxWeight:       p.MaxWeight,
		MaxNotBefore:    90 * notation.Day,
		Sinks:           map[string]sink.Config{},
		Log:             Log{Level: "info", Format: "text"},
		ShutdownTimeout: 20 * time.Second,
		Watchdog:        consumer.DefaultWatchdog,
	}
}

// derive sets the settings that default to others. It returns the derived settings and their sources.
func (c *Config) derive() map[string]string {
	from := map[string]string{}
	if c.Redis.KeyPrefix == "" {
		c.Redis.KeyPrefix, from["redis.key_prefix"] = c.Kafka.TopicPrefix, "kafka.topic_prefix"
	}
	if c.Redis.Mode == "" && len(c.Redis.Addrs) <= 1 {
		c.Redis.Mode = shards.ModeSingle
	}
	if c.Redis.Mode == shards.ModeSingle && len(c.Eventual.Roots) == 0 {
		c.Eventual.Roots, from["eventual.roots"] = slices.Clone(c.Redis.Addrs), "redis.addrs"
	}
	for name, s := range c.Sinks {
		if d, ok := s.(interface{ DeriveTopics(prefix string) bool }); ok && d.DeriveTopics(c.Kafka.TopicPrefix) {
			from["sinks."+name+".responses"] = "kafka.topic_prefix"
		}
	}
	if c.DefaultSink == "" && len(c.Sinks) == 1 {
		for name := range c.Sinks {
			c.DefaultSink, from["default_sink"] = name, "sinks."+name
		}
	}
	for _, address := range []*string{&c.HTTP.Listen, &c.HTTP.MetricsListen} {
		if *address == "off" {
			*address = ""
		}
	}
	return from
}

// ResponseTopics returns the topics that sinks write to what comes back from their destinations, each once.
func (c *Config) ResponseTopics() (names []string) {
	for _, s := range c.Sinks {
		if w, ok := s.(responder); ok && w.WritesResponsesTo() != "" {
			names = append(names, w.WritesResponsesTo())
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// responder is the configuration of a sink that writes to a topic what comes back from its destination; "" for none.
type responder interface{ WritesResponsesTo() (topic string) }

// Logger returns the configured logger, which writes to w.
func (l Log) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		level = slog.LevelInfo // LoadFor has rejected any other level
	}
	opt := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// Client reads the files that t names and returns the client configuration of a connection; nil if TLS is not enabled.
// An error begins with the key of the file below the section, such as "ca_file: ".
func (t TLS) Client() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	cfg, _, err := access.Read(access.Secrets{}, func(r *access.Reader) *tls.Config { return r.TLS("", t.Certificates) })
	if err != nil {
		return nil, err
	}
	cfg.ServerName = t.ServerName
	return cfg, nil
}
