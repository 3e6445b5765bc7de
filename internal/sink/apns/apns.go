// Package apns is the sink that sends jobs as notifications of the Apple Push Notification service.
package apns

import (
	"context"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
	"github.com/pacer/pacer/internal/sink/render"
)

// Sink sends each job's payload as a notification, over a few connections of HTTP/2 that keep to the limits of the service,
// and classifies the answer (see classify).
//
// A notification that was sent and got no answer may have arrived, and is sent again by the next attempt.
type Sink struct {
	base.Service[parts]
	config *Config
	texts  map[string]*render.Template
}

// parts are what is made of the files that the configuration names.
type parts struct {
	*sinkhttp.API
	signer *signer // nil: a certificate stands for the sink
}

// New makes a Sink of a valid configuration. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*Sink, error) {
	s := &Sink{config: c, texts: map[string]*render.Template{}}
	for _, t := range c.texts() {
		if t.text == "" {
			continue
		}
		var err error
		if s.texts[t.key], err = render.Parse(t.key, t.text, render.Plain); err != nil {
			return nil, fmt.Errorf("%s: %w", t.key, err)
		}
	}
	return s, s.Open(host, base.Dialect[parts]{Build: s.build, Attempt: s.attempt})
}

func (s *Sink) build(r *access.Reader) (p parts) {
	c, err := s.config, error(nil)
	if c.AuthKeyFile != "" {
		if p.signer, err = newSigner(r.File("auth_key_file", c.AuthKeyFile), c.KeyID, c.TeamID); err != nil {
			r.Fail(fmt.Errorf("auth_key_file: %s %w", c.AuthKeyFile, err))
		}
	}
	p.API, err = sinkhttp.NewAPI(sinkhttp.APIOptions{
		URL: c.target(), Version: s.Version, MaxInFlight: c.MaxInFlight, Timeout: c.Timeout,
		TLS: r.TLS(c.Certificates), Resent: &s.Repeats, Connections: c.Connections,
	})
	if err != nil {
		r.Fail(fmt.Errorf("url: %w", err))
	}
	return p
}

const maxText = 512 // bytes that a template makes

func (s *Sink) attempt(ctx context.Context, job *delivery.Job, shown *base.Exchange) delivery.Result {
	token, header, problem := s.request(job, time.Now())
	if problem != "" {
		return delivery.Result{Class: delivery.Permanent, Detail: problem}
	}
	return s.send(ctx, sinkhttp.Request{Path: devicePath + token, Header: header, Body: job.Payload, Shown: shown})
}

// devicePath begins the path of a request; the device's token follows.
const devicePath = "/3/device/"

// send signs a request and sends it.
func (s *Sink) send(ctx context.Context, r sinkhttp.Request) delivery.Result {
	p := s.Now()
	if p.signer != nil {
		jwt, err := p.signer.token(time.Now())
		if err != nil {
			return delivery.Result{Class: delivery.Misconfigured, Detail: "auth_key_file: " + err.Error()}
		}
		r.Header["Authorization"] = []string{"bearer " + jwt}
	}
	r.Retires = retires
	res := p.Ask(ctx, r, func(a sinkhttp.Answer, now time.Time) delivery.Result { return classify(a, s.byJob, now) })
	if p := res.Provider; p != nil && p.Code == "ExpiredProviderToken" {
		res.Detail += ": is this machine's clock right?"
	}
	return res
}

// byJob reports whether a setting is a template.
func (s *Sink) byJob(key string) bool {
	for _, t := range s.config.texts() {
		if t.key == key {
			return render.IsTemplate(t.text)
		}
	}
	return false
}

// headers are those of a request, by the setting that makes them.
var headers = map[string]string{
	"topic": "Apns-Topic", "push_type": "Apns-Push-Type", "priority": "Apns-Priority", "collapse_id": "Apns-Collapse-Id",
}

const maxCollapseID = 64 // bytes

// request returns the device's token and the header for a job; problem says why there can be none.
func (s *Sink) request(job *delivery.Job, now time.Time) (token string, header http.Header, problem string) {
	header = http.Header{"Apns-Id": {uuid.NewSHA1(space, []byte(job.ID)).String()}}
	view := render.NewJob(job, now)
	for key, t := range s.texts {
		value, err := t.Text(view, maxText)
		switch {
		case err != nil:
			return "", nil, err.Error()
		case !printable(value):
			return "", nil, key + ": it has characters that cannot be sent"
		case key == "token":
			token = value
		case value != "":
			header[headers[key]] = []string{value}
		}
	}
	switch {
	case token == "" || strings.Trim(token, "0123456789abcdefABCDEF") != "":
		return "", nil, "token: the job has none, or one that is not hexadecimal"
	case len(header.Get(headers["collapse_id"])) > maxCollapseID:
		return "", nil, fmt.Sprintf("collapse_id: longer than %d bytes", maxCollapseID)
	}
	if header.Get(headers["push_type"]) == "background" && header.Get(headers["priority"]) == "" {
		header[headers["priority"]] = []string{"5"} // the service's default, 10, is an error there
	}
	expires := time.Time{}
	if s.config.StoreFor > 0 {
		expires = now.Add(s.config.StoreFor)
	}
	if !job.ExpiresAt.IsZero() && (expires.IsZero() || job.ExpiresAt.Before(expires)) {
		expires = job.ExpiresAt
	}
	if !expires.IsZero() {
		header["Apns-Expiration"] = []string{strconv.FormatInt(expires.Unix(), 10)}
	}
	return token, header, ""
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) < 0
}

// space is the one that ids of notifications are made in, of the ids of jobs: always the same for a job.
var space = uuid.MustParse("5b0e0c8e-5d1f-4c0a-9d3e-1a5370616365")

// checkToken is that of no device.
const checkToken = "0000000000000000000000000000000000000000000000000000000000000000"

// Check sends a request for a device that does not exist, so that nothing is delivered: the service looks at the credentials
// first.
func (s *Sink) Check(ctx context.Context) error {
	header := http.Header{}
	for _, key := range []string{"topic", "push_type"} {
		if t := s.texts[key]; !s.byJob(key) {
			value, err := t.Text(render.NewJob(&delivery.Job{}, time.Now()), maxText)
			if err != nil {
				return err
			}
			header[headers[key]] = []string{value}
		}
	}
	defer s.Now().Close()
	res := s.send(ctx, sinkhttp.Request{Path: devicePath + checkToken, Header: header, Body: []byte(`{"aps":{}}`)})
	code := ""
	if res.Provider != nil {
		code = res.Provider.Code
	}
	switch {
	case res.Class == delivery.Unreachable && res.Status == 0:
		return fmt.Errorf("url: cannot connect: %s", res.Detail)
	case res.Status == 0:
		return fmt.Errorf("url: %s", res.Detail)
	case res.Class == delivery.Misconfigured:
		key := settings[code]
		if key != "" && s.byJob(key) {
			return nil // a job says it
		}
		if key == "" {
			key = "auth_key_file"
			if s.Now().signer == nil {
				key = "cert_file"
			}
		}
		return fmt.Errorf("%s: %s", key, res.Detail)
	}
	return nil
}
