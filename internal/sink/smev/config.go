package smev

import (
	"regexp"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/render"
	"github.com/pacer/pacer/internal/sink/smev/soap"
)

// Config configures a smev sink.
type Config struct {
	// Mode is adapter or direct.
	Mode string `yaml:"mode" oneof:"adapter, direct"`
	// Service has the URL of the adapter (above its methods, if it is called by REST), or of SMEV's service.
	httpcall.Service
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
	Responses string `yaml:"responses" is:"topic" such:"pacer.smev.responses" zero:""`

	// Protocol is how the adapter is called: rest or soap; adapter only.
	Protocol string `yaml:"protocol" oneof:"rest, soap"`
	// ITSystem is the mnemonic of the information system; adapter only.
	ITSystem string `yaml:"it_system"`
	// Wait is what a job is delivered by: accepted or response; adapter only.
	Wait string `yaml:"wait" oneof:"accepted, response"`
	// Poll says how often the adapter is asked for a response, and Deadline for how long; adapter only.
	Poll     Poll          `yaml:"poll"`
	Deadline time.Duration `yaml:"deadline" range:"1s..90d"`

	// Version is that of SMEV's contract; direct only.
	Version string  `yaml:"version" oneof:"1.1, 1.2, 1.3"`
	Signer  Signer  `yaml:"signer"`  // direct only
	Collect Collect `yaml:"collect"` // direct only
}

// Poll says how often the adapter is asked for a response: after Every, and then ever more rarely, to once in Max.
type Poll struct {
	Every     time.Duration `yaml:"every" range:"100ms..1d"`
	Max       time.Duration `yaml:"max" range:"100ms..1d"`
	PerSecond int           `yaml:"per_second" range:"1..10000"` // of one daemon
}

// Signer signs calls; without a URL, they are not signed.
type Signer struct {
	URL    string `yaml:"url" secret:"url"`
	Bearer string `yaml:"bearer" secret:"value"`
	// CAFile holds the PEM certificates that verify the signer's; "" for those of the system.
	CAFile string `yaml:"ca_file"`
}

// Collect says how responses are taken from SMEV's queue.
type Collect struct {
	Enabled bool `yaml:"enabled"`
	// Interval is between two looks at an empty queue.
	Interval time.Duration `yaml:"interval" range:"10ms..1h"`
	// Parallel is how many responses are taken at once while there are some.
	Parallel int `yaml:"parallel" range:"1..64"`
	// Types are the root elements of the responses that are taken, as {namespace}name; none: any.
	Types []string `yaml:"types" most:"64"`
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

// Default returns the configuration of a smev sink without a URL.
func Default() *Config {
	c := &Config{
		Mode: modeAdapter, Service: httpcall.DefaultService(""), Version: "1.3",
		Protocol: protocolREST, Wait: waitResponse, Poll: Poll{Every: 30 * time.Second, Max: 10 * time.Minute, PerSecond: 20}, Deadline: 72 * time.Hour,
		Collect: Collect{Enabled: true, Interval: time.Second, Parallel: 4},
	}
	c.MaxInFlight = 64
	return c
}

// Entry returns what the router needs to know of the sink.
func (c *Config) Entry() base.Entry {
	e := c.Service.Entry()
	e.FollowUps = c.Poll.PerSecond
	return e
}

// DeriveTopics sets the topic of the responses, unless it is configured.
func (c *Config) DeriveTopics(prefix string) (derived bool) {
	if c.Responses != "" || !c.keepsResponses() {
		return false
	}
	c.Responses = prefix + "smev.responses"
	return true
}

// keepsResponses reports whether responses come to this sink.
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

const maxType = 1200 // of a type's bytes

var (
	typePattern   = regexp.MustCompile(`^\{([^{}\s]+)\}([^\s{}:<>&]+)$`)
	systemPattern = regexp.MustCompile(`^[!-~]{1,100}$`)
)

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	p := append(c.Service.Problems(), c.certificates().Problems()...)
	unprintable := strings.ContainsFunc(c.NodeID, func(r rune) bool { return r <= ' ' || r > '~' })
	p.When(len(c.NodeID) > 50 || unprintable, "node_id: use at most 50 printable ASCII characters without spaces")
	p.Texts(c.texts())
	switch c.Mode {
	case modeAdapter:
		p.When(!systemPattern.MatchString(c.ITSystem), "it_system: required; use the mnemonic of the information system, such as RND001")
		p.When(c.Poll.Max < c.Poll.Every, "poll.max: %s is less than poll.every; use a duration such as 10m", c.Poll.Max)
	case modeDirect:
		if s := c.Signer; s.URL != "" {
			p.Because("signer.url", httpcall.URLProblem(s.URL))
		} else {
			p.When(s != (Signer{}), "signer.url: required with the other keys of signer; set it or remove them")
		}
		for i, t := range c.Collect.Types {
			wrong := len(t) > maxType || !typePattern.MatchString(t)
			p.When(wrong, "collect.types: item %d is not {namespace}name; use one such as {urn://example/1.0}Response", i+1)
		}
	}
	return p
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

// texts is the setting that is a template.
func (c *Config) texts() render.Text { return render.Text{Key: "attachments", Text: c.Attachments} }

// certificates are the files of connections to the destination.
func (c *Config) certificates() access.Certificates {
	return access.Certificates{CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile}
}
