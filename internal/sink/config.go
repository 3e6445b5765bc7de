package sink

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/pacer/pacer/internal/sink/apns"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/fcm"
	"github.com/pacer/pacer/internal/sink/hms"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/kafka"
	"github.com/pacer/pacer/internal/sink/log"
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
	// Entry returns what the router needs to know of the sink, without the sink.
	Entry() Entry
}

type (
	// Sink is a configured sink.
	Sink = base.Sink
	// Entry is a configured sink with what the router needs to know of it.
	Entry = base.Entry
	// Host is what the daemon provides to its sinks.
	Host = base.Host
	// Exchange is a request and its answer as text.
	Exchange = base.Exchange
)

// kinds are the types of sinks by name, one line each.
var kinds = map[string]kind{
	"fcm":      kindOf(fcm.Default, fcm.New),
	"hms":      kindOf(hms.Default, hms.New),
	"http":     kindOf(http.Default, http.New),
	"log":      kindOf(log.Default, log.New),
	"apns":     kindOf(apns.Default, apns.New),
	"discard":  kindOf(log.DefaultDiscard, log.NewDiscard),
	"kafka":    kindOf(kafka.Default, kafka.New),
	"smev":     kindOf(smev.Default, smev.New),
	"smtp":     kindOf(smtp.Default, smtp.New),
	"rustore":  kindOf(rustore.Default, rustore.New),
	"steps":    kindOf(steps.Default, steps.New),
	"telegram": kindOf(telegram.Default, telegram.New),
	"webpush":  kindOf(webpush.Default, webpush.New),
}

// kind is a type of sink.
type kind struct {
	config func() Config // the default configuration
	open   func(cfg Config, host Host) (Sink, error)
}

// kindOf returns the kind whose configurations are of type C. The function open makes a sink of a valid one. It reads the files
// that the configuration names, and opens no connection. An error begins with the key.
func kindOf[C Config, S Sink](config func() C, open func(cfg C, host Host) (S, error)) kind {
	return kind{
		config: func() Config { return config() },
		open:   func(cfg Config, host Host) (Sink, error) { return open(cfg.(C), host) },
	}
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

// KindOf returns the type of the sink that cfg configures; "" for one that no kind has made.
func KindOf(cfg Config) (name string) {
	for kind, k := range kinds {
		if reflect.TypeOf(k.config()) == reflect.TypeOf(cfg) {
			name = kind
		}
	}
	return name
}

// Open makes the sink that cfg describes. It reads the files that cfg names, and opens no connection.
func Open(cfg Config, host Host) (Entry, error) {
	if p := cfg.Problems(); len(p) > 0 {
		return Entry{}, errors.New(p[0])
	}
	e := cfg.Entry()
	var err error
	e.Sink, err = kinds[KindOf(cfg)].open(cfg, host)
	return e, err
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
