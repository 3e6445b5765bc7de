package api

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

// registerQuotas adds the operations about quotas.
func (s *server) registerQuotas(api huma.API) {
	get(api, "list-quotas", "/quotas", "Quotas, with what is left of their windows, a page at a time", s.quotas)
	get(api, "get-quota", "/quotas/{id}", "One quota", s.quota)
	get(api, "get-quota-usage", "/quotas/{id}/usage", "What was used of a quota, from the ledger", s.usage)
	create(api, "create-quota", "/quotas", "Create a quota", auth.Admin, s.createQuota)
	change(api, "edit-quota", http.MethodPatch, "/quotas/{id}", "Change a quota", auth.Admin, s.editQuota)
	change(api, "delete-quota", http.MethodDelete, "/quotas/{id}", "Delete a quota, its counts and its history", auth.Admin, s.deleteQuota)
	change(api, "adjust-quota", http.MethodPost, "/quotas/{id}/windows/{span}/adjust", "Set what a window of a quota has counted", auth.Admin, s.adjust)
	requireMatch(api.OpenAPI().Paths["/quotas/{id}"].Patch)
	requireMatch(api.OpenAPI().Paths["/quotas/{id}"].Delete)
}

type quotasIn struct {
	Chosen

	After string `query:"after" maxLength:"256" doc:"id of the last quota of the page before"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"1000"`
}

type quotasOut struct {
	Quotas []some[view.Quota] `json:"quotas"`
	Total  int                `json:"total" doc:"quotas on all pages"`
	Next   string             `json:"next,omitempty" doc:"what to pass as after for the next page; absent on the last"`
}

func (s *server) quotas(ctx context.Context, in *quotasIn) (*answer[quotasOut], error) {
	state := s.looker.Fresh(ctx)
	list, more := state.QuotasAfter(in.After, in.Limit)
	out := quotasOut{Quotas: someOf(list, in.Fields), Total: len(state.Quotas)}
	if more {
		out.Next = list[len(list)-1].ID
	}
	return &answer[quotasOut]{out}, nil
}

type quotaOut struct {
	ETag string `header:"ETag"`
	Body *view.Quota
}

func (s *server) quota(ctx context.Context, in *ByID) (*quotaOut, error) {
	if q := s.looker.Fresh(ctx).Quota(in.ID); q != nil {
		return &quotaOut{etag(q.Revision), q}, nil
	}
	return nil, huma.Error404NotFound("there is no quota " + notation.Shorten(in.ID))
}

// changedQuota is a quota after a change.
type changedQuota struct {
	Status   int
	ETag     string `header:"ETag"`
	Location string `header:"Location"`
	Body     *view.QuotaSettings
}

type createQuotaIn struct {
	Body struct {
		NewID
		view.QuotaEdit
		Because
	}
}

func (s *server) createQuota(ctx context.Context, in *createQuotaIn) (*changedQuota, error) {
	edit := in.Body.QuotaEdit
	edit.New = true
	out, err := s.changeQuota(ctx, in.Body.ID, in.Body.Reason, &edit)
	if err == nil {
		out.Status, out.Location = http.StatusCreated, locationOf("quotas", in.Body.ID)
	}
	return out, err
}

type editQuotaIn struct {
	ByID
	Matching
	Body struct {
		view.QuotaEdit
		Because
	} `contentType:"application/merge-patch+json"`
}

func (s *server) editQuota(ctx context.Context, in *editQuotaIn) (*changedQuota, error) {
	edit := in.Body.QuotaEdit
	if edit.Empty() {
		return nil, huma.Error422UnprocessableEntity("nothing is to be changed; give at least one field, such as windows")
	}
	var err error
	if edit.AtRevision, err = seen(in.IfMatch, true); err != nil {
		return nil, err
	}
	return s.changeQuota(ctx, in.ID, in.Body.Reason, &edit)
}

func (s *server) changeQuota(ctx context.Context, id, reason string, edit *view.QuotaEdit) (*changedQuota, error) {
	changer, err := s.quotaChanger(reason)
	if err != nil {
		return nil, err
	}
	settings, err := changer.EditQuota(ctx, s.actor(ctx, reason), id, edit)
	if err != nil {
		return nil, problem(err, staleRevision)
	}
	s.log.Info("a quota was changed", "quota", id, "revision", settings.Revision, "by", auth.Of(ctx).Actor(), "request", auth.RequestID(ctx))
	return &changedQuota{Status: http.StatusOK, ETag: etag(settings.Revision), Body: settings}, nil
}

// quotaChanger returns what changes quotas, if the reason for that can be recorded.
func (s *server) quotaChanger(reason string) (view.QuotaChanger, error) {
	if err := view.CheckReason("reason", reason); err != nil {
		return nil, problem(err, Conflict)
	}
	if changer := s.looker.Sources().Quotas; changer != nil {
		return changer, nil
	}
	return nil, absent("there is no database here, and so nothing can be changed")
}

type deleteQuotaIn struct {
	ByID
	Matching
	Unlink bool `query:"unlink" doc:"also take its campaigns out of it; those without another are limited by their rate alone"`
	BecauseOf
}

func (s *server) deleteQuota(ctx context.Context, in *deleteQuotaIn) (*nothing, error) {
	changer, err := s.quotaChanger(in.Reason)
	if err != nil {
		return nil, err
	}
	at, err := seen(in.IfMatch, true)
	if err != nil {
		return nil, err
	}
	if err := changer.DeleteQuota(ctx, s.actor(ctx, in.Reason), in.ID, in.Unlink, at); err != nil {
		return nil, notDeleted(err)
	}
	s.log.Info("a quota was deleted", "quota", in.ID, "by", auth.Of(ctx).Actor(), "request", auth.RequestID(ctx))
	return &nothing{}, nil
}

type adjustIn struct {
	ByID
	OfWindow
	Body struct {
		Used   int64  `json:"used" minimum:"0" maximum:"10000000000" doc:"units that it has counted from now on"`
		Lower  bool   `json:"lower,omitempty" doc:"also where that is less than it has counted, which makes room"`
		Reason string `json:"reason" minLength:"1" maxLength:"500" pattern:"^[^\\x00-\\x1f\\x7f-\\x9f]*$" patternDescription:"one line without control characters" doc:"one line for the record of changes"`
	}
}

func (s *server) adjust(ctx context.Context, in *adjustIn) (*answer[view.Adjusted], error) {
	if err := view.CheckReason("reason", in.Body.Reason); err != nil {
		return nil, problem(err, Conflict)
	}
	adjust := s.looker.Sources().Adjust
	if adjust == nil {
		return nil, absent("there is no database here, and so nothing can be changed")
	}
	done, err := adjust(ctx, s.actor(ctx, in.Body.Reason), in.ID, view.Adjustment{Span: in.Span, Used: in.Body.Used, Lower: in.Body.Lower})
	if err != nil {
		return nil, problem(err, Conflict)
	}
	s.log.Info("the count of a quota was corrected", "quota", in.ID, "window", done.Window, "before", done.Before, "used", done.Used,
		"by", auth.Of(ctx).Actor(), "request", auth.RequestID(ctx))
	return &answer[view.Adjusted]{done}, nil
}

type usageIn struct {
	ByID
	Lately

	From time.Time `query:"from" doc:"instead of last: the beginning, rounded down to a whole step"`
	To   time.Time `query:"to" doc:"the end, rounded up to a whole minute; by default now"`
	Step string    `query:"step" default:"1h" maxLength:"64" pattern:"^[0-9a-zµμ. ]*$" patternDescription:"a span such as 36h or 7d" doc:"time of each entry, in whole minutes"`
}

type usageOut struct {
	Usage []view.Usage `json:"usage"`
}

func (s *server) usage(ctx context.Context, in *usageIn) (*answer[usageOut], error) {
	records := s.looker.Sources().Records
	if records == nil {
		return nil, absent("there is no database here, and so no ledger")
	}
	from, to, err := in.between(time.Now())
	if err != nil {
		return nil, err
	}
	step, err := span("step", in.Step)
	if err != nil {
		return nil, err
	}
	if s.looker.Fresh(ctx).Quota(in.ID) == nil {
		return nil, huma.Error404NotFound("there is no quota " + notation.Shorten(in.ID))
	}
	if step < time.Minute || step%time.Minute != 0 || to.Sub(from)/step > maxEntries {
		return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("step must be a whole number of minutes, and at most %d of them fit", maxEntries))
	}
	usage, err := records.Usage(ctx, in.ID, from, to, step)
	if err != nil {
		return nil, absent(line(err))
	}
	return &answer[usageOut]{usageOut{usage}}, nil
}

// between returns the time that is asked for.
func (in *usageIn) between(now time.Time) (from, to time.Time, err error) {
	last, err := span("last", in.Last)
	if err != nil {
		return from, to, err
	}
	if to = in.To; to.IsZero() || to.After(now) {
		to = now // of what is to come nothing is known
	}
	if from = in.From; from.IsZero() {
		from = to.Add(-last)
	}
	if !from.Before(to) || from.Before(now.Add(-maxUsage)) {
		return from, to, huma.Error422UnprocessableEntity("from must lie before to and before now, and within the last ten years")
	}
	return from, to, nil
}

// maxUsage is how far back somebody may ask; the ledger keeps less.
const maxUsage = 10 * 366 * 24 * time.Hour

// maxEntries bounds one answer about the use of a quota.
const maxEntries = 5000
