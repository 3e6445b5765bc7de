package api

import (
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/replay"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/jobs"
)

// Kind is what kind of problem an answer tells of, as its type says: urn:pacer:problem: and the kind. Clients tell problems apart by it,
// since several have the same status. Kinds are added, but none is renamed.
type Kind string

const typePrefix = "urn:pacer:problem:"

// The kinds that are named elsewhere than in the list.
const (
	Conflict       Kind = "conflict"
	NotFound       Kind = "not-found"
	ForeignOrigin  Kind = "foreign-origin"
	TokenUnknown   Kind = "token-unknown"
	tokenRequired  Kind = "token-required"
	roleRequired   Kind = "role-required"
	readOnly       Kind = "read-only"
	exists         Kind = "exists"
	over           Kind = "over"
	inUse          Kind = "in-use"
	countChanged   Kind = "count-changed"
	replayRunning  Kind = "replay-running"
	partlyDone     Kind = "partly-done"
	busy           Kind = "busy"
	unavailable    Kind = "unavailable"
	inDoubt        Kind = "in-doubt"
	internalFault  Kind = "internal"
	staleRevision  Kind = "stale-revision"
	revisionNeeded Kind = "revision-required"
	invalid        Kind = "invalid"
)

// kinds are all there are, with what each means. The first kind of a status is its default.
var kinds = []struct {
	kind    Kind
	status  int
	meaning string
}{
	{"malformed", http.StatusBadRequest, "the request cannot be read, or its body is no JSON"},
	{tokenRequired, http.StatusUnauthorized, "nobody in particular may do this: send a token"},
	{TokenUnknown, http.StatusUnauthorized, "the token is not known, or no longer"},
	{roleRequired, http.StatusForbidden, "the token has not the role that this takes"},
	{ForeignOrigin, http.StatusForbidden, "the request comes from a page of another site"},
	{readOnly, http.StatusForbidden, "the database role of this process may only read: ask another process"},
	{NotFound, http.StatusNotFound, "there is no such thing, or no such operation"},
	{"method-not-allowed", http.StatusMethodNotAllowed, "the path has no such operation; Allow says which it has"},
	{Conflict, http.StatusConflict, "this cannot be done as things are now"},
	{exists, http.StatusConflict, "what is to be created exists"},
	{over, http.StatusConflict, "the campaign is cancelled or completed, and stays so"},
	{inUse, http.StatusConflict, "what is to be deleted is in use"},
	{countChanged, http.StatusConflict, "not as many campaigns match as expected: look again"},
	{replayRunning, http.StatusConflict, "a replay is running, here or in another process"},
	{partlyDone, http.StatusConflict, "some of the campaigns were changed before it failed: look again"},
	{staleRevision, http.StatusPreconditionFailed, "it was changed since the revision of If-Match, or is there although If-None-Match says that it must not"},
	{"too-large", http.StatusRequestEntityTooLarge, "the body is too large"},
	{"unsupported-media-type", http.StatusUnsupportedMediaType, "the body is of a type that the operation does not take"},
	{invalid, http.StatusUnprocessableEntity, "the request makes no sense; detail and errors say where"},
	{revisionNeeded, http.StatusPreconditionRequired, "this takes the revision that was seen, as If-Match"},
	{"too-many-wrong-tokens", http.StatusTooManyRequests, "too many wrong tokens came from this address: wait for a minute"},
	{internalFault, http.StatusInternalServerError, "this is an error in pacer: its log has more"},
	{unavailable, http.StatusServiceUnavailable, "a service does not answer, or is not there; nothing was changed in the database, and what was asked of Redis may have been done"},
	{inDoubt, http.StatusServiceUnavailable, "the database was lost while the change was committed: it may have been made; look before you repeat it"},
	{busy, http.StatusServiceUnavailable, "others ask for as much as can be done at a time: try again later"},
}

// fail makes a problem of a kind.
func fail(kind Kind, detail string) error {
	for _, k := range kinds {
		if k.kind == kind {
			return Problem(k.status, kind, detail)
		}
	}
	return Problem(http.StatusInternalServerError, internalFault, detail) // never: each kind is in the list
}

// kindOf returns the default kind of a status.
func kindOf(status int) Kind {
	for _, k := range kinds {
		if k.status == status {
			return k.kind
		}
	}
	return internalFault
}

// withType is a huma.Transformer that gives problems their type, also those that huma makes.
func withType(_ huma.Context, _ string, answer any) (any, error) {
	if model, ok := answer.(*huma.ErrorModel); ok && model.Type == "" {
		model.Type = typePrefix + string(kindOf(model.Status))
	}
	return answer, nil
}

// Problem is the body of a problem that is found before there is an operation; kind is "" for that of the status.
func Problem(status int, kind Kind, detail string) *huma.ErrorModel {
	if kind == "" {
		kind = kindOf(status)
	}
	return &huma.ErrorModel{Type: typePrefix + string(kind), Title: http.StatusText(status), Status: status, Detail: detail}
}

// describeProblems makes the document list the kinds.
func describeProblems(api huma.API) {
	schema := api.OpenAPI().Components.Schemas.Map()["ErrorModel"].Properties["type"]
	schema.Description, schema.Default, schema.Enum = "what kind of problem it is; the list may grow", nil, nil
	meanings := make([]string, 0, len(kinds))
	for _, k := range kinds {
		schema.Enum, meanings = append(schema.Enum, typePrefix+string(k.kind)), append(meanings, k.meaning)
	}
	schema.Examples = []any{schema.Enum[0]}
	schema.Extensions = map[string]any{"x-enum-descriptions": meanings}
	schema.PrecomputeMessages()
}

// problem converts an error of what changes campaigns, quotas and destinations. stale is the kind of one that is outdated.
func problem(err error, stale Kind) error {
	if errors.Is(err, replay.ErrSearching) {
		return huma.ErrorWithHeaders(fail(busy, view.Line(err)), http.Header{"Retry-After": {"10"}})
	}
	for _, as := range []struct {
		err  error
		kind Kind
	}{
		{catalog.ErrNotFound, NotFound}, {catalog.ErrStale, stale}, {catalog.ErrOver, over}, {catalog.ErrExists, exists}, {catalog.ErrInvalid, invalid}, {catalog.ErrForbidden, readOnly},
		{catalog.ErrInDoubt, inDoubt}, {jobs.ErrNoLedger, Conflict},
	} {
		if errors.Is(err, as.err) {
			return fail(as.kind, view.Line(err))
		}
	}
	return absent(view.Line(err))
}

// StatusOf returns the status of an error of what changes campaigns, quotas and destinations.
func StatusOf(err error) int {
	model, _ := errors.AsType[*huma.ErrorModel](problem(err, staleRevision)) // fail makes nothing else
	return model.Status
}

func writeProblem(api huma.API, ctx huma.Context, err error) {
	model, ok := errors.AsType[*huma.ErrorModel](err)
	if !ok {
		return // fail makes nothing else
	}
	ctx.SetHeader("Content-Type", "application/problem+json")
	ctx.SetStatus(model.Status)
	_ = api.Marshal(ctx.BodyWriter(), "application/json", model)
}
