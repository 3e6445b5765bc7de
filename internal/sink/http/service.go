package http

import (
	"fmt"
	"time"

	"github.com/pacer/pacer/internal/sink/access"
)

// Service has the settings that the sinks of all services have in common, whose kinds embed it.
type Service struct {
	// URL is that of the service.
	URL string `yaml:"url"`
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

const (
	minServiceTimeout = 100 * time.Millisecond
	serviceConnAge    = 30 * time.Minute
)

// InFlight returns the number of deliveries that may be in flight at once.
func (s *Service) InFlight() int { return s.MaxInFlight }

// Problems returns the errors in the settings: one line each, beginning with the key.
func (s *Service) Problems() (p []string) {
	if why := urlProblem(s.URL); why != "" {
		p = append(p, "url: "+why)
	} else if userIn(s.URL) {
		p = append(p, "url: has a user, which is not sent; remove it")
	}
	if s.Timeout < minServiceTimeout || s.Timeout > maxTimeout {
		p = append(p, fmt.Sprintf("timeout: %s is out of range; use a duration between %s and %s, such as 10s", s.Timeout, minServiceTimeout, maxTimeout))
	}
	if s.MaxRetryAfter < time.Second || s.MaxRetryAfter > maxRetryAfter {
		p = append(p, fmt.Sprintf("max_retry_after: %s is out of range; use a duration between 1s and %s, such as 5m", s.MaxRetryAfter, maxRetryAfter))
	}
	return p
}

// Text returns the settings for a log line.
func (s *Service) Text() string {
	return fmt.Sprintf("url: %s, max_in_flight: %d, timeout: %s, ca_file: %s", Redacted(s.URL), s.MaxInFlight, s.Timeout, s.CAFile)
}

// API makes an API of the settings and of the files that they name. What the settings say is left out of the options. An
// error begins with the key.
func (s *Service) API(r *access.Reader, o APIOptions) (*API, error) {
	o.URL, o.MaxInFlight, o.Timeout = s.URL, s.MaxInFlight, s.Timeout
	o.TLS = r.TLS(access.Certificates{CAFile: s.CAFile})
	if o.MaxConnAge == 0 {
		o.MaxConnAge = serviceConnAge
	}
	api, err := NewAPI(o)
	if err != nil {
		return nil, fmt.Errorf("url: %w", err)
	}
	return api, nil
}
