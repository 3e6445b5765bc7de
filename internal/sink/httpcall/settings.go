package httpcall

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
	base.Limits
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
	return Calls{Limits: base.Limits{MaxInFlight: 256, Timeout: 10 * time.Second, MaxRetryAfter: 5 * time.Minute}}
}

// DefaultService returns settings that are good for most services, for the one at the URL.
func DefaultService(url string) Service { return Service{URL: url, Calls: DefaultCalls()} }

// Problems returns the errors in the settings: one line each, beginning with the key.
func (s *Service) Problems() (p base.Problems) {
	if why := URLProblem(s.URL); why != "" {
		p.Add("url: %s", why)
	} else if HasUser(s.URL) {
		p.Add("url: has a user, which is not sent; remove it")
	}
	return p
}

// Client makes a Client of the settings and of the files that they name, and tells the Reader of errors.
func (c *Calls) Client(r *access.Reader, o Options) *Client {
	o.MaxConnAge, o.TLS = ConnAge, r.TLS("", access.Certificates{CAFile: c.CAFile})
	return Open(r, "url", o)
}

// Open makes a Client, and tells the Reader of an error in its address, the value of the key.
func Open(r *access.Reader, key string, o Options) *Client {
	client, err := New(o)
	if err != nil {
		r.Fail(fmt.Errorf("%s: %w", key, err))
	}
	return client
}

// Client makes a Client, as Calls does.
func (s *Service) Client(r *access.Reader, o Options) *Client {
	o.URL = r.Secret("url", s.URL)
	return s.Calls.Client(r, o)
}
