package page

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

// form is that of a campaign.
type form struct {
	Action   string // where it is sent to
	ID       string
	Revision int64
	Reason   string
	Fields   []formField
	Fault    string        // why it was not done
	Changes  []view.Change // what others did meanwhile, the newest first
}

// formField is a field of a form. Was is what the campaign has, and Now says so where that is not what the form has.
type formField struct {
	Name, Label, Hint, Value, Was, Now string
}

// was is what precedes the name of a field in that of what the campaign had when the form was made.
const was = "was_"

// entered returns what somebody has typed into a field of a form. What the form had by itself was not typed: after a conflict it must not
// undo what others did. A form without what it had, as a script may send it, has only what was typed.
func entered(form url.Values, name string) (text string, ok bool) {
	text = strings.TrimSpace(form.Get(name))
	return text, form.Has(name) && (!form.Has(was+name) || text != strings.TrimSpace(form.Get(was+name)))
}

// formOf makes the form of a campaign; typed is the form that was sent before, if any.
func formOf(now *view.Settings, action string, typed url.Values) *form {
	f := &form{Action: action, ID: now.ID, Revision: now.Revision, Reason: typed.Get("reason")}
	for _, setting := range view.EditForm {
		field := formField{Name: setting.Name, Label: setting.Label, Hint: setting.Hint, Value: setting.Text(now), Was: setting.Text(now)}
		if action == "rate" && field.Name != "rate" {
			continue
		}
		if value, ok := entered(typed, field.Name); ok && value != field.Value {
			field.Value, field.Now = value, "now: "+field.Value
		}
		f.Fields = append(f.Fields, field)
	}
	return f
}

// conflict is the form again, with what was typed, and of the revision that the campaign has now: whoever sends it once more has seen
// what others did.
func (s *Site) conflict(ctx context.Context, typed url.Values, action string, why error) *retry {
	sources := s.looker.Sources()
	now, err := sources.Changer.Settings(ctx, typed.Get("id"))
	if err != nil {
		return nil // the error is shown instead
	}
	f := formOf(now, action, typed)
	f.Fault = brief(why)
	if at, err := revisionOf(typed); err == nil && *at != now.Revision && sources.Records != nil {
		f.Changes, _ = sources.Records.Changes(ctx, view.ChangesOf{Campaign: now.ID, Limit: 3}) // without them it is a conflict as well
	}
	return &retry{"edit", f}
}

// settings looks a campaign up for its form.
func settings(ctx context.Context, s *Site, id string, c *content) *view.Settings {
	changer := s.looker.Sources().Changer
	if changer == nil {
		c.fail(http.StatusForbidden, "There is no database here, and so nothing can be changed.")
		return nil
	}
	now, err := changer.Settings(ctx, id)
	if err != nil {
		c.fail(statusOf(err), "%s", brief(err))
		return nil
	}
	return now
}

func fillEdit(ctx context.Context, s *Site, query url.Values, c *content) {
	if now := settings(ctx, s, query.Get("id"), c); now != nil {
		c.Title, c.Data = "Change "+now.ID, formOf(now, "edit", url.Values{})
	}
}

func fillCancel(ctx context.Context, s *Site, query url.Values, c *content) {
	if now := settings(ctx, s, query.Get("id"), c); now != nil {
		c.Title, c.Data = "Cancel "+now.ID, now
	}
}

func fillBulk(_ context.Context, _ *Site, query url.Values, c *content) {
	by := view.SelectionOf(query)
	by.After, by.Sort = "", ""
	list, all, _ := c.State.Select(by, shortList)
	c.Title = "Change many campaigns"
	c.Data = struct {
		By    view.Selection
		All   int
		Most  int
		Table table
	}{by, all, view.MaxBulk, table{"The first of them", list}}
}

func fillLogin(_ context.Context, s *Site, query url.Values, c *content) {
	c.Title = "Log in"
	c.Data = loginForm{Next: query.Get("next"), Possible: s.guard.Enabled()}
}

type loginForm struct {
	Next, Fault string
	Possible    bool
}

func (s *Site) login(w http.ResponseWriter, r *http.Request) {
	if err := r.ParseForm(); err != nil {
		http.Error(w, "this form cannot be read", http.StatusBadRequest)
		return
	}
	next := r.PostForm.Get("next")
	err := s.guard.Login(w, r, strings.TrimSpace(r.PostForm.Get("token")))
	if err == nil {
		redirect(w, safe(next))
		return
	}
	c := s.blank(r.Context())
	c.Title, c.status, c.Data = "Log in", http.StatusUnauthorized, loginForm{Next: next, Fault: err.Error(), Possible: true}
	if errors.Is(err, auth.ErrLimited) {
		w.Header().Set("Retry-After", "60")
		c.status = http.StatusTooManyRequests
	} else if errors.Is(err, auth.ErrInsecure) {
		c.status = http.StatusForbidden
	}
	s.show(w, c, "login")
}

func (s *Site) logout(w http.ResponseWriter, r *http.Request) {
	s.guard.Logout(w, r)
	redirect(w, "login?done=out")
}

// safe returns an address if it is that of a page here, else that of the first page.
func safe(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || u.Path == overview {
		return "./"
	}
	if _, ok := pages[u.Path]; !ok {
		return "./"
	}
	return u.Path + "?" + u.Query().Encode()
}
