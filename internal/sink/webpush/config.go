package webpush

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/guard"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/render"
)

// Config configures a webpush sink.
type Config struct {
	httpcall.Calls
	// Key is the private key of the sender, in PEM or as 32 bytes in base64url.
	Key string `yaml:"vapid_key" secret:"value"`
	// Subject says whom a push service may ask about the sender: a mailto: or https: address.
	Subject string `yaml:"subject"`
	// Subscription is the template of the subscription, in JSON.
	Subscription string `yaml:"subscription"`
	// Body is the template of the message; "" for the payload.
	Body string `yaml:"body"`
	// TTL is how long a push service keeps a message for a user agent that is away.
	TTL time.Duration `yaml:"ttl" range:"0s..60d"`
	// Urgency and Topic are texts or templates of what a request says; "" for nothing.
	Urgency string `yaml:"urgency"`
	Topic   string `yaml:"topic"`
	// Guard says where messages may go: endpoints come from jobs.
	Guard guard.Config `yaml:"guard"`
	// Proxy is a proxy for this sink; "" for none.
	Proxy string `yaml:"proxy" secret:"url"`
}

// Default returns the configuration of a webpush sink without a key.
func Default() *Config {
	return &Config{Calls: httpcall.DefaultCalls(), Subscription: `{{ .Header "subscription" }}`, TTL: 24 * time.Hour, Guard: guard.Default()}
}

var urgencies = []string{"very-low", "low", "normal", "high"}

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	var p base.Problems
	if c.Key == "" {
		p.Add("vapid_key: required; use the private key of P-256 that browsers have subscribed with, best by file:PATH")
	} else if _, err := readKey(c.Key); err != nil {
		p.Add("vapid_key: %s", err)
	}
	if u, err := url.Parse(c.Subject); err != nil || u.Scheme != "mailto" && u.Scheme != "https" {
		p.Add("subject: required; use an address at which the push services can reach you, such as mailto:ops@example.com")
	}
	p.Texts(c.texts()...)
	p.When(c.Subscription == "", `subscription: required; use a template such as {{ .Header "subscription" }}`)
	p.OneOf("urgency", c.Urgency, urgencies)
	p.When(c.Topic != "" && !render.IsTemplate(c.Topic) && !isTopic(c.Topic), "topic: not a topic; use up to 32 letters, digits, - and _")
	p.Because("proxy", httpcall.ProxyProblem(c.Proxy))
	return append(p, c.Guard.Problems("guard.")...)
}

// texts are the settings that are texts or templates.
func (c *Config) texts() []render.Text {
	return []render.Text{
		{Key: "subscription", Text: c.Subscription}, {Key: "body", Text: c.Body}, {Key: "urgency", Text: c.Urgency}, {Key: "topic", Text: c.Topic},
	}
}

func isUrgency(s string) bool { return slices.Contains(urgencies, s) }

// isTopic reports whether a text may be a topic (RFC 8030).
func isTopic(s string) bool {
	return len(s) <= 32 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_") == ""
}
