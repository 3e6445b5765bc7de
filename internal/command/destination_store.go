package command

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
)

// destinationStore is where commands read and change destinations: the database, or the API of a console.
type destinationStore interface {
	destinationReader
	destinationChanger
}

// destinationRow is a destination with why nothing is sent to it, "" if that is not known.
type destinationRow struct {
	catalog.DestinationRow
	Fault string `json:"fault,omitempty"`
}

type destinationReader interface {
	// listDestinations returns them in the order of their ids.
	listDestinations(ctx context.Context) ([]catalog.DestinationRow, error)
	showDestination(ctx context.Context, id string) (*destinationRow, error)
}

// destinationChanger changes a destination, and returns it as it is then; what is deleted, as it was.
type destinationChanger interface {
	setDestination(ctx context.Context, id string, create bool, change catalog.DestinationChange) (*destinationRow, error)
	// switchDestination disables a destination, for the reason, or enables it.
	switchDestination(ctx context.Context, id string, disable bool, reason string) (*destinationRow, error)
	deleteDestination(ctx context.Context, id string) (*destinationRow, error)
}

// destinationStore returns where the destinations are.
func (c *cli) destinationStore() (destinationStore, error) {
	if c.server.address == "" {
		return database{c}, c.noToken()
	}
	return c.remote()
}

// oneRow asks the database about one destination.
func (d database) oneRow(do func(*catalog.Admin) (catalog.DestinationRow, error)) (*destinationRow, error) {
	return withAdmin(d.c, func(s *app.Services, admin *catalog.Admin) (*destinationRow, error) {
		row, err := do(admin)
		if err != nil {
			return nil, err
		}
		return &destinationRow{row, s.DestinationFault(row.Destination())}, nil
	})
}

func (d database) listDestinations(ctx context.Context) ([]catalog.DestinationRow, error) {
	return ask(d.c, func(a *catalog.Admin) ([]catalog.DestinationRow, error) { return a.ListDestinations(ctx) })
}

func (d database) showDestination(ctx context.Context, id string) (*destinationRow, error) {
	return d.oneRow(func(a *catalog.Admin) (catalog.DestinationRow, error) { return a.GetDestination(ctx, id) })
}

func (d database) setDestination(ctx context.Context, id string, create bool, change catalog.DestinationChange) (*destinationRow, error) {
	return d.oneRow(func(a *catalog.Admin) (catalog.DestinationRow, error) {
		if create {
			return a.CreateDestination(ctx, id, change)
		}
		return a.SetDestination(ctx, id, change)
	})
}

func (d database) switchDestination(ctx context.Context, id string, disable bool, reason string) (*destinationRow, error) {
	return d.oneRow(func(a *catalog.Admin) (catalog.DestinationRow, error) {
		if disable {
			return a.DisableDestination(ctx, id, reason)
		}
		return a.EnableDestination(ctx, id)
	})
}

func (d database) deleteDestination(ctx context.Context, id string) (*destinationRow, error) {
	return d.oneRow(func(a *catalog.Admin) (catalog.DestinationRow, error) { return a.DeleteDestination(ctx, id, nil) })
}

func (r *remote) listDestinations(ctx context.Context) (rows []catalog.DestinationRow, err error) {
	rows = []catalog.DestinationRow{}
	query := url.Values{"limit": {strconv.Itoa(remotePage)}}
	for {
		var page struct {
			Destinations []view.Destination `json:"destinations"`
			Next         string             `json:"next"`
		}
		if err := r.get(ctx, "/destinations", query, &page); err != nil {
			return nil, err
		}
		for i := range page.Destinations {
			rows = append(rows, rowOf(&page.Destinations[i]).DestinationRow)
		}
		if page.Next == "" || len(page.Destinations) == 0 {
			break
		}
		query.Set("after", page.Next)
	}
	slices.SortFunc(rows, func(a, b catalog.DestinationRow) int { return cmp.Compare(a.ID, b.ID) })
	return rows, nil
}

func (r *remote) showDestination(ctx context.Context, id string) (*destinationRow, error) {
	return r.oneDestination(ctx, http.MethodGet, destinationPath(id), nil)
}

func destinationPath(id string) string { return "/destinations/" + url.PathEscape(id) }

// oneDestination makes a request that is answered with a destination.
func (r *remote) oneDestination(ctx context.Context, method, path string, body any) (*destinationRow, error) {
	var d view.Destination
	err := r.call(ctx, method, path, nil, body, &d)
	return rowOf(&d), err
}

func (r *remote) setDestination(ctx context.Context, id string, create bool, c catalog.DestinationChange) (*destinationRow, error) {
	if !create {
		return r.oneDestination(ctx, http.MethodPatch, destinationPath(id), &c)
	}
	return r.oneDestination(ctx, http.MethodPost, "/destinations", struct {
		ID string `json:"id"`
		catalog.DestinationChange
	}{id, c})
}

func (r *remote) switchDestination(ctx context.Context, id string, disable bool, reason string) (*destinationRow, error) {
	if disable {
		return r.oneDestination(ctx, http.MethodPost, destinationPath(id)+"/disable", map[string]string{"reason": reason})
	}
	return r.oneDestination(ctx, http.MethodPost, destinationPath(id)+"/enable", struct{}{})
}

func (r *remote) deleteDestination(ctx context.Context, id string) (*destinationRow, error) {
	was, err := r.showDestination(ctx, id)
	if err != nil {
		return nil, err
	}
	return was, r.call(ctx, http.MethodDelete, destinationPath(id), nil, nil, nil)
}

// rowOf reads a destination that a console shows. Of its address the query is missing, which no command prints.
func rowOf(d *view.Destination) *destinationRow {
	return &destinationRow{catalog.DestinationRow{
		ID: d.ID, Sink: d.Sink, URL: d.URL, Headers: d.Headers, Secrets: d.Secrets, MaxInFlight: d.MaxInFlight, DisabledAt: d.DisabledAt,
		DisabledReason: d.DisabledReason, FailingSince: d.FailingSince, Revision: d.Revision, CreatedAt: d.CreatedAt, UpdatedAt: d.UpdatedAt,
	}, d.Fault}
}
