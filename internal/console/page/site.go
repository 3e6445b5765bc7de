// Package page serves the console: pages rendered on the server, which work without JavaScript, and which a stream keeps up to date
// where there is some. All links are relative, so that the console works below any path.
package page

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/console/api"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/live"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

// policy is the Content-Security-Policy of all pages: nothing from elsewhere, and no script or style in the page itself. Other answers
// have the stricter one of the server.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Site serves the pages.
type Site struct {
	watcher *view.Watcher
	hub     *live.Hub
	log     *slog.Logger
	guard   *auth.Guard
}

// New makes a Site.
func New(watcher *view.Watcher, hub *live.Hub, guard *auth.Guard, log *slog.Logger) *Site {
	return &Site{watcher: watcher, hub: hub, guard: guard, log: log}
}

// Register adds the routes of the site.
func (s *Site) Register(mux *http.ServeMux) {
	for name, p := range pages {
		pattern := "GET /" + name
		if name == overview {
			pattern = "GET /{$}"
		}
		mux.HandleFunc(pattern, s.need(p.role, func(w http.ResponseWriter, r *http.Request) { s.page(w, r, name, p) }))
	}
	for name, a := range actions {
		mux.HandleFunc("POST /"+name, s.need(a.role, func(w http.ResponseWriter, r *http.Request) { s.act(w, r, a) }))
	}
	mux.HandleFunc("POST /login", s.login)
	mux.HandleFunc("POST /logout", s.logout)
	mux.HandleFunc("GET /live", s.need(auth.Viewer, s.live))
	for name, of := range sheets {
		mux.HandleFunc("GET /"+name+".csv", s.need(auth.Viewer, s.sheet(name, of)))
	}
	mux.HandleFunc("GET /static/{hash}/{file...}", asset)
}

// content is what a template renders.
type content struct {
	Title   string
	Nav     []link
	Live    string // address of the stream; "" for none
	Version string
	Who     *auth.Identity
	Login   bool   // one can log in
	Done    string // what was done last, in one line
	State   *view.State
	Old     bool // the state is so old that it is said to be
	Data    any

	status  int  // of HTTP; 0 is 200
	message bool // Data is one, instead of the page
}

type link struct {
	Name, Link string
	Here       bool
}

// make computes the content of a page.
func (s *Site) make(ctx context.Context, name string, p page, query url.Values) *content {
	c := &content{
		State: &view.State{}, Version: s.watcher.Sources().Version, Who: auth.Of(ctx), Login: s.guard.Enabled(), Done: done[query.Get("done")],
	}
	if c.Who.Role >= auth.Viewer { // others see the form for logging in only, and nobody looks for them
		c.State = s.watcher.Look(ctx)
		c.Old = !c.State.At.IsZero() && time.Since(c.State.At) >= view.StaleAfter
	}
	p.fill(ctx, s, query, c)
	for _, n := range navigation {
		address := n.page
		if n.page == overview {
			address = "./"
		}
		c.Nav = append(c.Nav, link{Name: n.name, Link: address, Here: n.page == name || p.under != "" && n.page == p.under})
	}
	if p.every > 0 && c.status == 0 {
		q := url.Values{"page": {name}}
		for key, values := range query {
			if key != "page" {
				q[key] = values
			}
		}
		c.Live = "live?" + q.Encode()
	}
	return c
}

// render renders the whole page, or only its part that changes.
func (s *Site) render(c *content, name, block string) ([]byte, error) {
	if c.message {
		name = "message"
	}
	var b bytes.Buffer
	if err := templates()[name].ExecuteTemplate(&b, block, c); err != nil {
		return nil, fmt.Errorf("render page %q: %w", name, err)
	}
	return b.Bytes(), nil
}

func (s *Site) page(w http.ResponseWriter, r *http.Request, name string, p page) {
	s.show(w, s.make(r.Context(), name, p, r.URL.Query()), name)
}

// show answers with a page.
func (s *Site) show(w http.ResponseWriter, c *content, name string) {
	html, err := s.render(c, name, "base")
	if err != nil {
		s.log.Error("a page of the console cannot be shown", "error", err)
		http.Error(w, "this page cannot be shown; the log has more", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", policy)
	w.Header().Set("Referrer-Policy", "same-origin")
	if c.status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "10")
	}
	if c.status != 0 {
		w.WriteHeader(c.status)
	}
	_, _ = w.Write(html)
}

// live streams the part of a page that changes. Its query is that of the page, whose name is in page.
func (s *Site) live(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	name := query.Get("page")
	p, ok := pages[name]
	if !ok || p.every == 0 {
		http.Error(w, "page: no page of this name is live", http.StatusBadRequest)
		return
	}
	err := s.hub.Serve(w, r, max(auth.Viewer, p.role), p.every, func(ctx context.Context) ([]byte, error) {
		b, err := s.render(s.make(ctx, name, p, query), name, "region")
		return bytes.TrimSpace(b), err
	})
	if err != nil {
		w.Header().Set("Retry-After", strconv.Itoa(int(live.RetryAfter.Seconds())))
		http.Error(w, err.Error()+"; reload this page to see news", http.StatusServiceUnavailable)
	}
}

type page struct {
	role  auth.Role     // that it takes
	every time.Duration // how often it changes; 0: it is not live
	of    string        // name of its template; "" is its own
	under string        // the page of the navigation that it belongs to
	fill  func(ctx context.Context, s *Site, query url.Values, c *content)
}

// overview is the name of the first page.
const overview = ""

var navigation = []struct{ page, name string }{
	{overview, "Overview"}, {"campaigns", "Campaigns"}, {"quotas", "Quotas"}, {"dead", "Dead letters"},
	{"destinations", "Destinations"}, {"sinks", "Sinks"}, {"daemons", "Daemons"}, {"changes", "Changes"},
}

var pages = map[string]page{
	overview:       {role: auth.Viewer, every: time.Second, fill: fillOverview},
	"campaigns":    {role: auth.Viewer, every: time.Second, fill: fillCampaigns},
	"campaign":     {role: auth.Viewer, every: time.Second, under: "campaigns", fill: fillCampaign},
	"rate":         {role: auth.Operator, under: "campaigns", fill: fillRate},
	"edit":         {role: auth.Admin, under: "campaigns", fill: campaigns.fillEdit},
	"create":       {role: auth.Admin, of: "edit", under: "campaigns", fill: campaigns.fillCreate},
	"cancel":       {role: auth.Admin, under: "campaigns", fill: campaigns.fillLast("Cancel")},
	"bulk":         {role: auth.Operator, under: "campaigns", fill: fillBulk},
	"quotas":       {role: auth.Viewer, every: time.Second, fill: fillQuotas},
	"quota":        {role: auth.Viewer, every: time.Second, under: "quotas", fill: fillQuota},
	"quota-edit":   {role: auth.Admin, of: "edit", under: "quotas", fill: quotas.fillEdit},
	"quota-create": {role: auth.Admin, of: "edit", under: "quotas", fill: quotas.fillCreate},
	"quota-delete": {role: auth.Admin, under: "quotas", fill: quotas.fillLast("Delete")},
	"quota-adjust": {role: auth.Admin, under: "quotas", fill: fillAdjustQuota},

	"pause-all": {role: auth.Admin, under: "campaigns", fill: fillPauseAll},

	"destinations":       {role: auth.Viewer, fill: fillDestinations},
	"destination":        {role: auth.Viewer, every: 2 * time.Second, under: "destinations", fill: fillDestination},
	"destination-edit":   {role: auth.Admin, of: "edit", under: "destinations", fill: destinations.fillEdit},
	"destination-create": {role: auth.Admin, of: "edit", under: "destinations", fill: destinations.fillCreate},
	"destination-test":   {role: auth.Operator, under: "destinations", fill: fillTest},
	"destination-delete": {role: auth.Admin, under: "destinations", fill: destinations.fillLast("Delete")},

	"job":     {role: auth.Operator, every: time.Second, under: "dead", fill: fillJob},
	"dead":    {role: auth.Viewer, every: time.Second, fill: fillDead},
	"letter":  {role: auth.Operator, every: time.Second, under: "dead", fill: fillLetter},
	"replay":  {role: auth.Operator, under: "dead", fill: fillReplay},
	"replays": {role: auth.Viewer, every: time.Second, under: "dead", fill: fillReplays},
	"sinks":   {role: auth.Viewer, every: time.Second, fill: fillSinks},
	"daemons": {role: auth.Viewer, every: time.Second, fill: fillDaemons},
	"changes": {role: auth.Viewer, fill: fillChanges},
	"login":   {fill: fillLogin},
}

func (c *content) fail(status int, format string, args ...any) {
	c.Title, c.status, c.message = http.StatusText(status), status, true
	c.Data = message{Message: fmt.Sprintf(format, args...)}
}

func (c *content) refuse(err error) { c.fail(api.StatusOf(err), "%s", view.Line(err)) }

// missing makes the page say that there is no such thing, or that it is not known which there are.
func (c *content) missing(what, id string) {
	if err := c.State.Missing(view.CampaignFilter{}); err != nil {
		c.refuse(err)
		return
	}
	c.fail(http.StatusNotFound, "There is no %s %s.", what, notation.Shorten(id))
}

// quota returns a quota of the state. Without it the page says so.
func (c *content) quota(id string) *view.Quota {
	q := c.State.Quota(id)
	if q == nil {
		c.missing("quota", id)
	}
	return q
}

// message says why something was not done. If what was typed in a form is why, it has the form.
type message struct {
	Message, Action, Back string
	Form                  url.Values
}

// oneOf returns the word if it is allowed, else the first of those that are.
func oneOf(word string, allowed []string) string {
	if slices.Contains(allowed, word) {
		return word
	}
	return allowed[0]
}
