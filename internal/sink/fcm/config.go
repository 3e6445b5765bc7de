package fcm

import (
	"fmt"
	"log/slog"
	"regexp"
	"time"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/http"
)

// Config configures an fcm sink.
type Config struct {
	// URL is that of the service.
	URL string `yaml:"url"`
	// Project is the id of the project; "" for the one in KeyFile.
	Project string `yaml:"project"`
	// KeyFile is the key of a service account in JSON.
	KeyFile string `yaml:"service_account_file"`
	// Bearer is a token that does not change, instead of KeyFile.
	Bearer string `yaml:"bearer" secret:"value"`
	// CAFile holds the PEM certificates that verify the service's; "" for those of the system.
	CAFile string `yaml:"ca_file"`
	// MaxInFlight is the number of concurrent requests of one daemon.
	MaxInFlight int `yaml:"max_in_flight"`
	// Timeout bounds a request, from opening the connection to the end of the answer.
	Timeout time.Duration `yaml:"timeout"`
	// MaxRetryAfter is how long a wait that the service asks for is believed.
	MaxRetryAfter time.Duration `yaml:"max_retry_after"`
	// ValidateOnly has the service check messages and deliver none.
	ValidateOnly bool `yaml:"validate_only"`
	// KeepRejected makes dead letters of rejected jobs.
	KeepRejected bool `yaml:"keep_rejected"`

	secrets access.Secrets
}

// SecretFrom says how to read a secret that comes from a file.
func (c *Config) SecretFrom(key string, read func() (string, error)) { c.secrets.From(key, read) }

// Default returns the configuration of an fcm sink without a key.
func Default() *Config {
	return &Config{URL: "https://fcm.googleapis.com", MaxInFlight: 256, Timeout: 10 * time.Second, MaxRetryAfter: 5 * time.Minute}
}

// InFlight returns the number of deliveries that may be in flight at once.
func (c *Config) InFlight() int { return c.MaxInFlight }

const (
	minTimeout    = 100 * time.Millisecond
	maxTimeout    = 10 * time.Minute
	maxRetryAfter = 24 * time.Hour
	connAge       = 30 * time.Minute
)

var projectPattern = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,99}$`)

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	var p []string
	add := func(format string, args ...any) { p = append(p, fmt.Sprintf(format, args...)) }
	if why := http.URLProblem(c.URL); why != "" {
		add("url: %s", why)
	}
	switch {
	case c.KeyFile == "" && c.Bearer == "":
		add("service_account_file: required; name the JSON file of a service account's key")
	case c.KeyFile != "" && c.Bearer != "":
		add("bearer: goes not together with service_account_file; remove one")
	case c.KeyFile == "" && c.Project == "":
		add("project: required with bearer; use the project's id")
	}
	if c.Project != "" && !projectPattern.MatchString(c.Project) {
		add("project: not the id of a project; use letters, digits, - and _")
	}
	if c.Timeout < minTimeout || c.Timeout > maxTimeout {
		add("timeout: %s is out of range; use a duration between %s and %s, such as 10s", c.Timeout, minTimeout, maxTimeout)
	}
	if c.MaxRetryAfter < time.Second || c.MaxRetryAfter > maxRetryAfter {
		add("max_retry_after: %s is out of range; use a duration between 1s and %s, such as 5m", c.MaxRetryAfter, maxRetryAfter)
	}
	return p
}

// String returns the configuration without its secrets.
func (c *Config) String() string {
	return fmt.Sprintf("{url: %s, project: %s, service_account_file: %s, max_in_flight: %d, timeout: %s, ca_file: %s, validate_only: %t}",
		http.Redacted(c.URL), c.Project, c.KeyFile, c.MaxInFlight, c.Timeout, c.CAFile, c.ValidateOnly)
}

// GoString keeps secrets out of %#v.
func (c *Config) GoString() string { return c.String() }

// LogValue implements slog.LogValuer, without secrets.
func (c *Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
