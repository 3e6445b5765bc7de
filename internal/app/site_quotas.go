package app

import (
	"context"
	"strings"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
)

// quotas implements view.QuotaChanger over the database.
type quotas struct{ changer }

func (q quotas) QuotaSettings(ctx context.Context, id string) (*view.QuotaSettings, error) {
	row, err := q.admin.GetQuota(ctx, id)
	if err != nil {
		return nil, q.explain(ctx, err)
	}
	return quotaSettingsOf(&row), nil
}

func (q quotas) EditQuota(ctx context.Context, by view.Actor, id string, e *view.QuotaEdit) (*view.QuotaSettings, error) {
	ctx = catalog.WithActor(ctx, catalog.Actor(by))
	exists := !e.New
	change := catalog.QuotaChange{
		Mode: e.Mode, Spend: e.Spend, OnStoreFailure: e.OnStoreFailure, Rollout: e.Rollout, Unit: e.Unit, Exists: &exists, AtRevision: e.AtRevision, With: e.With,
	}
	if e.Windows != nil {
		windows, err := catalog.ParseWindows(strings.Join(*e.Windows, ","))
		if err != nil {
			return nil, view.Fault(view.ErrInvalid, "windows: %s", err)
		}
		change.Windows = &windows
	}
	row, err := q.admin.SetQuota(ctx, id, change)
	if err != nil {
		return nil, q.explain(ctx, err)
	}
	return quotaSettingsOf(&row), nil
}

func (q quotas) DeleteQuota(ctx context.Context, by view.Actor, id string, unlink bool, revision *int64) error {
	_, err := q.admin.DeleteQuota(catalog.WithActor(ctx, catalog.Actor(by)), id, unlink, revision)
	return q.explain(ctx, err)
}

func quotaSettingsOf(row *catalog.QuotaRow) *view.QuotaSettings {
	s := &view.QuotaSettings{
		ID: row.ID, Revision: row.Revision, Windows: []string{}, Mode: row.Mode, Spend: row.Spend, OnStoreFailure: row.OnStoreFailure, Rollout: row.Rollout,
		Unit: row.Unit, Shard: row.Shard, Campaigns: len(row.Campaigns),
		CampaignIDs: append([]string{}, row.Campaigns[:min(len(row.Campaigns), view.MaxListed)]...),
	}
	for _, w := range row.Windows {
		s.Windows = append(s.Windows, w.String())
	}
	return s
}
