package page

import (
	"context"
	"net/url"
	"strings"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

// rows are the rows of one table of the catalog. Forms create, change and delete them; E is a change of what S shows.
type rows[S any, E comparable] struct {
	name   string // of one, and of its page; that of all has an s at the end
	prefix string // of the names of its forms
	title  string // what precedes an id in titles
	done   string // what says that one was changed

	fields   []view.Setting
	begin    func() *S // what the form of a new one begins with
	read     func(s *view.Sources, ctx context.Context, id string) (*S, error)
	write    func(s *view.Sources, ctx context.Context, id string, change *E, on catalog.Precondition) (*S, error)
	remove   func(ctx context.Context, c view.Catalog, form url.Values, at *int64) error
	revision func(*S) int64
	changes  func(id string) catalog.ChangesOf
	form     func(now *S, action string, typed url.Values) *form                           // nil: formOf
	preview  func(ctx context.Context, s *Site, now *S, change *E) (p *preview, err error) // nil: there is none
}

var campaigns = &rows[catalog.CampaignRow, catalog.CampaignChange]{
	name: "campaign", done: "changed", fields: view.CampaignForm, begin: view.NewCampaign,
	read: (*view.Sources).Campaign, write: (*view.Sources).WriteCampaign, revision: (*catalog.CampaignRow).Seen,
	changes: func(id string) catalog.ChangesOf { return catalog.ChangesOf{Campaign: id} },
}

var quotas = &rows[catalog.QuotaRow, catalog.QuotaChange]{
	name: "quota", prefix: "quota-", title: "quota ", done: "quota", fields: view.QuotaForm, begin: view.NewQuota,
	read: (*view.Sources).Quota, write: (*view.Sources).WriteQuota, revision: (*catalog.QuotaRow).Seen,
	remove: func(ctx context.Context, c view.Catalog, form url.Values, at *int64) error {
		_, err := c.DeleteQuota(ctx, form.Get("id"), form.Get("unlink") == "yes", at)
		return err
	},
	changes: func(id string) catalog.ChangesOf { return catalog.ChangesOf{Quota: id} },
	preview: func(ctx context.Context, s *Site, now *catalog.QuotaRow, change *catalog.QuotaChange) (*preview, error) {
		return previewOf(s.watcher.Look(ctx), now, change)
	},
}

var destinations = &rows[catalog.DestinationRow, catalog.DestinationChange]{
	name: "destination", prefix: "destination-", title: "destination ", done: "destination",
	fields: view.DestinationForm, begin: func() *catalog.DestinationRow { return &catalog.DestinationRow{} },
	read: (*view.Sources).Destination, write: (*view.Sources).WriteDestination, revision: (*catalog.DestinationRow).Seen,
	remove: func(ctx context.Context, c view.Catalog, form url.Values, at *int64) error {
		_, err := c.DeleteDestination(ctx, form.Get("id"), at)
		return err
	},
	changes: func(id string) catalog.ChangesOf { return catalog.ChangesOf{Destination: id} },
	// The form leaves out an address with a query. The page hides the query, so a change of the path would lose it.
	form: func(now *catalog.DestinationRow, action string, typed url.Values) *form {
		shown := *now
		if now.Query {
			shown.URL = ""
		}
		f := formOf(view.DestinationForm, &shown, action, typed)
		if now.Query {
			f.Fields[0].Hint += "; empty: it stays " + now.URL + "?…"
		}
		return f
	},
}

// page is the page of a row, which says what was done; "" for nothing.
func (r *rows[S, E]) page(id, what string) string {
	query := url.Values{"id": {id}}
	if what != "" {
		query.Set("done", what)
	}
	return r.name + "?" + query.Encode()
}

// row looks a row up for its page or its form.
func (r *rows[S, E]) row(ctx context.Context, s *Site, id string, c *content) *S {
	now, err := r.read(s.watcher.Sources(), ctx, id)
	if err != nil {
		c.refuse(err)
		return nil
	}
	return now
}

// editForm is the form of a row that exists; typed is the form that was sent before, if any.
func (r *rows[S, E]) editForm(ctx context.Context, s *Site, id string, now *S, action string, typed url.Values) *form {
	var f *form
	if r.form != nil {
		f = r.form(now, action, typed)
	} else {
		f = formOf(r.fields, now, action, typed)
	}
	f.ID, f.Revision, f.Back, f.Previews = id, r.revision(now), r.page(id, ""), r.preview != nil
	f.offer(s.watcher.Look(ctx))
	return f
}

// newForm is the form of a row that does not exist yet. All of it is sent as typed: what it begins with is shown.
func (r *rows[S, E]) newForm(ctx context.Context, s *Site, typed url.Values) *form {
	f := formOf(r.fields, r.begin(), r.prefix+"create", typed)
	f.New, f.ID, f.Back = true, typed.Get("id"), r.name+"s"
	for i := range f.Fields {
		f.Fields[i].Now = ""
	}
	f.offer(s.watcher.Look(ctx))
	return f
}

func (r *rows[S, E]) fillEdit(ctx context.Context, s *Site, query url.Values, c *content) {
	id := query.Get("id")
	if now := r.row(ctx, s, id, c); now != nil {
		c.Title, c.Data = "Change "+r.title+id, r.editForm(ctx, s, id, now, r.prefix+"edit", query)
	}
}

func (r *rows[S, E]) fillCreate(ctx context.Context, s *Site, _ url.Values, c *content) {
	c.Title, c.Data = "New "+r.name, r.newForm(ctx, s, url.Values{})
}

// fillLast makes the form that ends a row: what it says is done to it.
func (r *rows[S, E]) fillLast(what string) func(context.Context, *Site, url.Values, *content) {
	return func(ctx context.Context, s *Site, query url.Values, c *content) {
		if now := r.row(ctx, s, query.Get("id"), c); now != nil {
			c.Title, c.Data = what+" "+r.title+query.Get("id"), now
		}
	}
}

// edit changes what was typed, of the row as it was shown.
func (r *rows[S, E]) edit(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id, action := form.Get("id"), r.prefix+"edit"
	at, err := revisionOf(form)
	if err != nil {
		return "", nil, err
	}
	now, err := r.read(s.watcher.Sources(), ctx, id)
	if err != nil {
		return "", nil, err
	}
	change, err := view.EditOf[E](r.fields, view.ValuesOf(now), func(field *view.Setting) (string, bool) { return entered(form, field) })
	if r.revision(now) != *at {
		err = catalog.Fault(catalog.ErrStale, "%s was changed after this form was opened; nothing was done.", notation.Shorten(id))
	}
	if err == nil && r.preview != nil && form.Has("preview") {
		f := r.editForm(ctx, s, id, now, action, form)
		if f.Preview, err = r.preview(ctx, s, now, change); err == nil {
			return "", &retry{page: "edit", data: f}, nil
		}
	}
	if err == nil && *change == *new(E) {
		return r.page(id, ""), nil, nil
	}
	if err == nil {
		_, err = r.write(s.watcher.Sources(), ctx, id, change, catalog.Precondition{At: at})
	}
	if err != nil {
		return "", r.again(ctx, s, form, action, err), err
	}
	return r.page(id, r.done), nil, nil
}

// again is the form with the typed values and the row's present revision, so that the user has seen other people's changes. nil: the row
// cannot be read, and the error is shown instead.
func (r *rows[S, E]) again(ctx context.Context, s *Site, typed url.Values, action string, why error) *retry {
	id := typed.Get("id")
	now, err := r.read(s.watcher.Sources(), ctx, id)
	if err != nil {
		return nil
	}
	f := r.editForm(ctx, s, id, now, action, typed)
	f.fail(why)
	if at, err := revisionOf(typed); err == nil && *at != f.Revision {
		of := r.changes(id)
		of.Limit = shortChanges
		list, _ := s.watcher.Sources().Changes(ctx, of) // without them it is a conflict as well
		f.Changes.List = s.said(ctx, s.watcher.Look(ctx), list)
	}
	return &retry{page: "edit", data: f}
}

func (r *rows[S, E]) create(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id := strings.TrimSpace(form.Get("id"))
	change, err := view.EditOf[E](r.fields, view.Values{}, func(field *view.Setting) (string, bool) {
		return typedText(form, field.Name), form.Has(field.Name)
	})
	if err == nil {
		_, err = r.write(s.watcher.Sources(), ctx, id, change, catalog.Precondition{New: true})
	}
	if err != nil {
		f := r.newForm(ctx, s, form)
		f.fail(err)
		return "", &retry{page: "edit", data: f}, err
	}
	if r.name == "destination" {
		return r.page(id, r.prefix+"created"), nil, nil
	}
	return r.name + "s?done=" + r.prefix + "created", nil, nil // its page is there once the catalog has been read
}

func (r *rows[S, E]) delete(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	if form.Get("typed") != form.Get("id") {
		return "", nil, catalog.Fault(catalog.ErrInvalid, "typed: this is not the id of the %s; nothing was deleted.", r.name)
	}
	at, err := revisionOf(form)
	if err == nil {
		err = r.remove(ctx, s.watcher.Sources().Catalog, form, at)
	}
	return r.name + "s?done=" + r.prefix + "deleted", nil, err
}
