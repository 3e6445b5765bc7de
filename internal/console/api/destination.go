package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

// registerDestinations adds the operations about destinations. Where one leads is for admins to say, as what is sent goes there; whether it
// is sent to, for operators.
func (s *server) registerDestinations(api huma.API) {
	get(api, "list-destinations", "/destinations", "Destinations, a page at a time: the disabled ones first, then those that fail", s.destinations)
	get(api, "get-destination", "/destinations/{id}", "One destination", s.destination)
	create(api, "create-destination", "/destinations", "Create a destination", auth.Admin, s.createDestination)
	change(api, "edit-destination", http.MethodPatch, "/destinations/{id}", "Change a destination", auth.Admin, s.editDestination)
	change(api, "delete-destination", http.MethodDelete, "/destinations/{id}", "Delete a destination; jobs that name it become dead letters", auth.Admin, s.deleteDestination)
	change(api, "disable-destination", http.MethodPost, "/destinations/{id}/disable", "Disable a destination: its jobs wait", auth.Operator, s.setDestination("disabled"))
	change(api, "enable-destination", http.MethodPost, "/destinations/{id}/enable", "Enable a destination: its jobs are sent", auth.Operator, s.setDestination("enabled"))
	requireMatch(api.OpenAPI().Paths["/destinations/{id}"].Patch)
	requireMatch(api.OpenAPI().Paths["/destinations/{id}"].Delete)
}

type destinationsIn struct {
	Chosen

	Text  string `query:"q" maxLength:"256" pattern:"^[!-~]*$" patternDescription:"printable ASCII without spaces" doc:"part of the id"`
	State string `query:"state" enum:"disabled,failing,enabled"`
	Sink  string `query:"sink" maxLength:"256" pattern:"^[!-~]*$" patternDescription:"printable ASCII without spaces" doc:"name of the sink that it names"`
	After string `query:"after" maxLength:"300" pattern:"^(|(disabled|failing|enabled):[!-~]+)$" patternDescription:"next of the page before" doc:"next of the page before"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type destinationsOut struct {
	Destinations []some[view.Destination] `json:"destinations"`
	Next         string                   `json:"next,omitempty" doc:"what to pass as after for the next page; absent on the last"`
}

// errNoDestinations means that there is no database.
var errNoDestinations = absent("there is no database here, and so no destination is known")

func (s *server) destinations(ctx context.Context, in *destinationsIn) (*answer[destinationsOut], error) {
	reader := s.looker.Sources().Destinations
	if reader == nil {
		return nil, errNoDestinations
	}
	list, next, err := reader.Destinations(ctx, view.DestinationsOf{Text: in.Text, State: in.State, Sink: in.Sink, After: in.After, Limit: in.Limit})
	if err != nil {
		return nil, problem(err, Conflict)
	}
	return &answer[destinationsOut]{destinationsOut{someOf(pointers(list), in.Fields), next}}, nil
}

type destinationOut struct {
	ETag string `header:"ETag"`
	Body *view.Destination
}

func (s *server) destination(ctx context.Context, in *ByID) (*destinationOut, error) {
	reader := s.looker.Sources().Destinations
	if reader == nil {
		return nil, errNoDestinations
	}
	d, err := reader.Destination(ctx, in.ID)
	if err != nil {
		return nil, problem(err, Conflict)
	}
	return &destinationOut{etag(d.Revision), d}, nil
}

// changedDestination is a destination after a change.
type changedDestination struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     *view.Destination
}

type createDestinationIn struct {
	Body struct {
		NewID
		view.DestinationEdit
		Because
	}
}

func (s *server) createDestination(ctx context.Context, in *createDestinationIn) (*changedDestination, error) {
	edit := in.Body.DestinationEdit
	edit.New = true
	out, err := s.changeDestination(ctx, in.Body.ID, in.Body.Reason, &edit)
	if err == nil {
		out.Status, out.Location = http.StatusCreated, locationOf("destinations", in.Body.ID)
	}
	return out, err
}

type editDestinationIn struct {
	ByID
	Matching
	Body struct {
		view.DestinationEdit
		Because
	} `contentType:"application/merge-patch+json"`
}

func (s *server) editDestination(ctx context.Context, in *editDestinationIn) (*changedDestination, error) {
	edit := in.Body.DestinationEdit
	if edit.Empty() {
		return nil, huma.Error422UnprocessableEntity("nothing is to be changed; give at least one field, such as url")
	}
	var err error
	if edit.AtRevision, err = seen(in.IfMatch, true); err != nil {
		return nil, err
	}
	return s.changeDestination(ctx, in.ID, in.Body.Reason, &edit)
}

type destinationStateIn struct {
	ByID
	Body *struct {
		Because
	}
}

// setDestination takes no revision: a destination must be disabled also where a daemon has noted meanwhile that it fails.
func (s *server) setDestination(state string) func(context.Context, *destinationStateIn) (*changedDestination, error) {
	return func(ctx context.Context, in *destinationStateIn) (*changedDestination, error) {
		reason := ""
		if in.Body != nil {
			reason = in.Body.Reason
		}
		return s.changeDestination(ctx, in.ID, reason, &view.DestinationEdit{State: state})
	}
}

type deleteDestinationIn struct {
	ByID
	Matching
	BecauseOf
}

func (s *server) deleteDestination(ctx context.Context, in *deleteDestinationIn) (*nothing, error) {
	changer, err := s.destinationChanger(in.Reason)
	if err != nil {
		return nil, err
	}
	at, err := seen(in.IfMatch, true)
	if err != nil {
		return nil, err
	}
	if err := changer.DeleteDestination(ctx, s.actor(ctx, in.Reason), in.ID, at); err != nil {
		return nil, notDeleted(err)
	}
	s.log.Info("a destination was deleted", "destination", in.ID, "by", auth.Of(ctx).Actor(), "request", auth.RequestID(ctx))
	return &nothing{}, nil
}

// destinationChanger returns what changes destinations, if the reason for that can be recorded.
func (s *server) destinationChanger(reason string) (view.DestinationChanger, error) {
	if err := view.CheckReason("reason", reason); err != nil {
		return nil, problem(err, Conflict)
	}
	if changer := s.looker.Sources().Endpoints; changer != nil {
		return changer, nil
	}
	return nil, absent("there is no database here, and so nothing can be changed")
}

func (s *server) changeDestination(ctx context.Context, id, reason string, edit *view.DestinationEdit) (*changedDestination, error) {
	changer, err := s.destinationChanger(reason)
	if err != nil {
		return nil, err
	}
	d, err := changer.EditDestination(ctx, s.actor(ctx, reason), id, edit)
	if err != nil {
		return nil, problem(err, staleRevision)
	}
	s.log.Info("a destination was changed", "destination", id, "state", d.State, "revision", d.Revision, "by", auth.Of(ctx).Actor(), "request", auth.RequestID(ctx))
	return &changedDestination{Status: http.StatusOK, ETag: etag(d.Revision), Body: d}, nil
}
