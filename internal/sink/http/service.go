package http

import (
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
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

	access.Secrets
}

// Service has the settings of a service with one address.
type Service struct {
	// URL is that of the service.
	URL string `yaml:"url" secret:"url"`
	Calls
}

// ConnAge is how long a connection to a service is used.
const ConnAge = 30 * time.Minute

// DefaultCalls returns settings that are good for most services.
func DefaultCalls() Calls {
	return Calls{MaxInFlight: 256, Timeout: 10 * time.Second, MaxRetryAfter: 5 * time.Minute}
}

// DefaultService returns settings that are good for most services, for the one at the URL.
func DefaultService(url string) Service { return Service{URL: url, Calls: DefaultCalls()} }

// Entry returns what the router needs to know of the sink.
func (c *Calls) Entry() base.Entry {
	return base.Entry{MaxInFlight: c.MaxInFlight, Timeout: c.Timeout, MaxRetryAfter: c.MaxRetryAfter, KeepRejected: c.KeepRejected}
}

// Problems returns the errors in the settings: one line each, beginning with the key.
func (c *Calls) Problems() (p base.Problems) {
	p.Timeout(c.Timeout, "10s")
	p.MaxRetryAfter(c.MaxRetryAfter)
	return p
}

// Problems returns the errors in the settings: one line each, beginning with the key.
func (s *Service) Problems() (p base.Problems) {
	if why := URLProblem(s.URL); why != "" {
		p.Add("url: %s", why)
	} else if userIn(s.URL) {
		p.Add("url: has a user, which is not sent; remove it")
	}
	return append(p, s.Calls.Problems()...)
}

// API makes an API of the settings and of the files that they name, and tells the Reader of errors. What the settings say is
// left out of the options.
func (c *Calls) API(r *access.Reader, o APIOptions) *API {
	o.MaxInFlight, o.Timeout = c.MaxInFlight, c.Timeout
	o.TLS = r.TLS(access.Certificates{CAFile: c.CAFile})
	if o.MaxConnAge == 0 {
		o.MaxConnAge = ConnAge
	}
	api, err := NewAPI(o)
	if err != nil {
		r.Fail(fmt.Errorf("url: %w", err))
	}
	return api
}

// API makes an API, as Calls does.
func (s *Service) API(r *access.Reader, o APIOptions) *API {
	o.URL = s.URL
	return s.Calls.API(r, o)
}
