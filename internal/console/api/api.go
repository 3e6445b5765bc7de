// Package api serves /api/v1: what the pages of the console show, as JSON. The operations are declared in code, and described by
// the OpenAPI document that is made from them.
package api

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"strconv"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/live"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/progress"
)

// Prefix is where the API is.
const Prefix = "/api/v1"

// documentVersion is that of the contract, not of the program.
const documentVersion = "1.0.0"

// schemaNames are the names of types in the document that differ from those in the code.
var schemaNames = map[string]string{"CampaignRow": "Settings", "QuotaRow": "QuotaSettings", "CampaignProgress": "Progress", "DestinationRow": "Destination", "ReplayReport": "Outcome"}

type server struct {
	watcher *view.Watcher
	hub     *live.Hub
	log     *slog.Logger
}

func (s *server) sources() *view.Sources { return s.watcher.Sources() }

// Options of the API. All are required.
type Options struct {
	Watcher *view.Watcher
	Hub     *live.Hub // of the pages' streams: those of the API count as well
	Logger  *slog.Logger
}

// number writes a bound in full in what huma says of it: 1000000, and not 1e+06.
func number(format string, args ...any) string {
	for i, arg := range args {
		if bound, ok := arg.(float64); ok {
			args[i] = strconv.FormatFloat(bound, 'f', -1, 64)
		}
	}
	return fmt.Sprintf(format, args...)
}

var formatBounds = sync.OnceFunc(func() { huma.ErrorFormatter = number })

// Register adds the operations of the API to the mux.
func Register(mux *http.ServeMux, o Options) huma.API {
	formatBounds()
	config := huma.DefaultConfig("pacer", documentVersion)
	config.Info.Description = "Campaigns, quotas, daemons and sinks of one installation of pacer. x-pacer-role of an operation is the role that it takes: " +
		"viewer, operator or admin; http.anonymous says which those have who send no token. Instants are RFC 3339 in UTC; errors are application/problem+json (RFC 9457)."
	config.DocsPath = ""     // it would load scripts from elsewhere
	config.SchemasPath = ""  // the document has all schemas
	config.CreateHooks = nil // no $schema in answers
	config.Transformers = append(config.Transformers, withType)
	config.Formats = formats()
	config.Components.Schemas = huma.NewMapRegistry("#/components/schemas/", func(t reflect.Type, hint string) string {
		name := huma.DefaultSchemaNamer(t, hint)
		return cmp.Or(schemaNames[name], name)
	})
	config.RejectUnknownQueryParameters = true
	config.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"token": {Type: "http", Scheme: "bearer"}}
	api := humago.NewWithPrefix(mux, Prefix, config)
	s := &server{watcher: o.Watcher, hub: o.Hub, log: o.Logger}
	api.UseMiddleware(authorize(api), valued(api))
	s.registerChanges(api)
	s.registerPuts(api)
	s.registerQuotas(api)
	s.registerDestinations(api)
	s.registerLetters(api)
	s.registerReplays(api)
	s.registerLive(api)
	get(api, "get-status", "/status", "The installation at this moment", s.status)
	get(api, "list-campaigns", "/campaigns", "Campaigns, a page at a time", s.campaigns)
	get(api, "get-campaign", "/campaigns/{id}", "One campaign, and what holds it", reading(s.watcher.Campaign))
	get(api, "plan-campaign", "/campaigns/{id}/plan", "When a campaign will be done, and which rate that takes, also if something were changed", s.plan)
	get(api, "get-campaign-history", "/campaigns/{id}/history", "What became of the jobs of a campaign in the last hours or days, and what its schedule allowed", s.history)
	get(api, "list-daemons", "/daemons", "The daemons that run", s.daemons)
	get(api, "list-sinks", "/sinks", "The sinks: their gates, what is in flight, what they answer", s.sinks)
	change(api, "open-sink", http.MethodPost, "/sinks/{id}/open", "Open the gate of a sink for all daemons, or that of one of its destinations, whatever closed it", auth.Operator, s.openSink)
	get(api, "list-changes", "/changes", "Changes of campaigns, quotas and destinations, the newest first", s.changes)
	describeProblems(api)
	describeFields[view.Campaign](api, "/campaigns")
	describeFields[view.Quota](api, "/quotas")
	describeFields[catalog.DestinationRow](api, "/destinations")
	describeFields[catalog.Change](api, "/changes")
	return api
}

func get[I, O any](api huma.API, id, path, summary string, handle func(context.Context, *I) (*O, error)) {
	getAs(api, id, path, summary, auth.Viewer, handle)
}

// getAs is get for those of a role.
func getAs[I, O any](api huma.API, id, path, summary string, role auth.Role, handle func(context.Context, *I) (*O, error)) {
	register(api, huma.Operation{
		OperationID: id, Method: http.MethodGet, Path: path, Summary: summary,
		Errors: []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusTooManyRequests, http.StatusServiceUnavailable},
	}, role, handle)
}

type nothing struct{}

type answer[T any] struct{ Body T }

// answered is what an operation answers with that reads or does one thing.
func answered[T any](value T, err error) (*answer[T], error) {
	if err != nil {
		return nil, problem(err, Conflict)
	}
	return &answer[T]{value}, nil
}

func (s *server) status(ctx context.Context, _ *nothing) (*answer[*view.State], error) {
	return &answer[*view.State]{s.watcher.Fresh(ctx)}, nil
}

type campaignsIn struct {
	Chosen
	CampaignsOf
}

// CampaignsOf are the campaigns of a list.
type CampaignsOf struct {
	view.Selection
	Limit int `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type campaignsOut struct {
	Campaigns []some[view.Campaign] `json:"campaigns"`
	Total     int                   `json:"total" doc:"campaigns on all pages"`
	Next      string                `json:"next,omitempty" doc:"what to pass as after for the next page; absent on the last"`
}

func (s *server) campaigns(ctx context.Context, in *campaignsIn) (*answer[campaignsOut], error) {
	state := s.watcher.Fresh(ctx)
	list, total, next := state.Select(in.Selection, in.Limit)
	if missing := state.Missing(in.CampaignFilter); total == 0 && missing != nil {
		if in.Quota != "" { // which may have been created a moment ago
			_, missing = s.watcher.Quota(ctx, in.Quota)
		}
		if missing != nil {
			return nil, problem(missing, Conflict)
		}
	}
	out := campaignsOut{Campaigns: someOf(list, in.Fields), Total: total}
	if next != nil {
		out.Next = next.After
	}
	return &answer[campaignsOut]{out}, nil
}

// one is a campaign, a quota or a destination at a revision.
type one[S any] struct {
	ETag string `header:"ETag"`
	Body *S
}

// reading answers with one thing as read reads it.
func reading[S any, R row[S]](read func(ctx context.Context, id string) (R, error)) func(context.Context, *ByID) (*one[S], error) {
	return func(ctx context.Context, in *ByID) (*one[S], error) {
		found, err := read(ctx, in.ID)
		if err != nil {
			return nil, problem(err, Conflict)
		}
		return &one[S]{etag(found.Seen()), found}, nil
	}
}

type planIn struct {
	ByID
	view.WhatIf
}

func (s *server) plan(ctx context.Context, in *planIn) (*answer[*progress.Plan], error) {
	state, err := s.watcher.With(ctx, in.ID)
	if err != nil {
		return nil, problem(err, Conflict)
	}
	return answered(state.Plan(in.ID, in.WhatIf))
}

type historyIn struct {
	ByID
	Last string `query:"last" default:"1h" maxLength:"64" pattern:"^[0-9a-zµμ. ]*$" patternDescription:"a span such as 36h or 7d" doc:"how far back, at most eight days: in minutes up to a day, else in hours"`
}

func (s *server) history(ctx context.Context, in *historyIn) (*answer[*view.Past], error) {
	last, err := span("last", in.Last)
	if err != nil {
		return nil, err
	}
	if _, err := s.watcher.With(ctx, in.ID); err != nil {
		return nil, problem(err, Conflict)
	}
	return answered(s.watcher.Past(ctx, in.ID, last))
}

func span(name, text string) (time.Duration, error) {
	d, err := notation.ParseSpan(text)
	if err != nil || d <= 0 {
		return 0, huma.Error422UnprocessableEntity(name + " must be a span such as 36h or 7d")
	}
	return d, nil
}

type daemonsOut struct {
	Daemons []progress.Daemon `json:"daemons"`
}

func (s *server) daemons(ctx context.Context, _ *nothing) (*answer[daemonsOut], error) {
	return &answer[daemonsOut]{daemonsOut{append([]progress.Daemon{}, s.watcher.Fresh(ctx).Daemons...)}}, nil
}

type changesIn struct {
	Chosen
	catalog.ChangesOf
}

type changesOut struct {
	Changes []some[catalog.Change] `json:"changes"`
	Next    int64                  `json:"next,omitempty" doc:"what to pass as before for the next page; absent on the last"`
}

func (s *server) changes(ctx context.Context, in *changesIn) (*answer[changesOut], error) {
	list, err := s.sources().Changes(ctx, in.ChangesOf)
	if err != nil {
		return nil, absent(view.Line(err))
	}
	out := changesOut{Changes: someOf(pointers(list), in.Fields)}
	if len(list) == in.Limit {
		out.Next = list[len(list)-1].Number
	}
	return &answer[changesOut]{out}, nil
}

// absent is that a service does not answer, or is not there.
func absent(why string) error { return fail(unavailable, why) }
