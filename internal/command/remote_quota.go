package command

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/pacer/pacer/internal/app"
	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/notation"
)

func (r *remote) remove(ctx context.Context, id string) (catalog.CampaignRow, error) {
	row := catalog.CampaignRow{ID: id}
	if was, err := r.show(ctx, id); err == nil { // one that is new is not known yet
		row = *was.CampaignRow
	}
	return row, r.call(ctx, http.MethodDelete, "/campaigns/"+url.PathEscape(id), nil, nil, nil)
}

// changeQuota changes a quota, or creates it if there is none.
func (r *remote) changeQuota(ctx context.Context, id string, c *catalog.QuotaChange) (catalog.QuotaRow, error) {
	edit := view.QuotaEdit{Mode: c.Mode, Spend: c.Spend, OnStoreFailure: c.OnStoreFailure, Rollout: c.Rollout, Unit: c.Unit, With: c.With}
	if c.Windows != nil {
		windows := make([]string, 0, len(*c.Windows))
		for _, w := range *c.Windows {
			windows = append(windows, notation.FormatWindow(w))
		}
		edit.Windows = &windows
	}
	var s view.QuotaSettings
	err := r.call(ctx, http.MethodPatch, "/quotas/"+url.PathEscape(id), nil, &edit, &s)
	var refused *refusal
	if errors.As(err, &refused) && refused.status == http.StatusNotFound {
		err = r.call(ctx, http.MethodPost, "/quotas", nil, struct {
			ID string `json:"id"`
			view.QuotaEdit
		}{id, edit}, &s)
	}
	if err != nil {
		return catalog.QuotaRow{}, err
	}
	return *settledQuota(&s), nil
}

// settledQuota reads a quota after a change.
func settledQuota(s *view.QuotaSettings) *catalog.QuotaRow {
	row := &catalog.QuotaRow{
		ID: s.ID, Windows: []catalog.WindowRow{}, OnStoreFailure: s.OnStoreFailure, Mode: s.Mode, Spend: s.Spend, Rollout: s.Rollout, Unit: s.Unit,
		Shard: s.Shard, Campaigns: s.CampaignIDs, Revision: s.Revision, UpdatedAt: time.Now(),
	}
	for _, word := range s.Windows {
		windows, err := notation.ParseWindows(word)
		if err != nil {
			continue // a console has written it
		}
		for _, w := range windows {
			row.Windows = append(row.Windows, catalog.WindowRow{Span: notation.FormatSpan(w.Span), MaxUnits: w.Limit, Algorithm: w.Algorithm, Anchor: w.Anchor})
		}
	}
	return row
}

func (r *remote) deleteQuota(ctx context.Context, id string, unlink bool) (catalog.QuotaRow, error) {
	was := view.Quota{ID: id}
	_ = r.get(ctx, "/quotas/"+url.PathEscape(id), nil, &was) // one that is new is not known yet
	return *shownQuota(&was), r.call(ctx, http.MethodDelete, "/quotas/"+url.PathEscape(id), url.Values{"unlink": {strconv.FormatBool(unlink)}}, nil, nil)
}

func (r *remote) adjustQuota(ctx context.Context, a app.QuotaAdjustment) (done view.Adjusted, err error) {
	err = r.call(ctx, http.MethodPost, "/quotas/"+url.PathEscape(a.Quota)+"/windows/"+url.PathEscape(notation.FormatSpan(a.Span))+"/adjust", nil,
		map[string]any{"used": a.Used, "lower": a.Lower, "reason": a.Reason}, &done)
	return done, err
}

func (r *remote) quotaUsage(ctx context.Context, id string, last, step time.Duration) (quotaUsage, error) {
	var q view.Quota
	if err := r.get(ctx, "/quotas/"+url.PathEscape(id), nil, &q); err != nil {
		return quotaUsage{}, err
	}
	var found struct {
		Usage []catalog.Usage `json:"usage"`
	}
	usage := quotaUsage{Quota: id, Step: notation.FormatSpan(step), Note: usageNote(shownQuota(&q))}
	err := r.get(ctx, "/quotas/"+url.PathEscape(id)+"/usage", url.Values{"last": {notation.FormatSpan(last)}, "step": {usage.Step}}, &found)
	usage.Steps = found.Usage
	return usage, err
}
