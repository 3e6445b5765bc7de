package page

import (
	"context"
	"net/url"
	"strings"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

// errNoDestinations means that destinations are not known, or cannot be changed, here.
var errNoDestinations = view.Fault(view.ErrForbidden, "There is no database here, and so no destination is known.")

// fillDestinations lists destinations from the database: it is not live, since there may be a million.
func fillDestinations(ctx context.Context, s *Site, query url.Values, c *content) {
	c.Title = "Destinations"
	of := view.DestinationsQuery(query)
	first := of
	first.After = ""
	data := struct {
		Of, First view.DestinationsOf
		States    []string
		List      []view.Destination
		Next      string // query of the next page; "" on the last
		Fault     string
	}{Of: of, First: first, States: view.DestinationStates}
	reader := s.looker.Sources().Destinations
	if reader == nil {
		data.Fault = errNoDestinations.Error()
	} else if list, next, err := reader.Destinations(ctx, of); err != nil {
		data.Fault = "Destinations are not known: " + brief(err)
	} else if data.List = list; next != "" {
		following := of
		following.After = next
		data.Next = following.Query()
	}
	c.Data = data
}

// oneDestination looks a destination up for its page or its form.
func oneDestination(ctx context.Context, s *Site, id string, c *content) *view.Destination {
	d, err := readDestination(ctx, s, id)
	if err != nil {
		c.fail(statusOf(err), "%s", brief(err))
	}
	return d
}

func readDestination(ctx context.Context, s *Site, id string) (*view.Destination, error) {
	if reader := s.looker.Sources().Destinations; reader != nil {
		return reader.Destination(ctx, id)
	}
	return nil, errNoDestinations
}

func fillDestination(ctx context.Context, s *Site, query url.Values, c *content) {
	if d := oneDestination(ctx, s, query.Get("id"), c); d != nil {
		c.Title = d.ID
		c.Data = struct {
			Destination *view.Destination
			Forms       bool
		}{d, s.looker.Sources().Endpoints != nil && c.Who.Role >= auth.Operator}
	}
}

func fillEditDestination(ctx context.Context, s *Site, query url.Values, c *content) {
	if now := oneDestination(ctx, s, query.Get("id"), c); now != nil {
		c.Title, c.Data = "Change destination "+now.ID, destinationForm(now, url.Values{})
	}
}

func fillCreateDestination(_ context.Context, _ *Site, _ url.Values, c *content) {
	c.Title, c.Data = "New destination", newForm(view.DestinationForm, view.NewDestination(), "destination-create", "destinations", url.Values{})
}

func fillDeleteDestination(ctx context.Context, s *Site, query url.Values, c *content) {
	if now := oneDestination(ctx, s, query.Get("id"), c); now != nil {
		c.Title, c.Data = "Delete destination "+now.ID, now
	}
}

// destinationForm is the form of a destination that exists. An address with a query is not there, since it is not all of it: whoever
// changed its path would lose the query.
func destinationForm(now *view.Destination, typed url.Values) *form {
	shown := *now
	if now.Query {
		shown.URL = ""
	}
	f := formOf(view.DestinationForm, &shown, "destination-edit", typed)
	f.ID, f.Revision, f.Back = now.ID, now.Revision, "destination?"+url.Values{"id": {now.ID}}.Encode()
	if now.Query {
		f.Fields[0].Hint += "; empty: it stays " + now.URL + "?…"
	}
	return f
}

// setDestination disables or enables a destination, whatever it was.
func setDestination(state, what string) func(context.Context, *Site, url.Values) (string, *retry, error) {
	return func(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
		id, changer := form.Get("id"), s.looker.Sources().Endpoints
		if changer == nil {
			return "", nil, errNoDestinations
		}
		_, err := changer.EditDestination(ctx, actor(ctx, form), id, &view.DestinationEdit{State: state})
		return toDestination(id, what), nil, err
	}
}

// toDestination is the page of a destination, which says what was done.
func toDestination(id, what string) string {
	return "destination?" + url.Values{"id": {id}, "done": {what}}.Encode()
}

// editDestination changes what was typed, of the destination as it was shown.
func editDestination(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id, changer := form.Get("id"), s.looker.Sources().Endpoints
	if changer == nil {
		return "", nil, errNoDestinations
	}
	at, err := revisionOf(form)
	if err != nil {
		return "", nil, err
	}
	now, err := readDestination(ctx, s, id)
	if err != nil {
		return "", nil, err
	}
	change, err := view.EditOf(view.DestinationForm, now, func(name string) (string, bool) { return entered(form, name) })
	if err == nil && now.Revision != *at {
		err = view.Fault(view.ErrStale, "Somebody, or a daemon, has changed %s while you did; nothing of yours was done.", notation.Shorten(id))
	}
	if err == nil && change.Empty() {
		return "destination?" + url.Values{"id": {id}}.Encode(), nil, nil
	}
	if err == nil {
		change.AtRevision = at
		_, err = changer.EditDestination(ctx, actor(ctx, form), id, change)
	}
	if err == nil {
		return toDestination(id, "destination"), nil, nil
	}
	if again, failed := readDestination(ctx, s, id); failed == nil {
		now = again
	}
	f := destinationForm(now, form)
	f.Fault = brief(err)
	s.addChanges(ctx, f, form, view.ChangesOf{Destination: id})
	return "", &retry{"edit", f}, err
}

func createDestination(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id, changer := strings.TrimSpace(form.Get("id")), s.looker.Sources().Endpoints
	if changer == nil {
		return "", nil, errNoDestinations
	}
	change, err := view.EditOf(view.DestinationForm, view.NoDestination(), func(name string) (string, bool) { return form.Get(name), form.Has(name) })
	if err == nil {
		change.New = true
		_, err = changer.EditDestination(ctx, actor(ctx, form), id, change)
	}
	if err != nil {
		f := newForm(view.DestinationForm, view.NewDestination(), "destination-create", "destinations", form)
		f.Fault = brief(err)
		return "", &retry{"edit", f}, err
	}
	return toDestination(id, "destination-created"), nil, nil
}

func deleteDestination(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	id, changer := form.Get("id"), s.looker.Sources().Endpoints
	if changer == nil {
		return "", nil, errNoDestinations
	}
	if form.Get("typed") != id {
		return "", nil, view.Fault(view.ErrInvalid, "What you typed is not the id of the destination; nothing was deleted.")
	}
	at, err := revisionOf(form)
	if err == nil {
		err = changer.DeleteDestination(ctx, actor(ctx, form), id, at)
	}
	return "destinations?done=destination-deleted", nil, err
}
