package http

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/sink/httpcall"
	"github.com/pacer/pacer/internal/sink/render"
)

// maxURL bounds each part of a URL that is made of a job, in bytes.
const maxURL = 8 << 10

// methods are those that a request may have. A GET has no body. It is not sent again by net/http, see addBody in httpcall.
var methods = []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodGet}

const useMethod = "use POST, PUT, PATCH, DELETE or GET"

// form makes the parts of a request that differ from job to job. Those that are nil are the same for all jobs.
type form struct {
	method      *render.Template
	base        *render.Template // the scheme and the host, or all of a URL; nil if the host is the same for all jobs
	path, query *render.Template
	headers     []formHeader
	body        *render.Template
}

type formHeader struct {
	name  string
	value *render.Template
}

// isTemplate reports whether the value of a key is a template. One that was read from a file is what it is, but for a body.
func (c *Config) isTemplate(key, value string) bool {
	return render.IsTemplate(value) && (c.Sources[key] == nil || key == "body")
}

// form parses the templates of the configuration; nil if it has none. An error begins with the key.
func (c *Config) form() (*form, error) {
	var f form
	var first error
	some := false
	parse := func(to **render.Template, key, text string, escape render.Escape) {
		var err error
		if *to, err = render.Parse(key, text, escape); err != nil {
			first = cmp.Or(first, fmt.Errorf("%s: %w", key, err))
		}
		some = true
	}
	if c.isTemplate("method", c.Method) {
		parse(&f.method, "method", c.Method, render.Plain)
	}
	if c.isTemplate("url", c.URL) {
		u, _ := splitURL(c.URL)
		switch {
		case u.whole:
			parse(&f.base, "url", c.URL, render.Plain)
		case u.byJob():
			parse(&f.base, "url", u.base, render.Host)
		}
		if !u.whole {
			parse(&f.path, "url", u.path, render.Path)
		}
		if u.query != "" {
			parse(&f.query, "url", u.query, render.Query)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Headers)) {
		if key := "headers." + name; c.isTemplate(key, c.Headers[name]) {
			f.headers = append(f.headers, formHeader{name: spelling(name)})
			parse(&f.headers[len(f.headers)-1].value, key, c.Headers[name], render.Plain)
		}
	}
	if c.Body != "" {
		parse(&f.body, "body", c.Body, render.Plain)
	}
	if !some || first != nil {
		return nil, first
	}
	return &f, nil
}

// texts are the constant parts of the templates that may hold secrets.
func (f *form) texts() (list []string) {
	if f.query != nil {
		list = append(list, f.query.Texts()...)
	}
	for _, h := range f.headers {
		list = append(list, h.value.Texts()...)
	}
	return list
}

// fill makes the parts of a job's request. An error says why that cannot be done, now or ever.
func (f *form) fill(r *httpcall.Request, job *delivery.Job, now time.Time) error {
	j := render.NewJob(job, now)
	if f.method != nil {
		method, err := f.method.Text(j, httpcall.MaxHeaderBytes)
		if err != nil {
			return err
		}
		if !slices.Contains(methods, method) {
			return errors.New("method: the template makes a method that is not available; " + useMethod)
		}
		r.Method = method
	}
	if f.base != nil {
		u, err := f.place(j)
		if err != nil {
			return err
		}
		r.URL = u
	}
	if f.path != nil {
		if err := f.address(r, j); err != nil {
			return err
		}
	}
	for i := range f.headers {
		h := &f.headers[i]
		value, err := h.value.Text(j, httpcall.MaxHeaderBytes)
		if err != nil {
			return err
		}
		if !httpguts.ValidHeaderFieldValue(value) {
			return fmt.Errorf("headers.%s: the template makes a value with control characters", h.name)
		}
		r.Header[h.name] = []string{strings.Trim(value, " \t")}
	}
	if f.body != nil {
		body, err := f.body.Append(nil, j, render.BodyLimit(job))
		if err != nil {
			return err
		}
		r.Body = body
	}
	return nil
}

// address makes the path and the query. Values are escaped, so that a job cannot add a segment or a parameter; it could only
// go up, by two dots.
func (f *form) address(r *httpcall.Request, j *render.Job) error {
	path, err := f.path.Text(j, maxURL)
	if err != nil {
		return err
	}
	u, err := url.Parse(path)
	if err != nil || u.Host != "" || u.RawQuery != "" {
		return errors.New("url: the template makes a path that is not one of a URL")
	}
	for segment := range strings.SplitSeq(u.Path, "/") {
		if segment == "." || segment == ".." {
			return fmt.Errorf("url: the template makes a path with a segment %s", segment)
		}
	}
	target := *r.URL
	target.Path, target.RawPath = u.Path, u.RawPath
	if f.query != nil {
		if target.RawQuery, err = f.query.Text(j, maxURL); err != nil {
			return err
		}
		if strings.ContainsFunc(target.RawQuery, func(c rune) bool { return c <= ' ' || c == '#' || c >= 0x7f }) {
			return errors.New("url: the template makes a query that is not one of a URL")
		}
	}
	r.URL = &target
	return nil
}
