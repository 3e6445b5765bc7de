package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
)

// registerPuts adds the operations that create or replace something whole, for programs that keep it as it is described elsewhere.
func (s *server) registerPuts(api huma.API) {
	put(api, "put-campaign", "/campaigns/{id}", "Create a campaign, or replace all of one but its status: what is left out gets its default", s.putCampaign)
	put(api, "put-quota", "/quotas/{id}", "Create a quota, or replace all of one: what is left out gets its default", s.putQuota)
}

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

// condition returns what a PUT is for: to create something, or to replace what is at a revision.
func condition(match, none string) (on catalog.Precondition, err error) {
	match, none = strings.TrimSpace(match), strings.TrimSpace(none)
	switch {
	case match != "" && none != "":
		return on, fail(invalid, "give If-None-Match: * to create it, or If-Match to replace it, not both")
	case none == "*":
		return catalog.Precondition{New: true}, nil
	case match == "":
		return on, fail(revisionNeeded, `give If-None-Match: * to create it, or the revision that you have seen as If-Match: "123", or * for any, to replace it`)
	}
	on.At, err = seen(match, true)
	return on, err
}

// replaced writes something whole. That it is there, or is not, is what the condition was about.
func replaced[S, E any, R row[S]](ctx context.Context, s *server, kind, id, match, none, reason string, edit *E, do func(context.Context, string, *E, catalog.Precondition) (R, error)) (*changed[S], error) {
	on, err := condition(match, none)
	if err != nil {
		return nil, err
	}
	out, err := write(ctx, s, kind, id, reason, func(ctx context.Context) (R, error) {
		row, err := do(ctx, id, edit, on)
		if on.New && errors.Is(err, catalog.ErrExists) || !on.New && errors.Is(err, catalog.ErrNotFound) {
			err = catalog.Fault(catalog.ErrStale, "%s", view.Line(err))
		}
		return row, err
	})
	if on.New {
		return out.at(url.PathEscape(id)), err
	}
	return out, err
}

type putCampaignIn struct {
	ByID
	Matching
	Absent
	Body struct {
		catalog.CampaignChange
		Because
	}
}

func (s *server) putCampaign(ctx context.Context, in *putCampaignIn) (*changed[catalog.CampaignRow], error) {
	begin := view.NewCampaign()
	begin.Rate = "0" // it sends nothing until it is told to
	view.FillDefaults(view.CampaignForm, begin, &in.Body.CampaignChange)
	out, err := replaced(ctx, s, "campaign", in.ID, in.IfMatch, in.IfNoneMatch, in.Body.Reason, &in.Body.CampaignChange, s.sources().WriteCampaign)
	return s.withLate(ctx, out), err
}

type putQuotaIn struct {
	ByID
	Matching
	Absent
	Body struct {
		catalog.QuotaChange
		Because
	}
}

func (s *server) putQuota(ctx context.Context, in *putQuotaIn) (*changed[catalog.QuotaRow], error) {
	view.FillDefaults(view.QuotaForm, view.NewQuota(), &in.Body.QuotaChange)
	return replaced(ctx, s, "quota", in.ID, in.IfMatch, in.IfNoneMatch, in.Body.Reason, &in.Body.QuotaChange, s.sources().WriteQuota)
}
