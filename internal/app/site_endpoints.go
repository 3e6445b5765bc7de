package app

import (
	"context"
	"strings"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// endpoints implements view.DestinationReader and view.DestinationChanger over the database.
type endpoints struct {
	changer
	fault func(*delivery.Destination) string // why nothing is sent to one
}

// one is destinationOf with what is wrong with it.
func (d endpoints) one(ctx context.Context, row *catalog.DestinationRow) *view.Destination {
	v := destinationOf(ctx, row)
	v.Fault = d.fault(row.Destination())
	return v
}

// Destinations reads one row more than asked for, by which it knows whether there is another page.
func (d endpoints) Destinations(ctx context.Context, of view.DestinationsOf) ([]view.Destination, string, error) {
	found := catalog.DestinationsOf{Text: of.Text, State: of.State, Sink: of.Sink, Limit: of.Limit + 1}
	if of.After != "" {
		// Where the next page begins is a state, by which the list is sorted first, and an id.
		var ok bool
		if found.AfterState, found.After, ok = strings.Cut(of.After, ":"); !ok || found.After == "" {
			return nil, "", view.Fault(view.ErrInvalid, "after: it must be what next of the page before says")
		}
	}
	rows, err := d.admin.FindDestinations(ctx, found)
	if err != nil {
		return nil, "", d.explain(ctx, err)
	}
	next := ""
	if len(rows) > of.Limit {
		rows = rows[:of.Limit]
		last := &rows[len(rows)-1]
		next = last.State() + ":" + last.ID
	}
	list := make([]view.Destination, 0, len(rows))
	for i := range rows {
		list = append(list, *destinationOf(ctx, &rows[i]))
	}
	return list, next, nil
}

func (d endpoints) Destination(ctx context.Context, id string) (*view.Destination, error) {
	row, err := d.admin.GetDestination(ctx, id)
	if err != nil {
		return nil, d.explain(ctx, err)
	}
	return d.one(ctx, &row), nil
}

func (d endpoints) EditDestination(ctx context.Context, by view.Actor, id string, e *view.DestinationEdit) (*view.Destination, error) {
	ctx = catalog.WithActor(ctx, catalog.Actor(by))
	change := catalog.DestinationChange{
		URL: e.URL, Sink: e.Sink, Headers: e.Headers, Secrets: e.Secrets, MaxInFlight: e.MaxInFlight, AtRevision: e.AtRevision,
	}
	var row catalog.DestinationRow
	var err error
	switch {
	case e.State == "disabled":
		row, err = d.admin.DisableDestination(ctx, id, by.Reason)
	case e.State == "enabled":
		row, err = d.admin.EnableDestination(ctx, id)
	case e.New:
		row, err = d.admin.CreateDestination(ctx, id, change)
	default:
		row, err = d.admin.SetDestination(ctx, id, change)
	}
	if err != nil {
		return nil, d.explain(ctx, err)
	}
	return d.one(ctx, &row), nil
}

func (d endpoints) DeleteDestination(ctx context.Context, by view.Actor, id string, revision *int64) error {
	_, err := d.admin.DeleteDestination(catalog.WithActor(ctx, catalog.Actor(by)), id, revision)
	return d.explain(ctx, err)
}

// destinationOf is a row as those who ask may see it: as the record of changes, it has the values of headers for admins only, and the
// query of the address for nobody.
func destinationOf(ctx context.Context, row *catalog.DestinationRow) *view.Destination {
	v := &view.Destination{
		ID: row.ID, State: row.State(), Sink: row.Sink, URL: sinkhttp.Redacted(row.URL), Headers: map[string]string{}, Secrets: append([]string{}, row.Secrets...),
		MaxInFlight: row.MaxInFlight, DisabledAt: row.DisabledAt, DisabledReason: row.DisabledReason, FailingSince: row.FailingSince,
		Revision: row.Revision, CreatedAt: row.CreatedAt.UTC(), UpdatedAt: row.UpdatedAt.UTC(),
	}
	v.Query = strings.Contains(row.URL, "?")
	for name, value := range row.Headers {
		if auth.Of(ctx).Role < auth.Admin {
			value = ""
		}
		v.Headers[name] = value
	}
	return v
}
