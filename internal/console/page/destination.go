package page

import (
	"context"
	"errors"
	"net/url"
	"slices"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/deadletter"
	"github.com/pacer/pacer/internal/delivery"
)

// fillDestinations lists destinations from the database: it is not live, since there may be a million.
func fillDestinations(ctx context.Context, s *Site, query url.Values, c *content) {
	c.Title = "Destinations"
	of := view.DestinationsQuery(query)
	data := struct {
		Of          catalog.DestinationsOf
		States      []string
		Filters     []formField
		List        []catalog.DestinationRow
		First, Next string // queries of pages; "" behind the last
		Fault       string
	}{Of: of, First: destinationsQuery(of, ""), States: view.DestinationStates, Filters: filters(c.State, map[string]string{"sink": of.Sink})}
	if list, next, err := s.watcher.Sources().Destinations(ctx, of); err != nil {
		data.Fault = "Destinations are not known: " + view.Line(err)
	} else if data.List = list; next != "" {
		data.Next = destinationsQuery(of, next)
	}
	c.Data = data
}

// destinationsQuery formats a selection as the query of a URL, of the page that begins after a place.
func destinationsQuery(of catalog.DestinationsOf, after string) string {
	return view.Query(map[string]string{"q": of.Text, "state": of.State, "sink": of.Sink, "after": after})
}

func fillDestination(ctx context.Context, s *Site, query url.Values, c *content) {
	d := destinations.row(ctx, s, query.Get("id"), c)
	if d == nil {
		return
	}
	c.Title = d.ID
	data := struct {
		Destination *catalog.DestinationRow
		Gates       []delivery.Gate
		Letters     view.Found
		Answers     string // of its dead letters
		Looking     bool
		NoLetters   string // why they are not known
		Campaigns   []string
		Figures     []view.DestinationFigures
		Acts        []act
		Forms       bool // the stream sends none
	}{Destination: d, Gates: s.watcher.GatesOf(ctx, d.ID), Figures: c.State.Answers(d.ID), Forms: !query.Has("page") && c.Who.Role >= auth.Operator}
	var err error
	data.Letters, err = s.watcher.FindLetters(ctx, view.LetterFilter{Filter: deadletter.Filter{To: d.ID}, Last: view.LettersOf, Limit: shortList}, false)
	switch {
	case errors.Is(err, view.ErrAsking):
		data.Looking = true
	case err != nil:
		data.NoLetters = view.Line(err)
	}
	data.Answers = view.Tally(data.Letters.Counts)
	for _, count := range data.Letters.Counts {
		if count.Campaign != "" && !slices.Contains(data.Campaigns, count.Campaign) {
			data.Campaigns = append(data.Campaigns, count.Campaign)
		}
	}
	acts := repairs(d.ID)
	for _, g := range data.Gates {
		acts = append(acts, send(auth.Operator, "Open", "sink-open", g.Sink, "destination", d.ID))
	}
	if data.Letters.Looked > 0 && len(data.Letters.List) > 0 {
		acts = append(acts, act{Label: "Replay", Link: "replay?" + view.Query(map[string]string{"destination": d.ID, "last": "1h"}), role: auth.Operator})
	}
	data.Acts = allowed(c.Who.Role, append(acts, linkTo(auth.Admin, "Delete", "destination-delete", d.ID)))
	c.Data = data
}

// test is one job that is sent to a destination to see what it answers.
type test struct {
	ID, Payload string
	Tested      *view.Tested // nil: not yet
	Fault       string
}

func fillTest(ctx context.Context, s *Site, query url.Values, c *content) {
	if d := destinations.row(ctx, s, query.Get("id"), c); d != nil {
		c.Title, c.Data = "Test destination "+d.ID, &test{ID: d.ID, Payload: `{"test": true}`}
	}
}

func testDestination(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
	t := &test{ID: form.Get("id"), Payload: form.Get("payload")}
	tested, err := s.watcher.Sources().Test(ctx, t.ID, t.Payload)
	if err != nil {
		t.Fault = view.Line(err)
	}
	t.Tested = tested
	return "", &retry{page: "destination-test", data: t, title: "Test destination " + t.ID}, err
}

// setDestination disables or enables a destination. It does not depend on the state before.
func setDestination(disable bool, what string) func(context.Context, *Site, url.Values) (string, *retry, error) {
	return func(ctx context.Context, s *Site, form url.Values) (string, *retry, error) {
		id := form.Get("id")
		_, err := s.watcher.Sources().DisableDestination(ctx, id, disable)
		return destinations.page(id, what), nil, err
	}
}
