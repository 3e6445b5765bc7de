package apns

import (
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/render"
)

// Config configures an apns sink.
type Config struct {
	// Environment is production or sandbox.
	Environment string `yaml:"environment"`
	// URL is that of the service, instead of the environment's.
	URL string `yaml:"url" secret:"url"`

	// AuthKeyFile is the signing key (.p8), KeyID its id and TeamID that of the team.
	AuthKeyFile string `yaml:"auth_key_file"`
	KeyID       string `yaml:"key_id"`
	TeamID      string `yaml:"team_id"`
	// Certificates are those of the service, and the one that stands for the sink instead of a signing key.
	access.Certificates

	// Topic, PushType, Priority, CollapseID and Token are texts or templates of what a request says.
	Topic      string `yaml:"topic"`
	PushType   string `yaml:"push_type"`
	Priority   string `yaml:"priority"`
	CollapseID string `yaml:"collapse_id"`
	Token      string `yaml:"token"`
	// StoreFor is how long the service keeps a notification for a device that is off; 0 for what it likes.
	StoreFor time.Duration `yaml:"store_for"`

	// Connections is how many connections one daemon has.
	Connections int `yaml:"connections"`
	// MaxInFlight is the number of concurrent requests of one daemon.
	MaxInFlight int `yaml:"max_in_flight"`
	// Timeout bounds a request, from opening the connection to the end of the answer.
	Timeout time.Duration `yaml:"timeout"`
	// MaxRetryAfter is how long a wait that the service asks for is believed.
	MaxRetryAfter time.Duration `yaml:"max_retry_after"`
	// KeepRejected makes dead letters of rejected jobs.
	KeepRejected bool `yaml:"keep_rejected"`
}

// The environments, and where they are.
var environments = map[string]string{
	"production": "https://api.push.apple.com",
	"sandbox":    "https://api.sandbox.push.apple.com",
}

// Default returns the configuration of an apns sink without a key and a topic. The timeout is no longer than the time that
// requests in flight have at a rebalance.
func Default() *Config {
	return &Config{ //nolint:gosec // Token is the template of a header, no credential
		Environment: "production", PushType: "alert", Token: `{{ .Header "device-token" }}`, Connections: 2, MaxInFlight: 500,
		Timeout: 3 * time.Second, MaxRetryAfter: 5 * time.Minute,
	}
}

// Entry returns what the router needs to know of the sink.
func (c *Config) Entry() base.Entry {
	return base.Entry{MaxInFlight: c.MaxInFlight, Timeout: c.Timeout, MaxRetryAfter: c.MaxRetryAfter, KeepRejected: c.KeepRejected}
}

const (
	maxStore       = 30 * 24 * time.Hour
	maxConnections = 64
)

var idPattern = regexp.MustCompile(`^[A-Z0-9]{1,32}$`)

// target is where requests go.
func (c *Config) target() string {
	if c.URL != "" {
		return c.URL
	}
	return environments[c.Environment]
}

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	var p base.Problems
	if _, ok := environments[c.Environment]; !ok {
		p.Add("environment: unknown; use production or sandbox")
	}
	if c.URL != "" {
		if why := http.URLProblem(c.URL); why != "" {
			p.Add("url: %s", why)
		} else if !strings.HasPrefix(c.URL, "https://") {
			p.Add("url: must begin with https://")
		}
	}
	switch {
	case c.AuthKeyFile == "" && c.CertFile == "":
		p.Add("auth_key_file: required; name the file of a signing key (.p8), or use cert_file and key_file")
	case c.AuthKeyFile != "" && c.CertFile != "":
		p.Add("cert_file: goes not together with auth_key_file; remove one")
	case c.AuthKeyFile != "" && (!idPattern.MatchString(c.KeyID) || !idPattern.MatchString(c.TeamID)):
		p.Add("key_id: required with auth_key_file, as is team_id; use ids such as ABC123DEFG")
	}
	p = append(p, c.Certificates.Problems()...)
	for _, t := range c.texts() {
		if t.text == "" && t.required {
			p.Add("%s: required; use a text or a template such as {{ .Header \"%s\" }}", t.key, t.key)
		} else if _, err := render.Parse(t.key, t.text, render.Plain); t.text != "" && err != nil {
			p.Add("%s: %s", t.key, err)
		} else if t.allowed != nil && t.text != "" && !render.IsTemplate(t.text) && !slices.Contains(t.allowed, t.text) {
			p.Add("%s: unknown; use one of %s", t.key, strings.Join(t.allowed, ", "))
		}
	}
	if c.StoreFor < 0 || c.StoreFor > maxStore {
		p.Add("store_for: %s is out of range; use a duration up to 30d, or 0 for what the service likes", c.StoreFor)
	}
	p.Number("connections", c.Connections, maxConnections)
	p.Timeout(c.Timeout, "3s")
	p.MaxRetryAfter(c.MaxRetryAfter)
	return p
}

// text is a setting that is a text or a template.
type text struct {
	key, text string
	required  bool
	allowed   []string // nil: any
}

var (
	pushTypes  = []string{"alert", "background", "voip", "complication", "fileprovider", "mdm", "liveactivity", "pushtotalk", "location", "controls", "widgets"}
	priorities = []string{"10", "5", "1"}
)

func (c *Config) texts() []text {
	return []text{
		{"topic", c.Topic, true, nil}, {"push_type", c.PushType, true, pushTypes}, {"priority", c.Priority, false, priorities},
		{"collapse_id", c.CollapseID, false, nil}, {"token", c.Token, true, nil},
	}
}
