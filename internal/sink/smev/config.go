package smev

import (
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/render"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// Config configures a smev sink.
type Config struct {
	// Mode is adapter or direct.
	Mode string `yaml:"mode"`
	// Service has the URL of the adapter (above its methods, if it is called by REST), or of SMEV's service.
	http.Service
	// CertFile and KeyFile are the PEM certificate that the sink shows to the destination, and its key; "" for none.
	CertFile string `yaml:"cert_file"`
	KeyFile  string `yaml:"key_file"`
	// TestMessage marks requests as tests.
	TestMessage bool `yaml:"test_message"`
	// NodeID names a node of the information system; "" for none.
	NodeID string `yaml:"node_id"`
	// Attachments is a template that makes the list of a job's attachments, in JSON; "" for none.
	Attachments string `yaml:"attachments"`
	// Responses is the topic that responses are written to; "" for one that begins with kafka.topic_prefix.
	Responses string `yaml:"responses"`

	// Protocol is how the adapter is called: rest or soap; adapter only.
	Protocol string `yaml:"protocol"`
	// ITSystem is the mnemonic of the information system; adapter only.
	ITSystem string `yaml:"it_system"`
	// Wait is what a job is delivered by: accepted or response; adapter only.
	Wait string `yaml:"wait"`
	// Poll says how often the adapter is asked for a response, and Deadline for how long; adapter only.
	Poll     Poll          `yaml:"poll"`
	Deadline time.Duration `yaml:"deadline"`

	// Version is that of SMEV's contract; direct only.
	Version string  `yaml:"version"`
	Signer  Signer  `yaml:"signer"`  // direct only
	Collect Collect `yaml:"collect"` // direct only

	secrets access.Secrets
}

// Poll says how often the adapter is asked for a response: after Every, and then ever more rarely, to once in Max.
type Poll struct {
	Every     time.Duration `yaml:"every"`
	Max       time.Duration `yaml:"max"`
	PerSecond int           `yaml:"per_second"` // of one daemon
}

// Signer signs calls; without a URL, they are not signed.
type Signer struct {
	URL    string `yaml:"url"`
	Bearer string `yaml:"bearer" secret:"value"`
	// CAFile holds the PEM certificates that verify the signer's; "" for those of the system.
	CAFile string `yaml:"ca_file"`
}

// Collect says how responses are taken from SMEV's queue.
type Collect struct {
	Enabled bool `yaml:"enabled"`
	// Interval is between two looks at an empty queue.
	Interval time.Duration `yaml:"interval"`
	// Parallel is how many responses are taken at once while there are some.
	Parallel int `yaml:"parallel"`
	// Types are the root elements of the responses that are taken, as {namespace}name; none: any.
	Types []string `yaml:"types"`
}

// The modes, how an adapter is called, and what an adapter's job is delivered by.
const (
	modeAdapter = "adapter"
	modeDirect  = "direct"

	protocolREST = "rest"
	protocolSOAP = "soap"

	waitAccepted = "accepted"
	waitResponse = "response"
)

// SecretFrom says how to read a secret that comes from a file.
func (c *Config) SecretFrom(key string, read func() (string, error)) { c.secrets.From(key, read) }

// Default returns the configuration of a smev sink without a URL.
func Default() *Config {
	return &Config{
		Mode: modeAdapter, Service: http.Service{Calls: http.Calls{MaxInFlight: 64, Timeout: 10 * time.Second, MaxRetryAfter: 5 * time.Minute}}, Version: "1.3",
		Protocol: protocolREST, Wait: waitResponse, Poll: Poll{Every: 30 * time.Second, Max: 10 * time.Minute, PerSecond: 20}, Deadline: 72 * time.Hour,
		Collect: Collect{Enabled: true, Interval: time.Second, Parallel: 4},
	}
}

// DeriveTopics sets the topic of the responses, unless it is configured.
func (c *Config) DeriveTopics(prefix string) (derived bool) {
	if c.Responses != "" || !c.keepsResponses() {
		return false
	}
	c.Responses = prefix + "smev.responses"
	return true
}

// keepsResponses tells whether responses come to this sink.
func (c *Config) keepsResponses() bool {
	return c.Mode == modeDirect && c.Collect.Enabled || c.Mode == modeAdapter && c.Wait == waitResponse
}

// WritesResponsesTo returns the topic that responses are written to; "" for none.
func (c *Config) WritesResponsesTo() string {
	if !c.keepsResponses() {
		return ""
	}
	return c.Responses
}

const (
	connAge = 30 * time.Minute

	minPoll     = 100 * time.Millisecond
	maxPoll     = 24 * time.Hour
	maxPolls    = 10_000
	maxDeadline = 90 * 24 * time.Hour
	minInterval = 10 * time.Millisecond
	maxInterval = time.Hour
	maxParallel = 64
	maxTypes    = 64
)

const maxType = 1200 // of a type's bytes

var typePattern = regexp.MustCompile(`^\{([^{}\s]+)\}([^\s{}:<>&]+)$`)

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	p := problems(c.Service.Problems())
	p = append(p, c.certificates().Problems()...)
	if len(c.NodeID) > 50 || strings.ContainsFunc(c.NodeID, func(r rune) bool { return r <= ' ' || r > '~' }) {
		p.add("node_id: use at most 50 printable ASCII characters without spaces")
	}
	if c.Responses != "" && !notation.IsTopic(c.Responses) {
		p.add("responses: not a name for a topic; use at most 249 letters, digits, dots, - and _")
	}
	if _, err := render.Parse("attachments", c.Attachments, render.Plain); c.Attachments != "" && err != nil {
		p.add("attachments: %s", err)
	}
	switch c.Mode {
	case modeDirect:
		c.directProblems(&p)
	case modeAdapter:
		c.adapterProblems(&p)
	default:
		p.add("mode: unknown; use one of %s, %s", modeAdapter, modeDirect)
	}
	return p
}

func (c *Config) directProblems(p *problems) {
	if !slices.Contains(soap.Versions, c.Version) {
		p.add("version: unknown; use one of %s", strings.Join(soap.Versions, ", "))
	}
	if s := c.Signer; s.URL != "" {
		if why := http.URLProblem(s.URL); why != "" {
			p.add("signer.url: %s", why)
		}
	} else if s != (Signer{}) {
		p.add("signer.url: required with the other keys of signer; set it or remove them")
	}
	p.between("collect.interval", c.Collect.Interval, minInterval, maxInterval, "1s")
	if n := c.Collect.Parallel; n < 1 || n > maxParallel {
		p.add("collect.parallel: %d is out of range; use a number between 1 and %d", n, maxParallel)
	}
	if n := len(c.Collect.Types); n > maxTypes {
		p.add("collect.types: %d of them; use at most %d", n, maxTypes)
	}
	for i, t := range c.Collect.Types {
		if len(t) > maxType || !typePattern.MatchString(t) {
			p.add("collect.types: item %d is not {namespace}name; use one such as {urn://example/1.0}Response", i+1)
		}
	}
}

var systemPattern = regexp.MustCompile(`^[!-~]{1,100}$`)

func (c *Config) adapterProblems(p *problems) {
	if !systemPattern.MatchString(c.ITSystem) {
		p.add("it_system: required; use the mnemonic of the information system, such as RND001")
	}
	if c.Protocol != protocolREST && c.Protocol != protocolSOAP {
		p.add("protocol: unknown; use one of %s, %s", protocolREST, protocolSOAP)
	}
	if c.Wait != waitAccepted && c.Wait != waitResponse {
		p.add("wait: unknown; use one of %s, %s", waitAccepted, waitResponse)
	}
	p.between("poll.every", c.Poll.Every, minPoll, maxPoll, "30s")
	p.between("poll.max", c.Poll.Max, c.Poll.Every, maxPoll, "10m")
	if n := c.Poll.PerSecond; n < 1 || n > maxPolls {
		p.add("poll.per_second: %d is out of range; use a number between 1 and %d", n, maxPolls)
	}
	p.between("deadline", c.Deadline, time.Second, maxDeadline, "72h")
}

// selectors returns what GetResponse is asked for.
func (c *Collect) selectors() (list []soap.Selector) {
	for _, t := range c.Types {
		if m := typePattern.FindStringSubmatch(t); m != nil {
			list = append(list, soap.Selector{Namespace: m[1], Element: m[2]})
		}
	}
	if len(list) == 0 {
		list = []soap.Selector{{}}
	}
	return list
}

// problems are the errors in a configuration.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }

func (p *problems) between(key string, d, low, high time.Duration, example string) {
	if d < low || d > high {
		p.add("%s: %s is out of range; use a duration between %s and %s, such as %s", key, d, low, high, example)
	}
}

// certificates are the files of connections to the destination.
func (c *Config) certificates() access.Certificates {
	return access.Certificates{CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile}
}

// String returns the configuration without its secrets.
func (c *Config) String() string {
	return fmt.Sprintf("{mode: %s, %s, cert_file: %s, key_file: %s, test_message: %t, node_id: %s, attachments: %q, responses: %s, protocol: %s, it_system: %s, wait: %s, poll: %+v, deadline: %s, version: %s, signer: %s, collect: %+v}",
		c.Mode, c.Text(), c.CertFile, c.KeyFile, c.TestMessage, c.NodeID, c.Attachments, c.Responses, c.Protocol, c.ITSystem, c.Wait, c.Poll, c.Deadline, c.Version, http.Redacted(c.Signer.URL), c.Collect)
}

// GoString keeps secrets out of %#v.
func (c *Config) GoString() string { return c.String() }

// LogValue implements slog.LogValuer, without secrets.
func (c *Config) LogValue() slog.Value { return slog.StringValue(c.String()) }
