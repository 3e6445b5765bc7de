package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

// registerDestinations adds the operations about destinations. Where one leads is for admins to say, as what is sent goes there; whether it
// is sent to, for operators.
func (s *server) registerDestinations(api huma.API) {
	get(api, "list-destinations", "/destinations", "Destinations, a page at a time: the disabled ones first, then those that fail", s.destinations)
	get(api, "get-destination", "/destinations/{id}", "One destination", reading(s.sources().Destination))
	create(api, "create-destination", "/destinations", "Create a destination", auth.Admin, s.createDestination)
	change(api, "edit-destination", http.MethodPatch, "/destinations/{id}", "Change a destination", auth.Admin, s.editDestination)
	change(api, "delete-destination", http.MethodDelete, "/destinations/{id}", "Delete a destination; jobs that name it become dead letters", auth.Admin, s.deleteDestination)
	change(api, "disable-destination", http.MethodPost, "/destinations/{id}/disable", "Disable a destination: its jobs wait", auth.Operator, s.setDestination(true))
	change(api, "enable-destination", http.MethodPost, "/destinations/{id}/enable", "Enable a destination: its jobs are sent", auth.Operator, s.setDestination(false))
	requireMatch(api.OpenAPI().Paths["/destinations/{id}"].Patch)
	requireMatch(api.OpenAPI().Paths["/destinations/{id}"].Delete)
}

type destinationsIn struct {
	Chosen
	catalog.DestinationsOf
}

type destinationsOut struct {
	Destinations []some[catalog.DestinationRow] `json:"destinations"`
	Next         string                         `json:"next,omitempty" doc:"what to pass as after for the next page; absent on the last"`
}

func (s *server) destinations(ctx context.Context, in *destinationsIn) (*answer[destinationsOut], error) {
	list, next, err := s.sources().Destinations(ctx, in.DestinationsOf)
	if err == nil && len(list) == 0 {
		err = s.watcher.Fresh(ctx).Missing(view.CampaignFilter{Sink: in.Sink})
	}
	return answered(destinationsOut{someOf(pointers(list), in.Fields), next}, err)
}

type createDestinationIn struct {
	Body struct {
		NewID
		catalog.DestinationChange
		Because
	}
}

func (s *server) createDestination(ctx context.Context, in *createDestinationIn) (*changed[catalog.DestinationRow], error) {
	return created(ctx, s, "destination", in.Body.ID, in.Body.Reason, &in.Body.DestinationChange, s.sources().WriteDestination)
}

type editDestinationIn struct {
	ByID
	Matching
	Body struct {
		catalog.DestinationChange
		Because
	} `contentType:"application/merge-patch+json"`
}

func (s *server) editDestination(ctx context.Context, in *editDestinationIn) (*changed[catalog.DestinationRow], error) {
	return edited(ctx, s, "destination", "url", in.ID, in.IfMatch, in.Body.Reason, &in.Body.DestinationChange, s.sources().WriteDestination)
}

type destinationStateIn struct {
	ByID
	Body *struct {
		Because
	}
}

// setDestination takes no revision: a destination must be disabled also where a daemon has noted meanwhile that it fails.
func (s *server) setDestination(disable bool) func(context.Context, *destinationStateIn) (*changed[catalog.DestinationRow], error) {
	return func(ctx context.Context, in *destinationStateIn) (*changed[catalog.DestinationRow], error) {
		reason := ""
		if in.Body != nil {
			reason = in.Body.Reason
		}
		return write(ctx, s, "destination", in.ID, reason, func(ctx context.Context) (*catalog.DestinationRow, error) {
			return s.sources().DisableDestination(ctx, in.ID, disable)
		})
	}
}

func (s *server) deleteDestination(ctx context.Context, in *deleteIn) (*nothing, error) {
	return s.remove(ctx, "destination", in, func(ctx context.Context, c view.Catalog, at *int64) error {
		_, err := c.DeleteDestination(ctx, in.ID, at)
		return err
	})
}
