package http

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/base"
	"github.com/pacer/pacer/internal/sink/guard"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/render"
	"github.com/pacer/pacer/internal/sink/signature"
)

// reach says where the addresses of a sink come from.
type reach uint8

const (
	fixed   reach = iota // from the configuration: one host for all jobs
	byJob                // the host, or all of the address, is made of the job
	byTable              // from pacer.destinations, by the name in the job
)

// reach returns where the addresses of the sink come from.
func (c *Config) reach() reach {
	if c.Destinations {
		return byTable
	}
	if u, ok := splitURL(c.URL); ok && c.isTemplate("url", c.URL) && u.byJob() {
		return byJob
	}
	return fixed
}

// Elsewhere reports whether the host comes from jobs.
func (c *Config) Elsewhere() bool { return c.reach() != fixed }

// parts are those of a URL that is a template.
type parts struct {
	whole       bool   // it begins with an action, and so is nothing but what the job says
	base        string // scheme and host, without a slash at the end
	path, query string // the path begins with a slash
}

// byJob reports whether the host comes from the job.
func (u *parts) byJob() bool { return u.whole || render.IsTemplate(u.base) }

// splitURL divides a URL that is a template; ok is false for what is none. Actions may hold slashes and question marks.
func splitURL(s string) (u parts, ok bool) {
	if strings.HasPrefix(s, "{{") {
		return parts{whole: true}, true
	}
	plain := actions.ReplaceAllStringFunc(s, func(action string) string { return strings.Repeat("x", len(action)) })
	scheme, rest, hasScheme := strings.Cut(plain, "://")
	host := len(plain) - len(rest)
	if !hasScheme || render.IsTemplate(s[:len(scheme)]) {
		return parts{}, false
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		return parts{base: s, path: "/"}, true
	}
	if end += host; s[end] == '?' {
		return parts{}, false
	}
	u.base, u.path = s[:end], s[end:]
	if mark := strings.IndexByte(plain[end:], '?'); mark >= 0 {
		u.path, u.query = u.path[:mark], u.path[mark+1:]
	}
	return u, true
}

// actions matches those of a template.
var actions = regexp.MustCompile(`(?s)\{\{.*?\}\}`)

// sample is the URL with something in place of what comes from jobs, to be looked at; "" if all of it does.
func (c *Config) sample() (address string, ok bool) {
	if !c.isTemplate("url", c.URL) {
		return c.URL, true
	}
	u, ok := splitURL(c.URL)
	return actions.ReplaceAllString(u.base, "x"), ok
}

// addressProblems adds what is wrong with the address.
func (c *Config) addressProblems(p *base.Problems) {
	sample, ok := c.sample()
	why := httpcall.URLProblem(sample)
	switch {
	case c.Destinations && c.URL != "":
		p.Add("url: with destinations, each has its own; remove it")
	case c.Destinations:
	case !ok:
		p.Add("url: a template must be all of it, or begin with http:// or https:// and have a / behind the host; " +
			"use one such as https://example.com/{{ .Campaign }}")
	case sample == "" && c.reach() == byJob:
	case why != "":
		p.Add("url: %s", why)
	}
}

// guardProblems adds what is wrong with the settings of a sink whose addresses come from jobs, and with the proxy.
func (c *Config) guardProblems(p *base.Problems) {
	before := len(*p)
	if why := httpcall.ProxyProblem(c.Proxy); why != "" {
		p.Add("proxy: %s", why)
	}
	if c.reach() == fixed {
		if !c.Guard.Equal(guard.Default()) && !c.Guard.Equal(guard.Config{}) {
			p.Add("guard: is for addresses that come from jobs, and the host of url is always the same; remove it")
		}
		return
	}
	*p = append(*p, c.Guard.Problems("guard.")...)
	sample, _ := c.sample()
	if strings.HasPrefix(sample, "http://") && !c.Guard.AllowHTTP {
		p.Add("url: begins with http://; use https://, or set guard.allow_http and guard.ports")
	}
	if httpcall.HasUser(sample) {
		p.Add("url: has a user, which an address that is made of a job must not have; use basic")
		return
	}
	if g, err := guard.New(c.Guard); err == nil && len(*p) == before && httpcall.URLProblem(sample) == "" {
		u, _ := url.Parse(sample) // which is one
		if err := g.URL(u); err != nil {
			p.Add("url: %s", err)
		}
	}
	if c.Destinations && slices.ContainsFunc(c.Sign.Secrets, signature.Shared) {
		p.Add("sign.secrets: each destination would know the secret of all others; use a key, whsk_…, or give each its own secrets")
	}
	if ways := c.ways(); len(ways) > 0 && !c.ownDomain() {
		remedy := "let the host end in a domain of your own, such as https://{{ … }}.example.com/, or remove it"
		if c.Destinations {
			remedy = "remove it, and give it to those destinations that need it: pacer destination set ID --header"
		}
		p.Add("%s: would be sent to any host that a job names; %s", ways[0], remedy)
	}
}

// ownDomain reports whether all hosts that jobs can name are in a domain that the configuration names.
func (c *Config) ownDomain() bool {
	if c.Destinations {
		return false
	}
	u, _ := splitURL(c.URL)
	i := strings.LastIndex(u.base, "}}")
	if i < 0 {
		return false
	}
	domain, isDomain := strings.CutPrefix(u.base[i+len("}}"):], ".")
	domain, _, _ = strings.Cut(domain, ":")
	return isDomain && strings.Contains(strings.Trim(domain, "."), ".")
}

// place returns the address that is made of a job. If the path is a template, it is left out.
func (f *form) place(j *render.Job) (*url.URL, error) {
	text, err := f.base.Text(j, maxURL)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" || u.Fragment != "" || strings.Contains(text, "#") {
		return nil, errors.New("url: the template makes no URL")
	}
	return u, nil
}

// Destinations implements base.Sink.
func (s *Sink) Destinations() func(job *delivery.Job) string {
	if s.Now().reach == fixed {
		return nil
	}
	return s.destination
}

// destination returns the name of the destination that a job is sent to: scheme, host and port. It is "" if the sink has only
// one, or none for this job, or if that takes long to find out.
func (s *Sink) destination(job *delivery.Job) string {
	c := s.Now()
	if c.reach != byJob {
		return ""
	}
	u, err := c.form.place(render.NewQuick(job))
	if err != nil || u.Host == "" {
		return ""
	}
	return httpcall.DestinationOf(u)
}
