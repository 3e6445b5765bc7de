package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/apns"
	"github.com/pacer/pacer/internal/sink/discard"
	"github.com/pacer/pacer/internal/sink/fcm"
	"github.com/pacer/pacer/internal/sink/hms"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/kafka"
	"github.com/pacer/pacer/internal/sink/log"
	"github.com/pacer/pacer/internal/sink/record"
	"github.com/pacer/pacer/internal/sink/rustore"
	"github.com/pacer/pacer/internal/sink/smev"
	"github.com/pacer/pacer/internal/sink/smtp"
	"github.com/pacer/pacer/internal/sink/steps"
	"github.com/pacer/pacer/internal/sink/telegram"
	"github.com/pacer/pacer/internal/sink/webpush"
)

// Config is the configuration of one sink, of the type that its kind declares. The `yaml` tags of its fields are their
// keys, and `secret` tags mark values that must never be shown.
type Config interface {
	// Problems returns the errors in the configuration, one line each, beginning with the key.
	Problems() []string
	// InFlight returns max_in_flight.
	InFlight() int
}

// kinds are the types of sinks by name, one line each.
var kinds = map[string]kind{
	"fcm":      kindOf(fcm.Default, openFCM),
	"hms":      kindOf(hms.Default, openHMS),
	"http":     kindOf(http.Default, openHTTP),
	"log":      kindOf(log.Default, openLog),
	"apns":     kindOf(apns.Default, openAPNs),
	"discard":  kindOf(discard.Default, openDiscard),
	"kafka":    kindOf(kafka.Default, openKafka),
	"smev":     kindOf(smev.Default, openSMEV),
	"smtp":     kindOf(smtp.Default, openSMTP),
	"rustore":  kindOf(rustore.Default, openRuStore),
	"steps":    kindOf(steps.Default, openSteps),
	"telegram": kindOf(telegram.Default, openTelegram),
	"webpush":  kindOf(webpush.Default, openWebPush),
}

// kind is a type of sink.
type kind struct {
	config func() Config // the default configuration
	has    func(cfg Config) bool
	open   func(cfg Config, host Host) (Entry, error)
}

// kindOf returns the kind whose configurations are of type C. The function open makes a sink of a valid one; it may leave
// MaxInFlight out of the entry. It reads the files that the configuration names, and opens no connection. An error begins
// with the key.
func kindOf[C Config](config func() C, open func(cfg C, host Host) (Entry, error)) kind {
	return kind{
		config: func() Config { return config() },
		has:    func(cfg Config) bool { _, ok := cfg.(C); return ok },
		open:   func(cfg Config, host Host) (Entry, error) { return open(cfg.(C), host) },
	}
}

func openHTTP(c *http.Config, host Host) (Entry, error) {
	s, err := http.New(http.Options{Config: *c, Version: host.Version, Logger: host.Logger, Endpoints: host.Endpoints})
	if err != nil {
		return Entry{}, err
	}
	return Entry{
		Sink: s, Timeout: c.Timeout, MaxRetryAfter: c.MaxRetryAfter, KeepRejected: c.KeepRejected,
		Destinations: c.Destinations, DisableAfter: c.DisableAfter,
	}, nil
}

func openAPNs(c *apns.Config, host Host) (Entry, error) {
	s, err := apns.New(apns.Options{Config: *c, Version: host.Version, Logger: host.Logger})
	if err != nil {
		return Entry{}, err
	}
	return Entry{Sink: s, Timeout: c.Timeout, MaxRetryAfter: c.MaxRetryAfter, KeepRejected: c.KeepRejected}, nil
}

func openFCM(c *fcm.Config, host Host) (Entry, error) {
	s, err := fcm.New(fcm.Options{Config: *c, Version: host.Version, Logger: host.Logger})
	return ofService(s, c.Calls, err)
}

func openKafka(c *kafka.Config, host Host) (Entry, error) {
	s, err := kafka.New(kafka.Options{Config: *c, Logger: host.Logger})
	if err != nil {
		return Entry{}, err
	}
	return Entry{Sink: s, Timeout: c.Timeout}, nil
}

func openSMEV(c *smev.Config, host Host) (Entry, error) {
	s, err := smev.New(smev.Options{Config: *c, Version: host.Version, Logger: host.Logger, Writer: host.Writer})
	e, err := ofService(s, c.Calls, err)
	e.FollowUps = c.Poll.PerSecond
	return e, err
}

func openSMTP(c *smtp.Config, host Host) (Entry, error) {
	s, err := smtp.New(smtp.Options{Config: *c, Logger: host.Logger})
	if err != nil {
		return Entry{}, err
	}
	return Entry{Sink: s, Timeout: c.Timeout, MaxRetryAfter: c.MaxRetryAfter, KeepRejected: c.KeepRejected}, nil
}

func openHMS(c *hms.Config, host Host) (Entry, error) {
	s, err := hms.New(hms.Options{Config: *c, Version: host.Version, Logger: host.Logger})
	return ofService(s, c.Calls, err)
}

func openRuStore(c *rustore.Config, host Host) (Entry, error) {
	s, err := rustore.New(rustore.Options{Config: *c, Version: host.Version, Logger: host.Logger})
	return ofService(s, c.Calls, err)
}

func openSteps(c *steps.Config, host Host) (Entry, error) {
	s, err := steps.New(steps.Options{Config: *c, Version: host.Version, Logger: host.Logger})
	if err != nil {
		return Entry{}, err
	}
	// A step may be two calls: its lookup, and itself.
	return Entry{Sink: s, Timeout: 2 * c.Timeout, MaxRetryAfter: c.MaxRetryAfter, KeepRejected: c.KeepRejected, FollowUps: c.PollsPerSecond}, nil
}

func openTelegram(c *telegram.Config, host Host) (Entry, error) {
	s, err := telegram.New(telegram.Options{Config: *c, Version: host.Version, Logger: host.Logger})
	return ofService(s, c.Calls, err)
}

func openWebPush(c *webpush.Config, host Host) (Entry, error) {
	s, err := webpush.New(webpush.Options{Config: *c, Version: host.Version, Logger: host.Logger})
	return ofService(s, c.Calls, err)
}

// ofService is the entry of a sink that sends to a service.
func ofService(s Sink, c http.Calls, err error) (Entry, error) {
	return Entry{Sink: s, Timeout: c.Timeout, MaxRetryAfter: c.MaxRetryAfter, KeepRejected: c.KeepRejected}, err
}

func openLog(c *log.Config, host Host) (Entry, error) {
	return Entry{Sink: recorded(c.Record, log.New(host.Logger), host.Logger)}, nil
}

func openDiscard(c *discard.Config, host Host) (Entry, error) {
	return Entry{Sink: recorded(c.Record, discard.Sink{}, host.Logger)}, nil
}

// Kinds returns the types that a sink may have.
func Kinds() []string { return slices.Sorted(maps.Keys(kinds)) }

// NewConfig returns the default configuration of a sink of the given type; ok is false for an unknown one.
func NewConfig(name string) (cfg Config, ok bool) {
	k, ok := kinds[name]
	if !ok {
		return nil, false
	}
	return k.config(), true
}

// KindOf returns the type of the sink that cfg configures.
func KindOf(cfg Config) string {
	for name, k := range kinds {
		if k.has(cfg) {
			return name
		}
	}
	return fmt.Sprintf("%T", cfg)
}

// maxInFlight bounds max_in_flight: each delivery in flight takes a goroutine, and for http a connection.
const maxInFlight = 65_536

// Problems returns the errors in the configuration of one sink, one line each, beginning with the key.
func Problems(cfg Config) []string {
	p := cfg.Problems()
	if n := cfg.InFlight(); n < 1 || n > maxInFlight {
		p = append(p, fmt.Sprintf("max_in_flight: %d is out of range; use a number between 1 and %d", n, maxInFlight))
	}
	return p
}

// Host is what the daemon provides to its sinks.
type Host struct {
	Version string // of pacer
	Logger  *slog.Logger
	Writer  Writer // nil where there is no daemon
	// Endpoints looks destinations of pacer.destinations up, nil for one that is not known; nil where there are none.
	Endpoints func(id string) *delivery.Destination
}

// Writer writes a record to a topic of the daemon's own Kafka, in the partition of its key. It returns nil once all in-sync
// replicas have it, and tooLarge if the topic never takes it.
type Writer interface {
	Write(ctx context.Context, topic string, record delivery.Record) (tooLarge bool, err error)
}

// Open makes the sink that cfg describes. It reads the files that cfg names, and opens no connection.
func Open(cfg Config, host Host) (Entry, error) {
	if p := Problems(cfg); len(p) > 0 {
		return Entry{}, errors.New(p[0])
	}
	k, ok := kinds[KindOf(cfg)]
	if !ok {
		return Entry{}, fmt.Errorf("type: no sink is made from a %T", cfg)
	}
	e, err := k.open(cfg, host)
	if err != nil {
		return Entry{}, err
	}
	e.MaxInFlight = cfg.InFlight()
	return e, nil
}

// OpenAll opens every sink of the configuration, by name. The error names the sink's key.
func OpenAll(configs map[string]Config, host Host) (map[string]Entry, error) {
	entries := make(map[string]Entry, len(configs))
	for _, name := range slices.Sorted(maps.Keys(configs)) {
		e, err := Open(configs[name], host)
		if err != nil {
			return nil, fmt.Errorf("sinks.%s.%w", name, err)
		}
		entries[name] = e
	}
	return entries, nil
}

func recorded(path string, s Sink, logger *slog.Logger) Sink {
	if path == "" {
		return s
	}
	return record.New(path, s, logger)
}
