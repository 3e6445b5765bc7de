package page

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

// form is that of a campaign or of a quota.
type form struct {
	Action   string // where it is sent to
	Back     string // where a link leads back to
	New      bool   // the id is a field as well
	ID       string
	Revision int64
	Reason   string
	Fields   []formField
	Fault    string   // why it was not done
	Changes  changes  // what was done meanwhile, the newest first
	Previews bool     // what it would mean can be seen before
	Preview  *preview // what it would mean; nil: nobody has asked
	Zones    []string // time zones to choose from, besides those that a script knows
}

// formField is a field of a form. Was is what the campaign has, and Now says so where that is not what the form has.
type formField struct {
	view.Setting

	Value, Was, Now string

	Empty string // what an option without a text says
	Wrong bool   // what was typed cannot be used
}

// maxOptions bounds the ids that a field offers. If there are more, an id is typed.
const maxOptions = 100

// Chosen reports whether an option is what the field has, or one of those.
func (f *formField) Chosen(option string) bool {
	return option == f.Value || f.Several() && slices.Contains(strings.Fields(f.Value), option)
}

// Several reports whether any number of its options may be chosen.
func (f *formField) Several() bool { return f.Input == view.InputQuotas && f.Options != nil }

// Time reports whether the field is one for a time. Text that is none stays as it was typed.
func (f *formField) Time() bool { return f.Input == view.InputTime && isTime(f.Value) }

// Zone reports whether the field is the name of a time zone.
func (f *formField) Zone() bool { return f.Input == view.InputZone }

// isTime reports whether a browser can show a text in a field for a time.
func isTime(text string) bool {
	_, err := time.Parse("2006-01-02T15:04:05", text)
	_, short := time.Parse("2006-01-02T15:04", text)
	return text == "" || err == nil || short == nil
}

// offer fills in what fields of the form offer: the sinks, quotas and time zones that there are, and what the form has.
func (f *form) offer(state *view.State) {
	for i := range f.Fields {
		field := &f.Fields[i]
		var ids, has []string
		switch field.Input {
		case view.InputSink:
			ids = sinkNames(state)
			field.Empty, has = unknown, []string{"", field.Value, field.Was}
		case view.InputQuotas:
			ids = quotaIDs(state)
			has = strings.Fields(field.Value + " " + field.Was)
			if len(ids) > 0 && len(ids) <= maxOptions {
				field.Hint = "any number of them; Ctrl or ⌘ keeps the others"
			}
		case view.InputZone:
			f.Zones = append(f.Zones, "UTC", "recipient")
			for _, c := range state.Campaigns {
				f.Zones = append(f.Zones, c.TimeZone)
			}
		}
		field.choose(ids, has...)
	}
	slices.Sort(f.Zones)
	f.Zones = slices.DeleteFunc(slices.Compact(f.Zones), func(zone string) bool { return zone == "" })
	f.Zones = f.Zones[:min(len(f.Zones), maxOptions)]
}

// choose lets the field offer ids, and what it has, if the ids are not too many.
func (f *formField) choose(ids []string, has ...string) {
	if len(ids) > 0 && len(ids) <= maxOptions {
		f.Options = slices.Compact(slices.Sorted(slices.Values(append(ids, has...))))
	}
}

func sinkNames(state *view.State) (names []string) {
	for _, s := range state.Sinks {
		names = append(names, s.Name)
	}
	return names
}

// quotaIDs returns the ids of all quotas, or if that is more than maxOptions, of some more than that.
func quotaIDs(state *view.State) (ids []string) {
	for _, q := range state.Quotas[:min(len(state.Quotas), maxOptions+1)] {
		ids = append(ids, q.ID)
	}
	return ids
}

// filters are the fields of a form that selects campaigns or destinations: those that the query names.
func filters(state *view.State, query map[string]string) (list []formField) {
	for _, of := range []struct {
		name, label string
		ids         []string
	}{
		{"state", "State", append(slices.Collect(maps.Keys(state.Counts)), view.Ramping)},
		{"quota", "Quota", quotaIDs(state)},
		{"sink", "Sink", sinkNames(state)},
	} {
		if value, ok := query[of.name]; ok {
			field := formField{Setting: view.Setting{Name: of.name, Label: of.label}, Value: value, Empty: "all"}
			field.choose(of.ids, "", value)
			list = append(list, field)
		}
	}
	return list
}

// fail says why the form was not done, and marks the field that is to blame.
func (f *form) fail(err error) {
	f.Fault = view.Line(err)
	name, _, found := strings.Cut(f.Fault, ":")
	for i := range f.Fields {
		field := &f.Fields[i]
		inTable := field.Name
		if inTable == "rate" {
			inTable = "send_rate"
		}
		field.Wrong = found && name == field.Name || strings.Contains(f.Fault, "."+inTable+" ") || field.Name == "rate" && strings.HasPrefix(f.Fault, "rate ")
	}
}

// was is what precedes the name of a field in that of what the campaign had when the form was made.
const was = "was_"

// entered returns the text that the user has typed into a field. The form's own value does not count as typed: after a conflict it must
// not undo other people's changes. A form without what it had, as a script may send it, has only what was typed. Times are in the zone of the
// form, so with another zone they are all typed.
func entered(form url.Values, field *view.Setting) (text string, ok bool) {
	typed := func(name string) bool {
		return form.Has(name) && (!form.Has(was+name) || typedText(form, name) != strings.TrimSpace(form.Get(was+name)))
	}
	text = typedText(form, field.Name)
	return text, typed(field.Name) || field.Input == view.InputTime && text != "" && typed("time_zone")
}

// typedText is the text of a field. A browser sends each choice of a list by itself.
func typedText(form url.Values, name string) string {
	return strings.TrimSpace(strings.Join(form[name], " "))
}

// formOf makes a form; typed is the form that was sent before, if any.
func formOf(fields []view.Setting, now any, action string, typed url.Values) *form {
	f, values := &form{Action: action, Reason: typed.Get("reason")}, view.ValuesOf(now)
	for i := range fields {
		field := formField{Setting: fields[i], Value: fields[i].Text(values), Was: fields[i].Text(values)}
		if action == "rate" && field.Name != "rate" {
			continue
		}
		if value, ok := entered(typed, &fields[i]); ok && value != field.Value {
			field.Value, field.Now = value, "now: "+field.Value
			values[field.Name] = value // a time zone is that of the times behind it
		}
		f.Fields = append(f.Fields, field)
	}
	return f
}

// before returns the address of the form that changes a campaign or a quota, filled in with the values from before a change; "" if the form
// writes none of them as the table does.
func before(c catalog.Change) string {
	page, query := map[string]string{"campaigns update": "edit", "quotas update": "quota-edit"}[c.What], url.Values{}
	for _, field := range c.Fields {
		switch field.Name {
		case "send_rate", "send_per":
			query.Set("rate", c.OldRate)
		case "status", "paused_until", "active_hours", "ramp", "ramp_since", "job_ttl", "max_wait", "shard": // written otherwise, or not in the form
		default:
			query.Set(field.Name, field.Old)
		}
	}
	if page == "" || len(query) == 0 {
		return ""
	}
	query.Set("id", cmp.Or(c.Campaign, c.Quota))
	return page + "?" + query.Encode()
}

func fillBulk(_ context.Context, _ *Site, query url.Values, c *content) {
	by := view.Selection{CampaignFilter: view.SelectionOf(query).CampaignFilter}
	list, all, _ := c.State.Select(by, shortList)
	c.Title = "Change many campaigns"
	c.Data = struct {
		By    view.Selection
		All   int
		Most  int
		Table table
	}{by, all, view.MaxBulk, table{Caption: "The first of them", List: list}}
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
