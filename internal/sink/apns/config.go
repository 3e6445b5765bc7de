package apns

import (
	"regexp"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/render"
)

// Config configures an apns sink.
type Config struct {
	// Environment is production or sandbox.
	Environment string `yaml:"environment" oneof:"production, sandbox"`
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
	StoreFor time.Duration `yaml:"store_for" range:"0s..30d"`

	// Connections is how many connections one daemon has.
	Connections int `yaml:"connections" range:"1..64"`
	base.Limits
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
		Environment: "production", PushType: "alert", Token: `{{ .Header "device-token" }}`, Connections: 2,
		Limits: base.Limits{MaxInFlight: 500, Timeout: 3 * time.Second, MaxRetryAfter: 5 * time.Minute},
	}
}

var idPattern = regexp.MustCompile(`^[A-Z0-9]{1,32}$`)

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	var p base.Problems
	if c.URL != "" {
		p.Because("url", httpcall.SecureProblem(c.URL))
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
	p.Texts(c.texts()...)
	for _, t := range c.texts() {
		missing := t.Text == "" && t.Key != "priority" && t.Key != "collapse_id"
		p.When(missing, "%s: required; use a text or a template such as {{ .Header \"%[1]s\" }}", t.Key)
	}
	p.OneOf("push_type", c.PushType, pushTypes)
	p.OneOf("priority", c.Priority, priorities)
	return p
}

var (
	pushTypes  = []string{"alert", "background", "voip", "complication", "fileprovider", "mdm", "liveactivity", "pushtotalk", "location", "controls", "widgets"}
	priorities = []string{"10", "5", "1"}
)

// texts are the settings that are texts or templates.
func (c *Config) texts() []render.Text {
	return []render.Text{
		{Key: "topic", Text: c.Topic}, {Key: "push_type", Text: c.PushType}, {Key: "priority", Text: c.Priority},
		{Key: "collapse_id", Text: c.CollapseID}, {Key: "token", Text: c.Token},
	}
}

// byJob reports whether a setting is a template.
func (c *Config) byJob(key string) bool {
	return slices.ContainsFunc(c.texts(), func(t render.Text) bool { return t.Key == key && render.IsTemplate(t.Text) })
}
