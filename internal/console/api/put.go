package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

// registerPuts adds the operations that create or replace something whole, for programs that keep it as it is described elsewhere.
func (s *server) registerPuts(api huma.API) {
	put(api, "put-campaign", "/campaigns/{id}", "Create a campaign, or replace all of one but its status: what is left out gets its default", s.putCampaign)
	put(api, "put-quota", "/quotas/{id}", "Create a quota, or replace all of one: what is left out gets its default", s.putQuota)
}

// put adds an operation that creates or replaces.
func put[I, O any](api huma.API, id, path, summary string, handle func(context.Context, *I) (*O, error)) {
	o := changing(id, http.MethodPut, path, summary)
	register(api, o, auth.Admin, handle)
	answers := api.OpenAPI().Paths[path].Put.Responses // of something new it is 201
	answers["201"] = &huma.Response{Description: "Created", Content: answers["200"].Content, Headers: answers["200"].Headers}
}

// Absent is that there must not be one yet.
type Absent struct {
	IfNoneMatch string `header:"If-None-Match" maxLength:"64" pattern:"^(|[*])$" patternDescription:"*" doc:"* to create it, and not to replace one; else give If-Match"`
}

// condition returns what a PUT is for: to create something, or to replace what is at a revision; nil for any.
func condition(match, none string) (create bool, at *int64, err error) {
	match, none = strings.TrimSpace(match), strings.TrimSpace(none)
	switch {
	case match != "" && none != "":
		return false, nil, fail(invalid, "give If-None-Match: * to create it, or If-Match to replace it, not both")
	case none == "*":
		return true, nil, nil
	case match == "":
		return false, nil, fail(revisionNeeded, `give If-None-Match: * to create it, or the revision that you have seen as If-Match: "123", or * for any, to replace it`)
	}
	at, err = seen(match, true)
	return false, at, err
}

// notAsIs converts an error of a PUT whose condition the database has checked: that something is there, or is not, is what it was about.
func notAsIs(err error) error {
	if errors.Is(err, view.ErrExists) || errors.Is(err, view.ErrNotFound) {
		return fail(staleRevision, line(err))
	}
	return problem(err, staleRevision)
}

type putCampaignIn struct {
	ByID
	Matching
	Absent
	Body struct {
		view.Edit
		Because
	}
}

func (s *server) putCampaign(ctx context.Context, in *putCampaignIn) (*changed, error) {
	changer, err := s.changer(in.Body.Reason)
	if err != nil {
		return nil, err
	}
	edit := in.Body.Edit
	if edit.New, edit.AtRevision, err = condition(in.IfMatch, in.IfNoneMatch); err != nil {
		return nil, err
	}
	edit.FillDefaults()
	settings, err := changer.Edit(ctx, s.actor(ctx, in.Body.Reason), in.ID, &edit)
	if err != nil {
		return nil, notAsIs(err)
	}
	s.log.Info("a campaign was written whole", "campaign", in.ID, "new", edit.New, "revision", settings.Revision, "by", auth.Of(ctx).Actor(), "request", auth.RequestID(ctx))
	out := &changed{Status: http.StatusOK, ETag: etag(settings.Revision), Body: settings}
	if edit.New {
		out.Status, out.Location = http.StatusCreated, ownLocation(in.ID)
	}
	return out, nil
}

type putQuotaIn struct {
	ByID
	Matching
	Absent
	Body struct {
		view.QuotaEdit
		Because
	}
}

func (s *server) putQuota(ctx context.Context, in *putQuotaIn) (*changedQuota, error) {
	changer, err := s.quotaChanger(in.Body.Reason)
	if err != nil {
		return nil, err
	}
	edit := in.Body.QuotaEdit
	if edit.New, edit.AtRevision, err = condition(in.IfMatch, in.IfNoneMatch); err != nil {
		return nil, err
	}
	edit.FillDefaults()
	settings, err := changer.EditQuota(ctx, s.actor(ctx, in.Body.Reason), in.ID, &edit)
	if err != nil {
		return nil, notAsIs(err)
	}
	s.log.Info("a quota was written whole", "quota", in.ID, "new", edit.New, "revision", settings.Revision, "by", auth.Of(ctx).Actor(), "request", auth.RequestID(ctx))
	out := &changedQuota{Status: http.StatusOK, ETag: etag(settings.Revision), Body: settings}
	if edit.New {
		out.Status, out.Location = http.StatusCreated, ownLocation(in.ID)
	}
	return out, nil
}

// ownLocation is the path of something that was created there, relative to that of the request.
func ownLocation(id string) string { return strings.TrimPrefix(locationOf("", id), "/") }
