package app

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/limits"
	"github.com/pacer/pacer/internal/sink"
)

// Config is everything that can be configured. The `koanf` tag of a field is its key in the file, and "PACER_" with the
// path in capitals its environment variable; docs/configuration.md describes each, and a test keeps that page
// complete. A Config comes from Load, which has validated it; Require says whether what a command needs is there.
//
// It may be logged and printed: secrets do not show.
type Config struct {
	Kafka    KafkaConfig    `koanf:"kafka"`
	Redis    RedisConfig    `koanf:"redis"`
	Eventual EventualConfig `koanf:"eventual"`
	Postgres PostgresConfig `koanf:"postgres"`
	HTTP     HTTPConfig     `koanf:"http"`
	Pacing   PacingConfig   `koanf:"pacing"`
	Retry    RetryConfig    `koanf:"retry"`
	Dedupe   DedupeConfig   `koanf:"dedupe"`

	UnknownGrace time.Duration `koanf:"unknown_grace"` // how long jobs of an unknown campaign wait for it to appear
	MaxWeight    int64         `koanf:"max_weight"`    // the largest pacer-weight

	DefaultSink string                 `koanf:"default_sink"` // of campaigns that name none; the only sink where there is one
	Sinks       map[string]sink.Config `koanf:"-"`            // by name; keys depend on the sink's type

	Log             LogConfig     `koanf:"log"`
	ShutdownTimeout time.Duration `koanf:"shutdown_timeout"` // of a graceful stop
	Watchdog        time.Duration `koanf:"watchdog"`         // how long a partition may make no progress though it could
	AdminToken      Secret        `koanf:"admin_token"`      // without one, the HTTP API is read-only
}

// KafkaConfig says where jobs come from and where waiting ones are kept.
type KafkaConfig struct {
	Brokers           []string        `koanf:"brokers"`
	Topics            []string        `koanf:"topics"` // ingress
	Group             string          `koanf:"group"`
	TopicPrefix       string          `koanf:"topic_prefix"` // of the topics that pacer owns
	Lanes             int             `koanf:"lanes"`
	TimerDelays       []time.Duration `koanf:"timer_delays"`
	ReplicationFactor int             `koanf:"replication_factor"` // 0: min(3, brokers)
	Results           bool            `koanf:"results"`            // write an event for each job that is settled for good
	TLS               TLSConfig       `koanf:"tls"`
	SASL              SASLConfig      `koanf:"sasl"`
}

// SASLConfig is how pacer proves to Kafka who it is; Mechanism "" means not at all.
type SASLConfig struct {
	Mechanism string `koanf:"mechanism"` // plain, scram-sha-256, scram-sha-512
	Username  string `koanf:"username"`
	Password  Secret `koanf:"password"`
}

// TLSConfig is a connection's encryption. In the file, `tls: true` stands for `tls: {enabled: true}`.
type TLSConfig struct {
	Enabled    bool   `koanf:"enabled"`
	CAFile     string `koanf:"ca_file"`     // "": the system's authorities
	CertFile   string `koanf:"cert_file"`   // of pacer itself, together with KeyFile
	KeyFile    string `koanf:"key_file"`    //
	ServerName string `koanf:"server_name"` // "": the host that is connected to
}

// RedisConfig says where limits are kept.
type RedisConfig struct {
	Addrs      []string  `koanf:"addrs"`       // host:port; in a ring also master|replica
	Mode       string    `koanf:"mode"`        // single, cluster, sentinel, ring
	MasterName string    `koanf:"master_name"` // sentinel only
	Shards     int       `koanf:"shards"`      // hash tags that keys are spread over; 0: the mode's default
	KeyPrefix  string    `koanf:"key_prefix"`  // Kafka.TopicPrefix unless set
	Username   string    `koanf:"username"`
	Password   Secret    `koanf:"password"`
	DB         int       `koanf:"db"`
	TLS        TLSConfig `koanf:"tls"`

	SentinelUsername string `koanf:"sentinel_username"` // of the sentinels themselves
	SentinelPassword Secret `koanf:"sentinel_password"`
}

// EventualConfig is how daemons tell each other what they have sent under quotas of mode eventual. The bursts say how
// far ahead of such a quota's limit all daemons together may be, as the time in which the limit gives as much.
type EventualConfig struct {
	Roots     []string      `koanf:"roots"`      // independent Redis servers, host:port; Redis.Addrs in mode single unless set
	Sync      time.Duration `koanf:"sync"`       // between two exchanges with a root
	LowBurst  time.Duration `koanf:"low_burst"`  // from here on jobs begin to wait
	HighBurst time.Duration `koanf:"high_burst"` // from here on all wait
}

// PostgresConfig says where campaigns and quotas are kept.
type PostgresConfig struct {
	DSN Secret `koanf:"dsn"`
}

// HTTPConfig is the address of the console, health and metrics; "" for none.
type HTTPConfig struct {
	Listen string `koanf:"listen"`
}

// PacingConfig bounds the pacing core.
type PacingConfig struct {
	MinQuantum     time.Duration `koanf:"min_quantum"`
	MaxQuantum     time.Duration `koanf:"max_quantum"`
	LateTolerance  time.Duration `koanf:"late_tolerance"`
	MaxOpenAge     time.Duration `koanf:"max_open_age"`
	MaxBufferBytes Size          `koanf:"max_buffer_bytes"`
	ItemsPerSecond int           `koanf:"items_per_second"`
}

// RetryConfig is the back-off of attempts that failed for now.
type RetryConfig struct {
	MaxAttempts int           `koanf:"max_attempts"`
	Initial     time.Duration `koanf:"initial"`
	Max         time.Duration `koanf:"max"`
	Jitter      float64       `koanf:"jitter"`
}

// DedupeConfig says for how long delivered jobs are remembered, so that none is sent again under its id.
type DedupeConfig struct {
	TTL            time.Duration `koanf:"ttl"`              // 0: not at all
	OnStoreFailure string        `koanf:"on_store_failure"` // closed, open
}

// LogConfig is what the daemon writes to standard error.
type LogConfig struct {
	Level  string `koanf:"level"`  // debug, info, warn, error
	Format string `koanf:"format"` // text, json
}

// Default is the configuration that nobody changed: the only place where defaults stand, except those of sinks, which
// are their packages'.
func Default() *Config {
	return &Config{
		Kafka: KafkaConfig{
			Group:       "pacer",
			TopicPrefix: "pacer.",
			Topics:      []string{"pacer.jobs"},
			Lanes:       256,
			TimerDelays: []time.Duration{5 * time.Second, 30 * time.Second, 5 * time.Minute, 30 * time.Minute, 6 * time.Hour},
		},
		Eventual: EventualConfig{Sync: time.Second, LowBurst: time.Second, HighBurst: 2 * time.Second},
		HTTP:     HTTPConfig{Listen: "127.0.0.1:8080"},
		Pacing: PacingConfig{
			MinQuantum:     25 * time.Millisecond,
			MaxQuantum:     time.Second,
			LateTolerance:  20 * time.Millisecond,
			MaxOpenAge:     5 * time.Second,
			MaxBufferBytes: 64 << 20,
			ItemsPerSecond: 20_000,
		},
		Retry:           RetryConfig{MaxAttempts: 8, Initial: 5 * time.Second, Max: 30 * time.Minute, Jitter: 0.2},
		Dedupe:          DedupeConfig{OnStoreFailure: delivery.PolicyClosed},
		UnknownGrace:    10 * time.Minute,
		MaxWeight:       delivery.MaxWeight,
		Sinks:           map[string]sink.Config{},
		Log:             LogConfig{Level: "info", Format: "text"},
		ShutdownTimeout: 20 * time.Second,
		Watchdog:        defaultWatchdog,
	}
}

// derive fills in what follows from other settings.
func (c *Config) derive() {
	if c.Redis.KeyPrefix == "" {
		c.Redis.KeyPrefix = c.Kafka.TopicPrefix
	}
	if c.Redis.Mode == "" && len(c.Redis.Addrs) <= 1 {
		c.Redis.Mode = limits.ModeSingle
	}
	if c.Redis.Mode == limits.ModeSingle && len(c.Eventual.Roots) == 0 {
		c.Eventual.Roots = slices.Clone(c.Redis.Addrs)
	}
	if c.DefaultSink == "" && len(c.Sinks) == 1 {
		for name := range c.Sinks {
			c.DefaultSink = name
		}
	}
	if c.HTTP.Listen == "off" {
		c.HTTP.Listen = ""
	}
}

// Logger is the logger that the configuration describes, writing to w.
func (l LogConfig) Logger(w io.Writer) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		level = slog.LevelInfo // Load has refused anything else
	}
	opt := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, opt))
	}
	return slog.New(slog.NewTextHandler(w, opt))
}

// Client reads the files that t names and makes the client's side of a connection; nil when TLS is not enabled. An
// error begins with the key of the file below the section, such as "ca_file: ".
func (t TLSConfig) Client() (*tls.Config, error) {
	if !t.Enabled {
		return nil, nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: t.ServerName}
	if t.CAFile != "" {
		pem, err := os.ReadFile(t.CAFile)
		if err != nil {
			return nil, fmt.Errorf("ca_file: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("ca_file: " + t.CAFile + " holds no PEM certificate")
		}
	}
	if t.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(t.CertFile, t.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("cert_file: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return cfg, nil
}
