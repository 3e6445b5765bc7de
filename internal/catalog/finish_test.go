package catalog

import (
	"context"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// TestSpreadingIsNoChangeOfAPerson: the rate that daemons set acts as any change of a rate, is not recorded, and lets those who have seen the
// campaign before change it. Theirs counts from then on, and removes what a campaign without a finish_by does not need.
func TestSpreadingIsNoChangeOfAPerson(t *testing.T) {
	t.Parallel()
	dsn, ctx := migrated(t), t.Context()
	a := adminOf(t, dsn)
	p := started(t, Options{DSN: dsn})
	changed := p.Subscribe()
	by := time.Now().Add(time.Hour).Truncate(time.Second)
	created := try(a.created(ctx, "c", CampaignChange{Rate: new("500"), FinishBy: new(by.Format(time.RFC3339))}))(t)
	if created.FinishBy != notation.Instant(&by) {
		t.Fatalf("%+v", created)
	}
	try(a.created(ctx, "other", CampaignChange{Rate: new("500")}))(t)
	rateOf := func(perHour int64) *delivery.Campaign {
		t.Helper()
		must(t, p.SpreadCampaigns(ctx, map[string]int64{"c": perHour * 1_000_000, "other": 1_000_000, "gone": 1_000_000}))
		want, _ := delivery.NewRate(perHour*1_000_000, time.Hour)
		return await(t, p, changed, "the rate", func(s *delivery.Snapshot) bool {
			c := s.Campaign("c")
			return c != nil && c.FinishRate == want && c.FinishBy.Equal(by)
		}).Campaign("c")
	}
	first, second := rateOf(3600), rateOf(7200)
	if first.Revision >= second.Revision || second.Revision-second.Repaced != created.Revision || first.At(by).SetRevision() != created.Revision {
		t.Errorf("revision %d, then %d and %d of which %d by daemons", created.Revision, first.Revision, second.Revision, second.Repaced)
	}
	equal(t, "the rate without a finish_by", p.Snapshot().Campaign("other").FinishRate, delivery.Rate{})
	equal(t, "changes", len(try(a.Changes(ctx, ChangesOf{Campaign: "c", Limit: 10}))(t)), 1)
	shown := try(a.GetCampaign(ctx, "c"))(t)
	if shown.Revision != created.Revision || !shown.UpdatedAt.Equal(*created.UpdatedAt) {
		t.Errorf("shown is %+v", shown)
	}
	edited := try(a.WriteCampaign(ctx, "c", &CampaignChange{Burst: new(int64(3))}, Precondition{At: &created.Revision}))(t)
	if edited.Revision <= second.Revision {
		t.Errorf("%+v", edited)
	}
	rateOf(3600)
	refused(t, ErrStale, "was changed meanwhile")(a.WriteCampaign(ctx, "c", &CampaignChange{Burst: new(int64(4))}, Precondition{At: &created.Revision}))
	try(a.WriteCampaign(ctx, "c", &CampaignChange{FinishBy: new("")}, Precondition{At: &edited.Revision}))(t)
	await(t, p, changed, "none", func(s *delivery.Snapshot) bool {
		c := s.Campaign("c")
		return c.FinishBy.IsZero() && c.FinishRate.Zero() && c.Repaced == 0 && c.Burst == 3
	})
}

// TestSpreadingWaitsForNobody: a campaign that an operator is about to change is left for the next time.
func TestSpreadingWaitsForNobody(t *testing.T) {
	dsn, conn := fresh(t)
	p := started(t, Options{DSN: dsn})
	changed := p.Subscribe()
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate, finish_by) SELECT 'c' || n, 5, now() + interval '1 hour' FROM generate_series(1, 2) n`)
	run(t, conn, `BEGIN`)
	run(t, conn, `SELECT FROM pacer.campaigns WHERE id = 'c1' FOR UPDATE`)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	must(t, p.SpreadCampaigns(ctx, map[string]int64{"c1": 1_000_000, "c2": 1_000_000}))
	run(t, conn, `COMMIT`)
	s := await(t, p, changed, "the other", func(s *delivery.Snapshot) bool { return s.Campaign("c2") != nil && !s.Campaign("c2").FinishRate.Zero() })
	if !s.Campaign("c1").FinishRate.Zero() {
		t.Error("the row was not left out")
	}
}
