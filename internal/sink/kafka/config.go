package kafka

import (
	"time"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/render"
)

// Config configures a kafka sink.
type Config struct {
	// Brokers are the first brokers to contact, host:port.
	Brokers []string `yaml:"brokers" is:"address" such:"127.0.0.1:9092" most:"100"`
	// Topic is where jobs are written; none of pacer's own.
	Topic string `yaml:"topic" is:"topic" such:"orders.paced" zero:""`
	// Key is the template of a record's key; "" for the key of the job's own record.
	Key string `yaml:"key"`
	// MaxInFlight is the number of jobs of one daemon that wait for an acknowledgement.
	MaxInFlight int `yaml:"max_in_flight" range:"1..65536"`
	// Timeout bounds the time from a job's slot to its acknowledgement. The client of the brokers waits no longer than 15 s.
	Timeout time.Duration `yaml:"timeout" range:"100ms..15s"`
	// Linger is how long a job waits for others to share its request.
	Linger time.Duration `yaml:"linger" range:"0s..1s"`
	// Compression is none or zstd.
	Compression string `yaml:"compression" oneof:"none, zstd"`

	// TLS encrypts connections.
	TLS bool `yaml:"tls"`
	access.Certificates

	// SASLMechanism is plain, scram-sha-256 or scram-sha-512; "" for none.
	SASLMechanism string `yaml:"sasl_mechanism" oneof:"plain, scram-sha-256, scram-sha-512" zero:""`
	Username      string `yaml:"username"`
	Password      string `yaml:"password" secret:"value"`

	access.Secrets
}

// Compressions of batches.
const (
	plain = "none"
	zstd  = "zstd"
)

// Default returns the configuration of a kafka sink without brokers and topic. The timeout is no longer than the time that
// jobs in flight have at a rebalance, so that none is interrupted and written twice.
func Default() *Config {
	return &Config{MaxInFlight: 1024, Timeout: 3 * time.Second, Linger: 5 * time.Millisecond, Compression: plain}
}

// Entry returns what the router needs to know of the sink.
func (c *Config) Entry() base.Entry {
	return base.Entry{MaxInFlight: c.MaxInFlight, Timeout: c.Timeout}
}

// WritesTo returns the topic, so that it can be compared with pacer's own.
func (c *Config) WritesTo() string { return c.Topic }

// texts is the setting that is a template.
func (c *Config) texts() render.Text { return render.Text{Key: "key", Text: c.Key} }

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	var p base.Problems
	p.When(len(c.Brokers) == 0, "brokers: required; use one such as 127.0.0.1:9092")
	p.When(c.Topic == "", "topic: required; use the name of a topic that exists")
	p.Texts(c.texts())
	p.When(c.Linger > c.Timeout/2, "linger: %s is more than half of timeout; use a duration such as 5ms", c.Linger)
	p = append(p, c.Certificates.Problems()...)
	p.When(!c.TLS && c.Certificates != (access.Certificates{}), "tls: ca_file, cert_file and key_file have no effect without it; set it to true or remove them")
	switch named := c.Username != "" || c.Password != ""; {
	case c.SASLMechanism == "" && named:
		p.Add("sasl_mechanism: required with a username or password; use one such as scram-sha-256")
	case c.SASLMechanism != "" && (c.Username == "" || c.Password == ""):
		p.Add("username: required together with password; set both or remove sasl_mechanism")
	}
	return p
}
