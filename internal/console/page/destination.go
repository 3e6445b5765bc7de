package page

import (
	"context"
	"net/url"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

// fillDestinations lists destinations from the database: it is not live, since there may be a million.
func fillDestinations(ctx context.Context, s *Site, query url.Values, c *content) {
	c.Title = "Destinations"
	of := view.DestinationsQuery(query)
	first := of
	first.After = ""
	data := struct {
		Of, First view.DestinationsOf
		States    []string
		List      []catalog.DestinationRow
		Next      string // query of the next page; "" on the last
		Fault     string
	}{Of: of, First: first, States: view.DestinationStates}
	if s.watcher.Sources().Catalog == nil {
		data.Fault = s.noCatalog("destination")
	} else if list, next, err := s.watcher.Sources().Destinations(ctx, of); err != nil {
		data.Fault = "Destinations are not known: " + brief(err)
	} else if data.List = list; next != "" {
		following := of
		following.After = next
		data.Next = following.Query()
	}
	c.Data = data
}

func fillDestination(ctx context.Context, s *Site, query url.Values, c *content) {
	if d := destinations.row(ctx, s, query.Get("id"), c); d != nil {
		c.Title = d.ID
		c.Data = struct {
			Destination *catalog.DestinationRow
			Forms       bool
		}{d, c.Who.Role >= auth.Operator}
	}
}

// setDestination disables or enables a destination. It does not depend on the state before.
func setDestination(disable bool, what string) func(context.Context, *Site, url.Values) (string, *retry, error) {
	return func(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
		id := form.Get("id")
		_, err := s.watcher.Sources().SetDestination(ctx, id, disable)
		return destinations.page(id, what), nil, err
	}
}
