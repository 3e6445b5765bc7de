package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
)

func (s *server) registerQuotas(api huma.API) {
	get(api, "list-quotas", "/quotas", "Quotas, with what is left of their windows, a page at a time", s.quotas)
	get(api, "get-quota", "/quotas/{id}", "One quota", reading(s.watcher.Quota))
	get(api, "get-quota-usage", "/quotas/{id}/usage", "What was used of a quota, from the ledger", s.usage)
	getAs(api, "list-busy-keys", "/quotas/{id}/keys", "The keys of a keyed quota of which most jobs had to wait lately, or were capped", auth.Operator, s.busyKeys)
	get(api, "get-key", "/quotas/{id}/keys/{key}", "One value of the key of a keyed quota", s.key)
	create(api, "create-quota", "/quotas", "Create a quota", auth.Admin, s.createQuota)
	change(api, "edit-quota", http.MethodPatch, "/quotas/{id}", "Change a quota", auth.Admin, s.editQuota)
	change(api, "delete-quota", http.MethodDelete, "/quotas/{id}", "Delete a quota, its counts and its history", auth.Admin, s.deleteQuota)
	change(api, "adjust-quota", http.MethodPost, "/quotas/{id}/windows/{span}/adjust", "Set what a window of a quota has counted", auth.Admin, s.adjust)
	change(api, "edit-key", http.MethodPatch, "/quotas/{id}/keys/{key}", "Hold or release one value of the key of a keyed quota; its windows take an admin", auth.Operator, s.editKey)
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
	state := s.watcher.Fresh(ctx)
	if err := state.Missing(view.CampaignFilter{}); err != nil {
		return nil, problem(err, Conflict)
	}
	list, more := state.QuotasAfter(in.After, in.Limit)
	out := quotasOut{Quotas: someOf(list, in.Fields), Total: len(state.Quotas)}
	if more {
		out.Next = list[len(list)-1].ID
	}
	return &answer[quotasOut]{out}, nil
}

type busyKeysOut struct {
	Keys []delivery.KeyJobs `json:"keys"`
}

func (s *server) busyKeys(ctx context.Context, in *ByID) (*answer[busyKeysOut], error) {
	out := busyKeysOut{Keys: []delivery.KeyJobs{}}
	q, err := s.watcher.Quota(ctx, in.ID)
	if err == nil && q.Keys != nil {
		out.Keys = q.Keys.Busiest
	}
	return answered(out, err)
}

type createQuotaIn struct {
	Body struct {
		NewID
		catalog.QuotaChange
		Because
	}
}

func (s *server) createQuota(ctx context.Context, in *createQuotaIn) (*changed[catalog.QuotaRow], error) {
	return created(ctx, s, "quota", in.Body.ID, in.Body.Reason, &in.Body.QuotaChange, s.sources().WriteQuota)
}

type editQuotaIn struct {
	ByID
	Matching
	Body struct {
		catalog.QuotaChange
		Because
	} `contentType:"application/merge-patch+json"`
}

func (s *server) editQuota(ctx context.Context, in *editQuotaIn) (*changed[catalog.QuotaRow], error) {
	return edited(ctx, s, "quota", "windows", in.ID, in.IfMatch, in.Body.Reason, &in.Body.QuotaChange, s.sources().WriteQuota)
}

type deleteQuotaIn struct {
	ByID
	Matching
	Unlink bool `query:"unlink" doc:"also take its campaigns out of it; those without another are limited by their rate alone"`
	BecauseOf
}

func (s *server) deleteQuota(ctx context.Context, in *deleteQuotaIn) (*nothing, error) {
	return s.remove(ctx, "quota", &deleteIn{in.ByID, in.Matching, in.BecauseOf}, func(ctx context.Context, c view.Catalog, at *int64) error {
		_, err := c.DeleteQuota(ctx, in.ID, in.Unlink, at)
		return err
	})
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
	ctx, err := s.writing(ctx, in.Body.Reason)
	if err != nil {
		return nil, err
	}
	done, err := s.sources().Adjust(ctx, in.ID, view.Adjustment{Span: in.Span, Used: in.Body.Used, Lower: in.Body.Lower})
	if err == nil {
		s.log.Info("the count of a quota was corrected", "quota", in.ID, "window", done.Window, "before", done.Before, "used", done.Used,
			"by", auth.Of(ctx).Actor(), "request", auth.Of(ctx).Request)
	}
	return answered(done, err)
}

// OfKey names a value of the key of a quota.
type OfKey struct {
	ByID
	Key string `path:"key" minLength:"1" maxLength:"256" doc:"its value"`
}

func (s *server) key(ctx context.Context, in *OfKey) (*answer[*view.Key], error) {
	return answered(s.sources().Key(ctx, in.ID, in.Key))
}

type editKeyIn struct {
	OfKey
	Body struct {
		view.KeyEdit
		Because
	} `contentType:"application/merge-patch+json"`
}

func (s *server) editKey(ctx context.Context, in *editKeyIn) (*answer[*view.Key], error) {
	if who := auth.Of(ctx); in.Body.Windows != nil && who.Role < auth.Admin {
		return nil, refuse(who, auth.Admin)
	}
	ctx, err := s.writing(ctx, in.Body.Reason)
	if err != nil {
		return nil, err
	}
	k, err := s.sources().SetKey(ctx, in.ID, in.Key, in.Body.KeyEdit)
	if err == nil {
		s.log.Info("a key of a quota was changed", "quota", in.ID, "by", auth.Of(ctx).Actor(), "request", auth.Of(ctx).Request)
	}
	return answered(k, err)
}

type usageIn struct {
	ByID
	Lately

	From time.Time `query:"from" doc:"instead of last: the beginning, rounded down to a whole step"`
	To   time.Time `query:"to" doc:"the end, rounded up to a whole minute; by default now"`
	Step string    `query:"step" default:"1h" maxLength:"64" pattern:"^[0-9a-zµμ. ]*$" patternDescription:"a span such as 36h or 7d" doc:"time of each entry, in whole minutes"`
}

type usageOut struct {
	Usage []catalog.Usage `json:"usage"`
}

func (s *server) usage(ctx context.Context, in *usageIn) (*answer[usageOut], error) {
	from, to, err := in.between(time.Now())
	if err != nil {
		return nil, err
	}
	step, err := span("step", in.Step)
	if err != nil {
		return nil, err
	}
	usage, err := s.sources().Usage(ctx, in.ID, from, to, step)
	return answered(usageOut{usage}, err)
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

// maxUsage bounds how far back a request may go. The ledger keeps less.
const maxUsage = 10 * 366 * 24 * time.Hour
