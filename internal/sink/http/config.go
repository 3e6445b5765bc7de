package http

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/guard"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/render"
	"github.com/pacer/pacer/internal/sink/rule"
	"github.com/pacer/pacer/internal/sink/signature"
)

// Common are the settings that all requests of a sink have in common.
type Common struct {
	base.Limits // max_in_flight is also the number of idle connections
	// Headers are sent with every request, after those of pacer. Values are secrets, and may be templates.
	Headers map[string]string `yaml:"headers" secret:"value"`
	access.Certificates
	// MaxConnAge is how long a connection is used; 0 for as long as it works.
	MaxConnAge time.Duration `yaml:"max_conn_age" range:"1s..1d" zero:"no limit"`
	// Basic, Bearer and OAuth2 say who the sink is, in the header Authorization; at most one of them.
	Basic  Basic  `yaml:"basic"`
	Bearer string `yaml:"bearer" secret:"value"`
	OAuth2 OAuth2 `yaml:"oauth2"`
	// Proxy is a proxy for this sink; "" for the one of the environment, or for none if the sink is guarded.
	Proxy string `yaml:"proxy" secret:"url"`
}

// Config configures an http sink. Its secrets are those of "url", "body", "headers." and a name, and so on.
type Config struct {
	// URL is where jobs are sent. A user and password in it become an Authorization header. It may be a template; if the host is
	// one, or all of it, the sink is guarded.
	URL string `yaml:"url" secret:"url"`
	// Method is that of a request; "" for POST. It may be a template.
	Method string `yaml:"method"`
	// Body is the template of a request's body; "" for the payload as it is.
	Body string `yaml:"body" secret:"value"`
	Common

	// Options say what an answer means. Whole has answers read whole, for Ask.
	rule.Options
	// CloudEvents makes requests of events: binary, structured, or "" for none.
	CloudEvents string `yaml:"cloudevents" oneof:"binary, structured" zero:""`
	// Sign signs requests; without secrets, they are not signed.
	Sign Sign `yaml:"sign"`
	// Destinations has jobs sent to the destination of pacer.destinations that they name.
	Destinations bool `yaml:"destinations"`
	// DisableAfter is how long a destination fails before it is disabled; 0 for never.
	DisableAfter time.Duration `yaml:"disable_after" range:"1s..365d" zero:"never"`
	// SecretsDir has the files that destinations may refer to; "" for none.
	SecretsDir string `yaml:"secrets_dir"`
	// Guard says where a sink may send whose addresses come from jobs.
	Guard guard.Config `yaml:"guard"`

	// Step is the name of a step, where the sink makes one of a request; it is added to the idempotency key.
	Step string `yaml:"-"`
	// Name returns an error, which begins with the key, with the key that a step's setting has in the configuration of all; nil: it is the same.
	Name func(problem string) string `yaml:"-"`
}

// Sign has the secrets of Standard Webhooks. A request is signed with each of them.
type Sign struct {
	Secrets []string `yaml:"secrets" secret:"value"`
}

const maxHeaders = 64

// Default returns the configuration of an http sink without a URL. The timeout is no longer than the time that requests
// in flight have at a rebalance, so that none is interrupted and sent twice.
func Default() *Config {
	return &Config{Method: http.MethodPost, Common: DefaultCommon(), Guard: guard.Default(), DisableAfter: 5 * 24 * time.Hour}
}

// DefaultCommon returns settings that are good for most destinations.
func DefaultCommon() Common {
	return Common{
		Limits:     base.Limits{MaxInFlight: 256, Timeout: 3 * time.Second, MaxRetryAfter: 5 * time.Minute},
		MaxConnAge: 5 * time.Minute, OAuth2: OAuth2{Auth: authHeader},
	}
}

// Entry returns what the router needs to know of the sink.
func (c *Config) Entry() base.Entry {
	e := c.Common.Entry()
	e.Destinations, e.DisableAfter = c.Destinations, c.DisableAfter
	return e
}

// own are the headers that a configuration may not set: pacer's and those of the protocol.
var own = []string{
	"Idempotency-Key", "Webhook-Id", "Content-Length", "Traceparent", "Host", "Connection",
	"Transfer-Encoding", "Trailer", "Te", "Upgrade", "Keep-Alive", "Proxy-Connection", "Expect",
}

// signed are the headers that a signer sets.
var signed = []string{keyTimestamp, keySignature}

// Problems returns the errors in the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	_, p := c.compile()
	return p
}

// compiled is what is made of a configuration alone.
type compiled struct {
	form   *form             // nil: each job's request is made of its payload and metadata alone
	rules  *rule.Set         // nil: an answer means what its status says by default
	signer *signature.Signer // nil: requests are not signed
	guard  *guard.Guard      // nil: the host is the same for all jobs
}

// compile compiles the configuration, and returns the errors in it. With errors, parts are missing.
func (c *Config) compile() (m compiled, p base.Problems) {
	var err error
	if c.addressProblems(&p); len(p) == 0 {
		m.form, err = c.form()
		p.Note(err)
	}
	if !c.isTemplate("method", c.Method) && c.Method != "" && !slices.Contains(methods, c.Method) {
		p.Add("method: not available; %s", useMethod)
	}
	if c.Method == http.MethodGet && c.Body != "" {
		p.Add("body: a GET has none; remove it, or use another method")
	}
	if c.guardProblems(&p); c.Elsewhere() {
		m.guard, _ = guard.New(c.Guard) // its errors are among those of before
	}
	m.rules, err = rule.New(c.Options)
	p.Note(err)
	if len(c.Sign.Secrets) > 0 {
		if m.signer, err = signature.New(c.Sign.Secrets); err != nil {
			p.Add("sign.secrets: %s", err)
		}
	}
	c.authProblems(&p)
	c.eventProblems(&p)
	p = append(p, c.Certificates.Problems()...)
	if c.SecretsDir != "" && !c.Destinations {
		p.Add("secrets_dir: is for destinations; set destinations as well, or remove it")
	}
	if d := c.DisableAfter; d != 0 && d != Default().DisableAfter && !c.Destinations {
		p.Add("disable_after: is for destinations; set destinations as well, or remove it")
	}
	if len(c.Headers) > maxHeaders {
		p.Add("headers: %d of them; use at most %d", len(c.Headers), maxHeaders)
	}
	c.headerProblems(&p)
	for i := range p {
		if c.Name != nil {
			p[i] = c.Name(p[i])
		}
	}
	return m, p
}

// headerProblems adds the errors in the headers of the requests.
func (c *Config) headerProblems(p *base.Problems) {
	names := slices.Sorted(maps.Keys(c.Headers))
	for n, name := range names {
		if i := slices.IndexFunc(names[:n], func(o string) bool { return strings.EqualFold(o, name) }); i >= 0 {
			p.Add("headers.%s: is there twice, also as %s; remove one", name, names[i])
		}
		if why := headerProblem(name, c.Headers[name], len(c.Sign.Secrets) > 0); why != "" {
			p.Add("%s", why)
		}
	}
}

// headerProblem returns the error in a header of the requests, beginning with its key; "" if there is none.
func headerProblem(name, value string, isSigned bool) string {
	canonical := http.CanonicalHeaderKey(name)
	switch {
	case !httpguts.ValidHeaderFieldName(name):
		return fmt.Sprintf("headers.%s: not a header name; use letters, digits and -", name)
	case slices.Contains(own, canonical) || isSigned && slices.Contains(signed, canonical) || strings.HasPrefix(canonical, "Pacer-"):
		return fmt.Sprintf("headers.%s: pacer sets this header itself; remove it", name)
	case !httpguts.ValidHeaderFieldValue(value) || len(value) > httpcall.MaxHeaderBytes:
		return fmt.Sprintf("headers.%s: not a header value; use one line of at most %d bytes", name, httpcall.MaxHeaderBytes)
	case signature.IsSecret(value):
		return fmt.Sprintf("headers.%s: is a secret that signs requests, which is never sent", name)
	}
	return ""
}

// Redacted returns the URL without user, password and query, since each may be a secret.
func Redacted(s string) string {
	if render.IsTemplate(s) {
		u, ok := splitURL(s)
		switch {
		case u.whole:
			return "(made of the job)"
		case !ok || strings.Contains(u.base, "@") && u.byJob():
			return "(not a URL)"
		case u.byJob():
			return u.base + u.path
		}
		return Redacted(u.base) + u.path
	}
	u, err := url.Parse(s)
	if err != nil {
		return "(not a URL)"
	}
	u.User, u.RawQuery, u.Fragment, u.RawFragment, u.ForceQuery = nil, "", "", "", false
	if u.Opaque != "" {
		return u.Scheme + ":"
	}
	return u.String()
}
