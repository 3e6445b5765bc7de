package http

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Config configures an http sink.
type Config struct {
	// URL is where jobs are POSTed. A user and password in it become an Authorization header.
	URL string `koanf:"url" secret:"url"`
	// MaxInFlight is how many requests one daemon has open at once, and how many idle connections it keeps.
	MaxInFlight int `koanf:"max_in_flight"`
	// Timeout bounds a request from the first byte of the connection to the last of the answer.
	Timeout time.Duration `koanf:"timeout"`
	// Headers are sent with every request, after those of pacer. Values are secrets.
	Headers map[string]string `koanf:"headers" secret:"value"`
	// CAFile holds the PEM certificates that the destination's is verified against; "" for those of the system.
	CAFile string `koanf:"ca_file"`
}

const (
	maxTimeout     = 10 * time.Minute
	maxHeaders     = 64
	maxHeaderBytes = 8 << 10
)

// Default is the configuration of an http sink that gives its type and URL only.
func Default() *Config { return &Config{MaxInFlight: 256, Timeout: 5 * time.Second} }

// InFlight is how many deliveries may be in flight at once.
func (c *Config) InFlight() int { return c.MaxInFlight }

// own are the headers that a configuration may not set: pacer's and those of the protocol.
var own = []string{
	"Idempotency-Key", "Webhook-Id", "Content-Type", "Content-Length", "Traceparent", "Host", "Connection",
	"Transfer-Encoding", "Trailer", "Te", "Upgrade", "Keep-Alive", "Proxy-Connection", "Expect",
}

// Problems lists what is wrong with the configuration: one line each, beginning with the key, without secrets.
func (c *Config) Problems() []string {
	var p []string
	if why := urlProblem(c.URL); why != "" {
		p = append(p, "url: "+why)
	}
	if c.Timeout < time.Millisecond || c.Timeout > maxTimeout {
		p = append(p, fmt.Sprintf("timeout: %s is out of range; use a duration between 1ms and %s, such as 5s", c.Timeout, maxTimeout))
	}
	if len(c.Headers) > maxHeaders {
		p = append(p, fmt.Sprintf("headers: %d of them; use at most %d", len(c.Headers), maxHeaders))
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !validName(name):
			p = append(p, fmt.Sprintf("headers.%s: not a header name; use letters, digits and -", name))
		case slices.Contains(own, canonical) || strings.HasPrefix(canonical, "Pacer-"):
			p = append(p, fmt.Sprintf("headers.%s: pacer sets this header itself; remove it", name))
		case !validValue(c.Headers[name]) || len(c.Headers[name]) > maxHeaderBytes:
			p = append(p, fmt.Sprintf("headers.%s: not a header value; use one line of at most %d bytes", name, maxHeaderBytes))
		}
	}
	return p
}

// urlProblem says what is wrong with the URL without repeating it, since it may hold a password.
func urlProblem(s string) string {
	const remedy = "use one such as https://example.com/deliver"
	if s == "" {
		return "required; " + remedy
	}
	u, err := url.Parse(s)
	switch {
	case err != nil:
		return "not a URL; " + remedy
	case u.Scheme != "http" && u.Scheme != "https":
		return "must begin with http:// or https://; " + remedy
	case u.Hostname() == "":
		return "names no host; " + remedy
	case u.Fragment != "":
		return "has a #fragment, which is never sent; remove it"
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.Atoi(port); err != nil || n < 1 || n > 65535 {
			return "its port must be between 1 and 65535; " + remedy
		}
	}
	return ""
}

// String describes the configuration without its secrets.
func (c *Config) String() string {
	return fmt.Sprintf("{url: %s, max_in_flight: %d, timeout: %s, headers: %v, ca_file: %s}",
		Redacted(c.URL), c.MaxInFlight, c.Timeout, slices.Sorted(maps.Keys(c.Headers)), c.CAFile)
}

// GoString keeps secrets out of %#v.
func (c *Config) GoString() string { return c.String() }

// LogValue implements slog.LogValuer, without secrets.
func (c *Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

// Redacted is the URL without user, password and query, any of which may be a secret.
func Redacted(s string) string {
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

// validName tells whether s is a header name: a token of RFC 9110.
func validName(s string) bool {
	if s == "" {
		return false
	}
	for i := range len(s) {
		c := s[i]
		alnum := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z'
		if !alnum && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return true
}

// validValue tells whether s may be sent as the value of a header.
func validValue(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' && c != '\t' || c == 0x7f {
			return false
		}
	}
	return true
}
