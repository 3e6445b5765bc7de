package page

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

// quotaSettings looks a quota up for its form.
func quotaSettings(ctx context.Context, s *Site, id string, c *content) *view.QuotaSettings {
	changer := s.looker.Sources().Quotas
	if changer == nil {
		c.fail(http.StatusForbidden, "There is no database here, and so nothing can be changed.")
		return nil
	}
	now, err := changer.QuotaSettings(ctx, id)
	if err != nil {
		c.fail(statusOf(err), "%s", brief(err))
		return nil
	}
	return now
}

func fillEditQuota(ctx context.Context, s *Site, query url.Values, c *content) {
	if now := quotaSettings(ctx, s, query.Get("id"), c); now != nil {
		c.Title, c.Data = "Change quota "+now.ID, quotaForm(now, query)
	}
}

func fillCreateQuota(_ context.Context, _ *Site, _ url.Values, c *content) {
	c.Title, c.Data = "New quota", newForm(view.QuotaForm, view.NewQuota(), "quota-create", "quotas", url.Values{})
}

func fillDeleteQuota(ctx context.Context, s *Site, query url.Values, c *content) {
	if now := quotaSettings(ctx, s, query.Get("id"), c); now != nil {
		c.Title, c.Data = "Delete quota "+now.ID, now
	}
}

func fillAdjustQuota(_ context.Context, _ *Site, query url.Values, c *content) {
	q := c.State.Quota(query.Get("id"))
	if q == nil {
		c.fail(http.StatusNotFound, "There is no quota %s.", notation.Shorten(query.Get("id")))
		return
	}
	c.Title, c.Data = "Correct a count of quota "+q.ID, q
}

// quotaForm is the form of a quota that exists.
func quotaForm(now *view.QuotaSettings, typed url.Values) *form {
	f := formOf(view.QuotaForm, now, "quota-edit", typed)
	f.ID, f.Revision, f.Back = now.ID, now.Revision, "quota?"+url.Values{"id": {now.ID}}.Encode()
	f.Previews = true
	return f
}

// toQuota is the page of a quota, which says what was done.
func toQuota(id, what string) string {
	return "quota?" + url.Values{"id": {id}, "done": {what}}.Encode()
}

// errNoQuotas means that quotas cannot be changed here.
var errNoQuotas = view.Fault(view.ErrForbidden, "There is no database here, and so nothing can be changed.")

// editQuota changes what was typed, of the quota as it was shown.
func editQuota(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id, changer := form.Get("id"), s.looker.Sources().Quotas
	if changer == nil {
		return "", nil, errNoQuotas
	}
	at, err := revisionOf(form)
	if err != nil {
		return "", nil, err
	}
	now, err := changer.QuotaSettings(ctx, id)
	if err != nil {
		return "", nil, err
	}
	change, err := view.EditOf(view.QuotaForm, now, func(name string) (string, bool) { return entered(form, name) })
	if err == nil && now.Revision != *at {
		err = view.Fault(view.ErrStale, "Somebody has changed %s while you did; nothing of yours was done.", notation.Shorten(id))
	}
	if err == nil && form.Has("preview") {
		f := quotaForm(now, form)
		if f.Preview, err = previewOf(s.looker.Look(ctx), id, *cmp.Or(change.Windows, &now.Windows)); err == nil {
			return "", &retry{"edit", f}, nil
		}
	}
	if err == nil && change.Empty() {
		return "quota?" + url.Values{"id": {id}}.Encode(), nil, nil
	}
	if err == nil {
		change.AtRevision = at
		_, err = changer.EditQuota(ctx, actor(ctx, form), id, change)
	}
	if err == nil {
		return toQuota(id, "quota"), nil, nil
	}
	if again, failed := changer.QuotaSettings(ctx, id); failed == nil {
		now = again
	}
	f := quotaForm(now, form)
	f.Fault = brief(err)
	s.addChanges(ctx, f, form, view.ChangesOf{Quota: id})
	return "", &retry{"edit", f}, err
}

func createQuota(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id, changer := strings.TrimSpace(form.Get("id")), s.looker.Sources().Quotas
	if changer == nil {
		return "", nil, errNoQuotas
	}
	change, err := view.EditOf(view.QuotaForm, view.NoQuota(), func(name string) (string, bool) { return form.Get(name), form.Has(name) })
	if err == nil {
		change.New = true
		_, err = changer.EditQuota(ctx, actor(ctx, form), id, change)
	}
	if err != nil {
		f := newForm(view.QuotaForm, view.NewQuota(), "quota-create", "quotas", form)
		f.Fault = brief(err)
		return "", &retry{"edit", f}, err
	}
	return "quotas?done=quota-created", nil, nil // its page is there once the catalog has been read
}

func deleteQuota(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id, changer := form.Get("id"), s.looker.Sources().Quotas
	if changer == nil {
		return "", nil, errNoQuotas
	}
	if form.Get("typed") != id {
		return "", nil, view.Fault(view.ErrInvalid, "What you typed is not the id of the quota; nothing was deleted.")
	}
	at, err := revisionOf(form)
	if err == nil {
		err = changer.DeleteQuota(ctx, actor(ctx, form), id, form.Get("unlink") == "yes", at)
	}
	return "quotas?done=quota-deleted", nil, err
}

// adjustQuota sets what a window has counted.
func adjustQuota(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id, adjust := form.Get("id"), s.looker.Sources().Adjust
	if adjust == nil {
		return "", nil, errNoQuotas
	}
	used, err := strconv.ParseInt(strings.TrimSpace(form.Get("used")), 10, 64)
	if err != nil {
		return "", nil, view.Fault(view.ErrInvalid, "Used: %q is not a whole number.", notation.Shorten(form.Get("used")))
	}
	by := actor(ctx, form)
	_, err = adjust(ctx, by, id, view.Adjustment{Span: form.Get("span"), Used: used, Lower: form.Get("lower") == "yes"})
	return toQuota(id, "adjusted"), nil, err
}
