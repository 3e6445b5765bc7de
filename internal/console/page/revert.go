package page

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/pacer/pacer/internal/console/view"
)

// oneChange looks a change up by its number.
func oneChange(ctx context.Context, s *Site, text string) (*view.Change, error) {
	number, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		number = 0
	}
	return s.looker.Change(ctx, number)
}

// fillRevert shows what undoing a change would do, and asks.
func fillRevert(ctx context.Context, s *Site, query url.Values, c *content) {
	change, err := oneChange(ctx, s, query.Get("change"))
	switch {
	case err != nil:
		c.fail(statusOf(err), "%s", brief(err))
	case !change.Undoable():
		c.fail(http.StatusUnprocessableEntity, "Change %d cannot be undone: only changes of settings, windows and links can.", change.Number)
	default:
		c.Title = "Undo a change"
		c.Data = struct {
			Change *view.Change
			Table  changesTable
		}{change, changesTable{Caption: "This was changed, and would be as it was", List: []view.Change{*change}}}
	}
}

// revert undoes a change, if nothing of what it has changed is different by now.
func revert(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	undo := s.looker.Sources().Revert
	if undo == nil {
		return "", nil, view.Fault(view.ErrForbidden, "There is no database here, and so nothing can be changed.")
	}
	change, err := oneChange(ctx, s, form.Get("change"))
	if err != nil {
		return "", nil, err
	}
	by := url.Values{"done": {"reverted"}}
	for key, id := range map[string]string{"campaign": change.Campaign, "quota": change.Quota, "destination": change.Destination} {
		if id != "" {
			by.Set(key, id)
		}
	}
	return "changes?" + by.Encode(), nil, undo(ctx, actor(ctx, form), change.Number)
}
