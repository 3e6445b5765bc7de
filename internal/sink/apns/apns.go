// Package apns is the sink that sends jobs as notifications of the Apple Push Notification service.
package apns

import (
	"cmp"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/access"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/jwt"
	"github.com/pacer/pacer/internal/sink/render"
)

// parts are what is made of the configuration and of the files that it names.
type parts struct {
	*httpcall.Client
	config *Config
	texts  render.Set
	signer *jwt.Stable // nil: a certificate stands for the sink
}

// New makes a sink of a valid configuration: each job's payload is a notification, over a few connections of HTTP/2 that keep to the
// limits of the service. It reads the files that the configuration names and opens no connection.
func New(c *Config, host base.Host) (*httpcall.Sink[parts], error) {
	return httpcall.NewSink(host, httpcall.Dialect[parts]{
		Limits: c.Limits, Build: c.build, Request: parts.request, Check: parts.check, Blame: parts.blame,
		Classify: func(a httpcall.Answer, now time.Time) delivery.Result { return classify(a, c.byJob, now) },
		After: func(_ *delivery.Job, res *delivery.Result) {
			if p := res.Provider; p != nil && p.Code == "ExpiredProviderToken" {
				res.Detail += ": is this machine's clock right?"
			}
		},
	})
}

func (c *Config) build(r *access.Reader, o httpcall.Options) parts {
	p := parts{config: c, texts: r.Texts(c.texts()...)}
	if c.AuthKeyFile != "" {
		key, err := jwt.P256(r.File("auth_key_file", c.AuthKeyFile))
		if err != nil {
			r.Fail(fmt.Errorf("auth_key_file: %s %w; use the .p8 file of a signing key", c.AuthKeyFile, err))
		}
		// The service wants a token to be between 20 minutes and an hour old when it is replaced, and counts how often that happens, over all
		// connections.
		p.signer = &jwt.Stable{
			Key: key, Every: 40 * time.Minute, Before: "bearer ", Header: map[string]any{"kid": c.KeyID},
			Claims: func(_ string, begun time.Time) map[string]any {
				return map[string]any{"iss": c.TeamID, "iat": begun.Unix()}
			},
		}
	}
	o.URL = cmp.Or(r.Secret("url", c.URL), environments[c.Environment])
	o.TLS, o.Connections = r.TLS("", c.Certificates), c.Connections
	p.Client = httpcall.Open(r, "url", o)
	return p
}

const (
	maxText       = 512 // bytes that a template makes
	maxCollapseID = 64

	devicePath = "/3/device/" // begins the path of a request; the device's token follows
	// checkToken is that of no device.
	checkToken = "0000000000000000000000000000000000000000000000000000000000000000"
)

// headers are those of a request, by the setting that makes them.
var headers = map[string]string{
	"topic": "Apns-Topic", "push_type": "Apns-Push-Type", "priority": "Apns-Priority", "collapse_id": "Apns-Collapse-Id",
}

// request returns the request of a job.
func (p parts) request(job *delivery.Job, now time.Time) (httpcall.Request, error) {
	header := http.Header{"Apns-Id": {uuid.NewSHA1(space, []byte(job.ID)).String()}}
	token, view := "", render.NewJob(job, now)
	for key, t := range p.texts {
		value, err := t.Text(view, maxText)
		switch {
		case err != nil:
			return httpcall.Request{}, err
		case !printable(value):
			return httpcall.Request{}, fmt.Errorf("%s: it has characters that cannot be sent", key)
		case key == "token":
			token = value
		case value != "":
			header[headers[key]] = []string{value}
		}
	}
	switch {
	case token == "" || strings.Trim(token, "0123456789abcdefABCDEF") != "":
		return httpcall.Request{}, fmt.Errorf("token: the job has none, or one that is not hexadecimal")
	case len(header.Get(headers["collapse_id"])) > maxCollapseID:
		return httpcall.Request{}, fmt.Errorf("collapse_id: longer than %d bytes", maxCollapseID)
	}
	if header.Get(headers["push_type"]) == "background" && header.Get(headers["priority"]) == "" {
		header[headers["priority"]] = []string{"5"} // the service's default, 10, is an error there
	}
	expires := time.Time{}
	if p.config.StoreFor > 0 {
		expires = now.Add(p.config.StoreFor)
	}
	if !job.ExpiresAt.IsZero() && (expires.IsZero() || job.ExpiresAt.Before(expires)) {
		expires = job.ExpiresAt
	}
	if !expires.IsZero() {
		header["Apns-Expiration"] = []string{strconv.FormatInt(expires.Unix(), 10)}
	}
	return p.signed(token, header, job.Payload, now), nil
}

// signed returns a request for a device.
func (p parts) signed(token string, header http.Header, body []byte, now time.Time) httpcall.Request {
	if p.signer != nil {
		header["Authorization"] = []string{p.signer.Token("", now)}
	}
	return httpcall.Request{Path: devicePath + token, Header: header, Body: body, Retires: retires}
}

func printable(s string) bool {
	return strings.IndexFunc(s, func(c rune) bool { return c < ' ' || c > '~' }) < 0
}

// space is the one that ids of notifications are made in, of the ids of jobs: always the same for a job.
var space = uuid.MustParse("5b0e0c8e-5d1f-4c0a-9d3e-1a5370616365")

// check is a request for a device that does not exist, so that nothing is delivered: the service looks at the credentials first.
func (p parts) check() (httpcall.Request, error) {
	header := http.Header{}
	for _, key := range []string{"topic", "push_type"} {
		if !p.config.byJob(key) {
			value, err := p.texts[key].Text(render.NewJob(&delivery.Job{}, time.Now()), maxText)
			if err != nil {
				return httpcall.Request{}, err
			}
			header[headers[key]] = []string{value}
		}
	}
	return p.signed(checkToken, header, []byte(`{"aps":{}}`), time.Now()), nil
}

func (p parts) blame(res *delivery.Result) string {
	if res.Class != delivery.Misconfigured {
		return ""
	}
	if res.Provider != nil {
		switch key := settings[res.Provider.Code]; {
		case key != "" && p.config.byJob(key):
			return "" // a job says it
		case key != "":
			return key
		}
	}
	if p.signer == nil {
		return "cert_file"
	}
	return "auth_key_file"
}
