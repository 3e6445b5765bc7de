package http

import (
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/sink/access"
)

// Calls has the settings that the sinks of all services have in common, whose kinds embed it.
type Calls struct {
	// CAFile holds the PEM certificates that verify the service's; "" for those of the system.
	CAFile string `yaml:"ca_file"`
	// MaxInFlight is the number of concurrent requests of one daemon.
	MaxInFlight int `yaml:"max_in_flight"`
	// Timeout bounds a request, from opening the connection to the end of the answer.
	Timeout time.Duration `yaml:"timeout"`
	// MaxRetryAfter is how long a wait that the service asks for is believed.
	MaxRetryAfter time.Duration `yaml:"max_retry_after"`
	// KeepRejected makes dead letters of rejected jobs.
	KeepRejected bool `yaml:"keep_rejected"`
}

// Service has the settings of a service with one address.
type Service struct {
	// URL is that of the service.
	URL string `yaml:"url"`
	Calls
}

const (
	minCallTimeout = 100 * time.Millisecond
	serviceConnAge = 30 * time.Minute
)

// DefaultCalls returns settings that are good for most services.
func DefaultCalls() Calls {
	return Calls{MaxInFlight: 256, Timeout: 10 * time.Second, MaxRetryAfter: 5 * time.Minute}
}

// DefaultService returns settings that are good for most services, for the one at the URL.
func DefaultService(url string) Service { return Service{URL: url, Calls: DefaultCalls()} }

// InFlight returns the number of deliveries that may be in flight at once.
func (c *Calls) InFlight() int { return c.MaxInFlight }

// Problems returns the errors in the settings: one line each, beginning with the key.
func (c *Calls) Problems() (p []string) {
	if c.Timeout < minCallTimeout || c.Timeout > maxTimeout {
		p = append(p, fmt.Sprintf("timeout: %s is out of range; use a duration between %s and %s, such as 10s", c.Timeout, minCallTimeout, maxTimeout))
	}
	if c.MaxRetryAfter < time.Second || c.MaxRetryAfter > maxRetryAfter {
		p = append(p, fmt.Sprintf("max_retry_after: %s is out of range; use a duration between 1s and %s, such as 5m", c.MaxRetryAfter, maxRetryAfter))
	}
	return p
}

// Problems returns the errors in the settings: one line each, beginning with the key.
func (s *Service) Problems() (p []string) {
	if why := urlProblem(s.URL); why != "" {
		p = append(p, "url: "+why)
	} else if userIn(s.URL) {
		p = append(p, "url: has a user, which is not sent; remove it")
	}
	return append(p, s.Calls.Problems()...)
}

// Text returns the settings for a log line.
func (c *Calls) Text() string {
	return fmt.Sprintf("max_in_flight: %d, timeout: %s, ca_file: %s", c.MaxInFlight, c.Timeout, c.CAFile)
}

// Text returns the settings for a log line.
func (s *Service) Text() string { return "url: " + Redacted(s.URL) + ", " + s.Calls.Text() }

// API makes an API of the settings and of the files that they name. What the settings say is left out of the options. An
// error begins with the key.
func (c *Calls) API(r *access.Reader, o APIOptions) (*API, error) {
	o.MaxInFlight, o.Timeout = c.MaxInFlight, c.Timeout
	o.TLS = r.TLS(access.Certificates{CAFile: c.CAFile})
	if o.MaxConnAge == 0 {
		o.MaxConnAge = serviceConnAge
	}
	api, err := NewAPI(o)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	return api, nil
}

// API makes an API, as Calls does.
func (s *Service) API(r *access.Reader, o APIOptions) (*API, error) {
	o.URL = s.URL
	return s.Calls.API(r, o)
}
