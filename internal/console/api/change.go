package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

func (s *server) registerChanges(api huma.API) {
	create(api, "create-campaign", "/campaigns", "Create a campaign", auth.Admin, s.create)
	change(api, "edit-campaign", http.MethodPatch, "/campaigns/{id}", "Change a campaign; anything but its rate takes an admin", auth.Operator, s.edit)
	change(api, "pause-campaign", http.MethodPost, "/campaigns/{id}/pause", "Pause a campaign", auth.Operator, s.pause)
	change(api, "resume-campaign", http.MethodPost, "/campaigns/{id}/resume", "Let a campaign go on", auth.Operator, s.setStatus(delivery.StatusActive))
	change(api, "cancel-campaign", http.MethodPost, "/campaigns/{id}/cancel", "Cancel a campaign for good", auth.Admin, s.setStatus(delivery.StatusCancelled))
	change(api, "delete-campaign", http.MethodDelete, "/campaigns/{id}", "Delete a campaign that is cancelled or completed and has no backlog", auth.Admin, s.deleteCampaign)
	many := changing("change-campaigns", http.MethodPost, "/bulk-changes", "Change campaigns: all that match a filter, or those that are named")
	many.MaxBodyBytes = maxIDs
	register(api, many, auth.Operator, s.bulk)
	requireMatch(api.OpenAPI().Paths["/campaigns/{id}"].Patch)
	requireMatch(api.OpenAPI().Paths["/campaigns/{id}"].Delete)
	requireMatch(api.OpenAPI().Paths["/campaigns/{id}/cancel"].Post)
}

// change adds an operation that writes.
func change[I, O any](api huma.API, id, method, path, summary string, role auth.Role, handle func(context.Context, *I) (*O, error)) {
	register(api, changing(id, method, path, summary), role, handle)
}

// create is change for operations that create something.
func create[I, O any](api huma.API, id, path, summary string, role auth.Role, handle func(context.Context, *I) (*O, error)) {
	o := changing(id, http.MethodPost, path, summary)
	o.DefaultStatus = http.StatusCreated
	register(api, o, role, handle)
}

func changing(id, method, path, summary string) huma.Operation {
	return huma.Operation{
		OperationID: id, Method: method, Path: path, Summary: summary, MaxBodyBytes: maxBody,
		Errors: []int{
			http.StatusBadRequest, http.StatusUnauthorized, http.StatusForbidden, http.StatusNotFound, http.StatusConflict, http.StatusPreconditionFailed,
			http.StatusRequestEntityTooLarge, http.StatusUnsupportedMediaType, http.StatusPreconditionRequired, http.StatusTooManyRequests,
			http.StatusServiceUnavailable,
		},
	}
}

// maxBody bounds a request. maxIDs bounds one with ids: it is room for 1,000 of full length, with each character escaped.
const maxBody, maxIDs = 64 << 10, 2 << 20

type changed[S any] struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     *S
}

type createIn struct {
	Body struct {
		NewID
		catalog.CampaignChange
		ToStatus
		Because
	}
}

func (s *server) create(ctx context.Context, in *createIn) (*changed[catalog.CampaignRow], error) {
	in.Body.Status = in.Body.becomes()
	out, err := created(ctx, s, "campaign", in.Body.ID, in.Body.Reason, &in.Body.CampaignChange, s.sources().WriteCampaign)
	return s.withLate(ctx, out), err
}

// withLate adds to a campaign that was changed whether it will miss its finish_by.
func (s *server) withLate(ctx context.Context, out *changed[catalog.CampaignRow]) *changed[catalog.CampaignRow] {
	if out != nil && out.Body.FinishBy != "" {
		if c, err := s.watcher.Campaign(ctx, out.Body.ID); err == nil {
			out.Body.Late = c.Late
		}
	}
	return out
}

type pauseIn struct {
	ByID
	Matching
	Body *struct {
		Until string `json:"until,omitempty" maxLength:"64" example:"2h" doc:"when it goes on by itself: RFC 3339, or a span from now on; empty for never"`
		Because
	}
}

// pause takes no revision: it must not fail because the rate has changed.
func (s *server) pause(ctx context.Context, in *pauseIn) (*changed[catalog.CampaignRow], error) {
	until, reason := "", ""
	if in.Body != nil {
		until, reason = strings.TrimSpace(in.Body.Until), in.Body.Reason
	}
	return s.toStatus(ctx, delivery.StatusPaused, until, &statusIn{ByID: in.ByID, Matching: in.Matching}, reason)
}

func (s *server) setStatus(status delivery.Status) func(context.Context, *statusIn) (*changed[catalog.CampaignRow], error) {
	return func(ctx context.Context, in *statusIn) (*changed[catalog.CampaignRow], error) {
		reason := ""
		if in.Body != nil {
			reason = in.Body.Reason
		}
		return s.toStatus(ctx, status, "", in, reason)
	}
}

func (s *server) toStatus(ctx context.Context, status delivery.Status, until string, in *statusIn, reason string) (*changed[catalog.CampaignRow], error) {
	at, err := seen(in.IfMatch, status == delivery.StatusCancelled)
	if err != nil {
		return nil, err
	}
	return write(ctx, s, "campaign", in.ID, reason, func(ctx context.Context) (*catalog.CampaignRow, error) {
		return s.sources().SetStatus(ctx, in.ID, status, until, at)
	})
}

type editIn struct {
	ByID
	Matching
	Body struct {
		catalog.CampaignChange
		ToStatus
		Because
	} `contentType:"application/merge-patch+json"`
}

func (s *server) edit(ctx context.Context, in *editIn) (*changed[catalog.CampaignRow], error) {
	in.Body.Status = in.Body.becomes()
	rest := in.Body.CampaignChange
	rest.Rate = nil
	if who := auth.Of(ctx); rest != (catalog.CampaignChange{}) && who.Role < auth.Admin {
		return nil, refuse(who, auth.Admin)
	}
	out, err := edited(ctx, s, "campaign", "rate", in.ID, in.IfMatch, in.Body.Reason, &in.Body.CampaignChange, s.sources().WriteCampaign)
	return s.withLate(ctx, out), err
}

type deleteIn struct {
	ByID
	Matching
	BecauseOf
}

func (s *server) deleteCampaign(ctx context.Context, in *deleteIn) (*nothing, error) {
	return s.remove(ctx, "campaign", in, func(ctx context.Context, c view.Catalog, at *int64) error {
		_, err := c.DeleteCampaign(ctx, in.ID, at)
		return err
	})
}

// writing is view.By for a change in the database.
func (s *server) writing(ctx context.Context, reason string) (context.Context, error) {
	ctx, err := view.By(ctx, reason)
	switch {
	case err != nil:
		return nil, problem(err, Conflict)
	case s.sources().Catalog == nil:
		return nil, absent("there is no database here, and so nothing can be changed")
	}
	return ctx, nil
}

// row is what people set of a campaign, a quota or a destination.
type row[S any] interface {
	*S
	Seen() int64
}

func write[S any, R row[S]](ctx context.Context, s *server, kind, id, reason string, do func(context.Context) (R, error)) (*changed[S], error) {
	ctx, err := s.writing(ctx, reason)
	if err != nil {
		return nil, err
	}
	row, err := do(ctx)
	if err != nil {
		return nil, problem(err, staleRevision)
	}
	s.log.Info("the API has made a change", "kind", kind, "id", id, "revision", row.Seen(), "by", auth.Of(ctx).Actor(), "request", auth.Of(ctx).Request)
	return &changed[S]{Status: http.StatusOK, ETag: etag(row.Seen()), Body: row}, nil
}

// created creates something; it must not exist.
func created[S, E any, R row[S]](ctx context.Context, s *server, kind, id, reason string, edit *E, do func(context.Context, string, *E, catalog.Precondition) (R, error)) (*changed[S], error) {
	out, err := write(ctx, s, kind, id, reason, func(ctx context.Context) (R, error) { return do(ctx, id, edit, catalog.Precondition{New: true}) })
	return out.at(kind + "s/" + url.PathEscape(id)), err
}

// at makes an answer that of something new, at a location relative to the path of the request without its last part.
func (c *changed[S]) at(location string) *changed[S] {
	if c != nil {
		c.Status, c.Location = http.StatusCreated, location
	}
	return c
}

// edited makes a change of what exists; example is one of its fields.
func edited[S any, E comparable, R row[S]](ctx context.Context, s *server, kind, example, id, match, reason string, edit *E, do func(context.Context, string, *E, catalog.Precondition) (R, error)) (*changed[S], error) {
	if *edit == *new(E) {
		return nil, huma.Error422UnprocessableEntity("nothing is to be changed; give at least one field, such as " + example)
	}
	at, err := seen(match, true)
	if err != nil {
		return nil, err
	}
	return write(ctx, s, kind, id, reason, func(ctx context.Context) (R, error) { return do(ctx, id, edit, catalog.Precondition{At: at}) })
}

func (s *server) remove(ctx context.Context, kind string, in *deleteIn, do func(ctx context.Context, c view.Catalog, at *int64) error) (*nothing, error) {
	ctx, err := s.writing(ctx, in.Reason)
	if err != nil {
		return nil, err
	}
	at, err := seen(in.IfMatch, true)
	if err != nil {
		return nil, err
	}
	if err := do(ctx, s.sources().Catalog, at); errors.Is(err, catalog.ErrInvalid) {
		return nil, fail(inUse, view.Line(err)) // what is in use is not so because of the request
	} else if err != nil {
		return nil, problem(err, staleRevision)
	}
	s.log.Info("the API has deleted something", "kind", kind, "id", in.ID, "by", auth.Of(ctx).Actor(), "request", auth.Of(ctx).Request)
	return &nothing{}, nil
}

type bulkIn struct {
	Body struct {
		catalog.BulkChange
		Filter view.CampaignFilter `json:"filter,omitempty" doc:"as of list-campaigns"`
		IDs    []string            `json:"ids,omitempty" maxItems:"1000" nullable:"false" doc:"these campaigns, instead of those that match a filter"`
		Expect int                 `json:"expect" minimum:"1" maximum:"2147483647" doc:"how many campaigns match, or are named, as you have seen; 409 if that is no longer so. What matches is known as of a second or two ago; whether each of these is changed is decided by its row as it is then"`
		Because
	}
}

type bulkOut struct {
	Matched int `json:"matched"`
	Changed int `json:"changed" doc:"those that were not so already, and not over"`
}

func (s *server) bulk(ctx context.Context, in *bulkIn) (*answer[bulkOut], error) {
	ctx, err := s.writing(ctx, in.Body.Reason)
	if err != nil {
		return nil, err
	}
	ids, err := s.watcher.Fresh(ctx).Chosen(in.Body.Filter, in.Body.IDs, in.Body.Expect)
	if err != nil {
		return nil, problem(err, countChanged)
	}
	n, err := s.sources().Catalog.ChangeCampaigns(ctx, ids, in.Body.BulkChange)
	if n > 0 || err == nil {
		s.log.Info("campaigns were changed", "action", in.Body.Action, "matched", len(ids), "changed", n,
			"by", auth.Of(ctx).Actor(), "request", auth.Of(ctx).Request)
	}
	if err != nil && n > 0 {
		return nil, fail(partlyDone, fmt.Sprintf("%d campaigns were changed, and then: %s", n, view.Line(err)))
	}
	if err != nil {
		return nil, problem(err, countChanged)
	}
	return &answer[bulkOut]{bulkOut{len(ids), n}}, nil
}

// seen returns the revision that If-Match names; nil for any.
func seen(match string, required bool) (*int64, error) {
	switch match = strings.TrimSpace(match); {
	case match == "" && required:
		return nil, fail(revisionNeeded, `give the revision that you have seen as If-Match: "123", or * for any`)
	case match == "" || match == "*":
		return nil, nil //nolint:nilnil // any
	}
	return revisionOf(match)
}

// revisionOf reads an ETag: of a proxy that has compressed the answer it may be a weak one.
func revisionOf(match string) (*int64, error) {
	digits := strings.TrimPrefix(match, "W/")
	if len(digits) > 2 && strings.HasPrefix(digits, `"`) && strings.HasSuffix(digits, `"`) {
		digits = digits[1 : len(digits)-1]
	}
	revision, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return nil, huma.Error422UnprocessableEntity(`If-Match must be a revision such as "123", or *`)
	}
	return &revision, nil
}

func etag(revision int64) string { return `"` + strconv.FormatInt(revision, 10) + `"` }

// roleKey is where an operation has the role that it takes.
const roleKey = "x-pacer-role"

func register[I, O any](api huma.API, o huma.Operation, role auth.Role, handle func(context.Context, *I) (*O, error)) {
	o.Extensions = map[string]any{roleKey: role.String()}
	o.Security = []map[string][]string{{}, {"token": {}}}
	if role > auth.Viewer {
		o.Security = []map[string][]string{{"token": {}}}
	}
	huma.Register(api, o, handle)
}

// authorize refuses callers without the role of the operation. An operation without a role refuses everyone.
func authorize(api huma.API) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		name, _ := ctx.Operation().Extensions[roleKey].(string)
		role, ok := auth.ParseRole(name)
		who := auth.Of(ctx.Context())
		if ok && role > auth.None && who.Role >= role {
			next(ctx)
			return
		}
		if who.Name == "" {
			ctx.SetHeader("WWW-Authenticate", `Bearer realm="pacer"`)
		}
		writeProblem(api, ctx, refuse(who, role))
	}
}

func refuse(who *auth.Identity, role auth.Role) error {
	if who.Name == "" {
		return fail(tokenRequired, "this takes a token of role "+role.String()+"; send it as Authorization: Bearer")
	}
	return fail(roleRequired, "this takes the role "+role.String()+", and "+who.Name+" has "+who.Role.String())
}
