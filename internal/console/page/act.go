package page

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/api"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// action is what a form does. After success, do returns the next page. After an error it returns the error and, if there is one, the page
// that shows the form again. A preview returns only that page.
type action struct {
	role auth.Role
	do   func(ctx context.Context, s *Site, form url.Values) (next string, again *retry, err error)

	beside bool // it changes nothing in the database
}

// retry is a form that is shown again.
type retry struct {
	page  string
	data  any
	title string // "": that nothing is changed
}

var actions = map[string]action{
	"pause":  {role: auth.Operator, do: setStatus(delivery.StatusPaused, "paused")},
	"resume": {role: auth.Operator, do: setStatus(delivery.StatusActive, "resumed")},
	"rate":   {role: auth.Operator, do: setRate},
	"edit":   {role: auth.Admin, do: campaigns.edit},
	"create": {role: auth.Admin, do: campaigns.create},
	"cancel": {role: auth.Admin, do: cancel},
	"bulk":   {role: auth.Operator, do: bulk},

	"quota-edit":   {role: auth.Admin, do: quotas.edit},
	"quota-create": {role: auth.Admin, do: quotas.create},
	"quota-delete": {role: auth.Admin, do: quotas.delete},
	"quota-adjust": {role: auth.Admin, do: adjustQuota},

	"key-hold":    {role: auth.Operator, do: holdKey},
	"key-release": {role: auth.Operator, do: releaseKey},

	"destination-disable": {role: auth.Operator, do: setDestination(true, "disabled")},
	"destination-enable":  {role: auth.Operator, do: setDestination(false, "enabled")},
	"destination-edit":    {role: auth.Admin, do: destinations.edit},
	"destination-create":  {role: auth.Admin, do: destinations.create},
	"destination-delete":  {role: auth.Admin, do: destinations.delete},

	"destination-test": {role: auth.Operator, do: testDestination, beside: true},

	"pause-all":  {role: auth.Admin, do: pauseAll},
	"resume-all": {role: auth.Admin, do: resumeAll},

	"job-cancel": {role: auth.Operator, do: cancelJob},

	"sink-open": {role: auth.Operator, do: openSink, beside: true},

	"replay":      {role: auth.Operator, do: startReplay, beside: true},
	"stop-replay": {role: auth.Operator, do: stopReplay, beside: true},
}

// done are the words for what was done.
var done = map[string]string{
	"paused": "The campaign is paused.", "resumed": "The campaign goes on.", "changed": "The campaign is changed.",
	"created": "The campaign is created.", "cancelled": "The campaign is cancelled.", "quota": "The quota is changed.",
	"quota-created": "The quota is created.", "quota-deleted": "The quota is deleted.", "adjusted": "The count is corrected.",
	"held": "The key is held.", "released": "The key is released.",
	"bulk": "The campaigns are changed.", "all-paused": "All campaigns are paused.", "all-resumed": "The campaigns go on that were paused together.", "replay": "The replay has begun.",
	"disabled": "The destination is disabled.", "enabled": "The destination is enabled.", "destination": "The destination is changed.",
	"destination-created": "The destination is created.", "destination-deleted": "The destination is deleted.",
	"job-cancelled": "The job is cancelled: it is not sent, and settles at its turn.", "job-in_flight": "The job is being sent, and was not cancelled.",
	"job-delivered": "The job was delivered before, and was not cancelled.", "job-not_found": "No record of the job waits; nothing was cancelled.",
	"stop": "The replay is being stopped.", "out": "You are logged out.",
	"opened": "The gate is open; it closes again if the destination still does not work.", "open": "The gate was open already.",
}

// noDatabase says what a process without one cannot do.
const noDatabase = "There is no database here, and so nothing can be changed."

// need lets those pass who have the role. Those whom logging in may help are sent there.
func (s *Site) need(role auth.Role, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		who := auth.Of(r.Context())
		if who.Role >= role {
			next(w, r)
			return
		}
		if r.Method == http.MethodGet && who.Name == "" && s.guard.Enabled() && r.URL.Path != "/live" {
			here := strings.TrimPrefix(r.URL.Path, "/")
			if r.URL.RawQuery != "" {
				here += "?" + r.URL.RawQuery
			}
			redirect(w, "login?"+url.Values{"next": {here}}.Encode())
			return
		}
		c := s.blank(r.Context())
		c.fail(http.StatusForbidden, "This takes the role %s, and you have %s.", role, who.Role)
		s.show(w, c, "message")
	}
}

func (s *Site) blank(ctx context.Context) *content {
	return s.make(ctx, "message", page{fill: func(context.Context, *Site, url.Values, *content) {}}, url.Values{})
}

// redirect sends the browser to another page. The address is relative, so that it is right below any path.
func redirect(w http.ResponseWriter, to string) {
	w.Header().Set("Location", to)
	w.WriteHeader(http.StatusSeeOther)
}

// act does what a form says, or shows what it would do, and then sends the browser to the page that shows it: loading that again does nothing twice.
func (s *Site) act(w http.ResponseWriter, r *http.Request, a action) {
	ctx := r.Context()
	if err := r.ParseForm(); err != nil {
		c := s.blank(ctx)
		c.fail(http.StatusBadRequest, "This form cannot be read.")
		if large, ok := errors.AsType[*http.MaxBytesError](err); ok {
			c.fail(http.StatusRequestEntityTooLarge, "This form is larger than %d bytes, and nothing was done.", large.Limit)
		}
		s.show(w, c, "message")
		return
	}
	next, again := "", (*retry)(nil)
	acting, err := view.By(ctx, strings.TrimSpace(r.PostForm.Get("reason")))
	switch {
	case err != nil:
	case s.watcher.Sources().Catalog == nil && !a.beside:
		err = catalog.Fault(catalog.ErrForbidden, noDatabase)
	default:
		next, again, err = a.do(acting, s, r.PostForm)
	}
	if err == nil && again == nil {
		who := auth.Of(ctx)
		s.log.Info("the console has done what a form asks", "action", strings.TrimPrefix(r.URL.Path, "/"), "id", r.PostForm.Get("id"),
			"by", who.Actor(), "request", who.Request)
		s.watcher.Renew(ctx) // the page that follows shows what was done
		redirect(w, next)
		return
	}
	c := s.blank(ctx)
	if again == nil {
		if c.fail(api.StatusOf(err), "%s", view.Line(err)); errors.Is(err, catalog.ErrInvalid) {
			c.Title, c.Data = "Not changed", message{view.Line(err), strings.TrimPrefix(r.URL.Path, "/"), cmp.Or(r.Referer(), "./"), r.PostForm}
		}
		s.show(w, c, "message")
		return
	}
	if c.Title, c.Data = cmp.Or(again.title, "Not changed yet"), again.data; err != nil {
		c.Title, c.status = "Not changed", api.StatusOf(err)
	}
	if errors.Is(err, catalog.ErrInDoubt) {
		c.Title = "Perhaps changed"
	}
	s.show(w, c, again.page)
}

// setStatus takes no revision: a pause must not fail because the rate has changed.
func setStatus(status delivery.Status, what string) func(context.Context, *Site, url.Values) (string, *retry, error) {
	return func(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
		id := form.Get("id")
		_, err := s.watcher.Sources().SetStatus(ctx, id, status, strings.TrimSpace(form.Get("until")), nil)
		return campaigns.page(id, what), nil, err
	}
}

func revisionOf(form url.Values) (*int64, error) {
	revision, err := strconv.ParseInt(form.Get("revision"), 10, 64)
	if err != nil {
		return nil, catalog.Fault(catalog.ErrInvalid, "The form has no revision.")
	}
	return &revision, nil
}

func cancel(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id := form.Get("id")
	if form.Get("typed") != id {
		return "", nil, catalog.Fault(catalog.ErrInvalid, "typed: this is not the id of the campaign; nothing was cancelled.")
	}
	at, err := revisionOf(form)
	if err == nil {
		_, err = s.watcher.Sources().SetStatus(ctx, id, delivery.StatusCancelled, "", at)
	}
	return campaigns.page(id, "cancelled"), nil, err
}

func bulk(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	by := view.SelectionOf(form)
	ids, err := s.expected(ctx, by.CampaignFilter, form)
	if err != nil {
		return "", nil, err
	}
	change := catalog.BulkChange{Action: form.Get("action"), Rate: strings.TrimSpace(form.Get("rate")), Until: strings.TrimSpace(form.Get("until"))}
	if text := strings.TrimSuffix(strings.TrimSpace(form.Get("rate")), "%"); change.Action == "percent" {
		change.Rate = ""
		if change.Percent, err = strconv.ParseFloat(strings.TrimSpace(text), 64); err != nil {
			return "", nil, catalog.Fault(catalog.ErrInvalid, "rate: %q is not a number of percent.", notation.Shorten(text))
		}
	}
	err = s.many(ctx, ids, change)
	by.After = ""
	query, _ := url.ParseQuery(by.Query()) // it was made by url.Values
	query.Set("done", "bulk")
	return "campaigns?" + query.Encode(), nil, err
}

// expected returns the selected campaigns, if they are as many as the form has shown.
func (s *Site) expected(ctx context.Context, by view.CampaignFilter, form url.Values) ([]string, error) {
	expect, err := strconv.Atoi(form.Get("expect"))
	if err != nil {
		return nil, catalog.Fault(catalog.ErrInvalid, "The form does not say how many campaigns it is about.")
	}
	return s.watcher.Fresh(ctx).All(by, expect)
}

// many changes campaigns. If it fails halfway, the log and the error say how many it has changed.
func (s *Site) many(ctx context.Context, ids []string, change catalog.BulkChange) error {
	n, err := s.watcher.Sources().Catalog.ChangeCampaigns(ctx, ids, change)
	if err != nil && n > 0 {
		s.log.Info("the console has done a part of what a form asks", "action", change.Action, "matched", len(ids), "changed", n,
			"by", auth.Of(ctx).Actor(), "request", auth.Of(ctx).Request)
		err = catalog.Fault(err, "%d of %d campaigns were changed, then: %s", n, len(ids), view.Line(err))
	}
	return err
}
