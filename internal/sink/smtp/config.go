package smtp

import (
	"net/textproto"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/render"
)

// Config configures an smtp sink.
type Config struct {
	// Addr is the server's host:port.
	Addr string `yaml:"addr" is:"address" such:"smtp.example.com:587"`
	// TLS is starttls, implicit (from the first byte on) or none.
	TLS string `yaml:"tls" oneof:"starttls, implicit, none"`
	access.Certificates

	// Auth is the mechanism of authentication, auto for the best of those that the server offers.
	Auth     string `yaml:"auth" oneof:"auto, plain, login, scram-sha-256, xoauth2"`
	Username string `yaml:"username"`
	Password string `yaml:"password" secret:"value"`
	// Hello is the name that the sink gives itself; "" for that of the machine.
	Hello string `yaml:"hello"`

	Texts

	base.Limits // max_in_flight is also the number of connections
	// RetryAfter is how long a job waits whose recipient the server does not take for now: it does not say how long.
	RetryAfter time.Duration `yaml:"retry_after" range:"1s..1d"`
}

// Texts are the texts or templates of what is sent. Without a subject, a text and HTML the payload is the message.
type Texts struct {
	// From and To are addresses, EnvelopeFrom the one that bounces go to; "" for that of From.
	From         string `yaml:"from"`
	To           string `yaml:"to"`
	EnvelopeFrom string `yaml:"envelope_from"`
	ReplyTo      string `yaml:"reply_to"`
	Subject      string `yaml:"subject"`
	// Text and HTML are the body, in one or two forms.
	Text string `yaml:"text" secret:"value"` // so that it may be in a file
	HTML string `yaml:"html" secret:"value"`
	// Headers are additional ones.
	Headers map[string]string `yaml:"headers"`
}

// How connections are encrypted.
const (
	startTLS = "starttls"
	implicit = "implicit"
	noTLS    = "none"
)

// Mechanisms of authentication.
const (
	authAuto  = "auto"
	authPlain = "plain"
	authLogin = "login"
	authSCRAM = "scram-sha-256"
	authToken = "xoauth2"
)

const maxHeaders = 50

// Default returns the configuration of an smtp sink without an address. The timeout is longer than what a rebalance leaves:
// servers look at a message before they take it, and one that is sent twice is worse than one that takes long.
func Default() *Config {
	return &Config{
		TLS: startTLS, Auth: authAuto, Texts: Texts{To: `{{ .Header "to" }}`}, RetryAfter: 5 * time.Minute,
		Limits: base.Limits{MaxInFlight: 8, Timeout: 30 * time.Second, MaxRetryAfter: 15 * time.Minute},
	}
}

const maxHost = 253 // of a name's characters

var hostPattern = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]*[a-zA-Z0-9])?$|^\[[0-9a-fA-F:.]+\]$`)

func isHost(name string) bool { return len(name) <= maxHost && hostPattern.MatchString(name) }

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	var p base.Problems
	p = append(p, c.Certificates.Problems()...)
	if c.TLS == noTLS && c.Certificates != (access.Certificates{}) {
		p.Add("tls: ca_file, cert_file and key_file have no effect with %s; remove them or use %s", noTLS, startTLS)
	}
	switch {
	case (c.Username == "") != (c.Password == ""):
		p.Add("username: goes together with password; set both or neither")
	case c.Username != "" && c.TLS == noTLS:
		p.Add("username: would be sent unencrypted; set tls to %s or %s", startTLS, implicit)
	case c.Username == "" && c.Auth != authAuto:
		p.Add("username: required with auth, as is password")
	}
	p.When(c.Hello != "" && !isHost(c.Hello), "hello: not the name of a host; use one such as pacer.example.com")
	return append(p, c.Texts.problems()...)
}

// composed reports whether the sink makes the message; otherwise the payload is the message.
func (t *Texts) composed() bool { return t.Subject != "" || t.Text != "" || t.HTML != "" }

// settings are those that are texts or templates.
func (t *Texts) settings() []render.Text {
	list := []render.Text{
		{Key: "from", Text: t.From}, {Key: "to", Text: t.To}, {Key: "envelope_from", Text: t.EnvelopeFrom}, {Key: "reply_to", Text: t.ReplyTo},
		{Key: "subject", Text: t.Subject}, {Key: "text", Text: t.Text}, {Key: "html", Text: t.HTML, Escape: render.HTML},
	}
	for name, text := range t.Headers {
		list = append(list, render.Text{Key: "headers." + name, Text: text})
	}
	return list
}

// ownHeaders are those that the sink writes itself, or that would say something about recipients whom it does not send to.
var ownHeaders = []string{
	"From", "To", "Cc", "Bcc", "Reply-To", "Sender", "Subject", "Date", "Message-Id", "Mime-Version", "Return-Path", "Received", "Dkim-Signature",
}

var headerPattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9-]{0,63}$`)

func (t *Texts) problems() (p base.Problems) {
	p.When(t.To == "", "to: required; use a text or a template such as {{ .Header \"to\" }}")
	if t.composed() {
		p.When(t.From == "", "from: required; use an address such as News <news@example.com>")
		p.When(t.Text == "" && t.HTML == "", "text: required, or html; without both and a subject, the payload is the message")
		p.When(t.Subject == "", "subject: required with text or html")
	} else if t.From != "" || t.ReplyTo != "" || len(t.Headers) > 0 {
		p.Add("subject: from, reply_to and headers have no effect without it, since the payload is the message; set it or remove them")
	}
	p.Texts(t.settings()...)
	for _, s := range t.settings() {
		if slices.Contains(addresses, s.Key) && s.Text != "" && !render.IsTemplate(s.Text) {
			_, err := parseAddress(s.Text)
			p.When(err != nil, "%s: not an address; use one such as News <news@example.com>", s.Key)
		}
	}
	p.When(len(t.Headers) > maxHeaders, "headers: %d of them; use at most %d", len(t.Headers), maxHeaders)
	for name, text := range t.Headers {
		p.When(text == "", "headers.%s: empty; use a text or a template, or remove it", name)
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		p.When(!headerPattern.MatchString(name), "headers.%s: not a name for a header; use letters, digits and -", name)
		p.When(slices.Contains(ownHeaders, canonical) || strings.HasPrefix(canonical, "Content-"), "headers.%s: written by pacer; remove it", name)
	}
	slices.Sort(p)
	return p
}

var addresses = []string{"from", "to", "envelope_from", "reply_to"}
