package catalog

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// TestAPauseEndsByItself: at the instant that its row says, with several daemons once, and no poll comes to help. The record of changes
// says who did it.
func TestAPauseEndsByItself(t *testing.T) {
	dsn, conn := fresh(t)
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('night'), ('ever')`)
	var daemons []*Postgres
	for range 3 {
		daemons = append(daemons, started(t, Options{DSN: dsn, PollInterval: time.Hour}))
	}
	p := daemons[0]
	changed := p.Subscribe()
	try(adminOver(p).SetStatus(t.Context(), "ever", delivery.StatusPaused, "", nil))(t)
	until := time.Now().Add(time.Second / 2).Truncate(time.Microsecond)
	row := try(adminOver(p).SetStatus(t.Context(), "night", delivery.StatusPaused, until.Format(time.RFC3339Nano), nil))(t)
	if row.Status != delivery.StatusPaused || row.PausedUntil != notation.Instant(&until) {
		t.Fatalf("%+v", row)
	}
	await(t, p, changed, "the pause", func(s *delivery.Snapshot) bool {
		c := s.Campaign("night")
		return c.Status == delivery.StatusPaused && c.PausedUntil.Equal(until)
	})
	await(t, p, changed, "its end", func(s *delivery.Snapshot) bool { return s.Campaign("night").Status == delivery.StatusActive })
	if time.Now().Before(until) {
		t.Error("it ended too early")
	}
	for _, d := range daemons {
		await(t, d, d.Subscribe(), "its end", func(s *delivery.Snapshot) bool {
			return s.Campaign("night").Status == delivery.StatusActive && s.Campaign("ever").Status == delivery.StatusPaused
		})
	}
	equal(t, "paused until", try(adminOver(p).GetCampaign(t.Context(), "night"))(t).PausedUntil, "")
	times := value[int](t, conn, `SELECT count(*) FROM pacer.campaign_changes
WHERE campaign_id = 'night' AND new ->> 'status' = 'active' AND old ->> 'status' = 'paused' AND actor = 'pacer' AND reason = 'its pause has ended'`)
	equal(t, "times it was ended", times, 1)
}

// TestAPauseThatSomebodyEnds has no end any more, and one that is begun anew has no other.
func TestAPauseThatSomebodyEnds(t *testing.T) {
	a, ctx := administered(t), t.Context()
	try(a.created(ctx, "spring", CampaignChange{}))(t)
	for name, end := range map[string]func() (CampaignRow, error){
		"resumed": func() (CampaignRow, error) {
			return a.SetStatus(ctx, "spring", delivery.StatusActive, "", nil)
		},
		"paused anew": func() (CampaignRow, error) {
			return a.SetStatus(ctx, "spring", delivery.StatusPaused, "", nil)
		},
		"set": func() (CampaignRow, error) {
			return a.edited(ctx, "spring", CampaignChange{Status: new(delivery.StatusActive)})
		},
		"of all of it": func() (CampaignRow, error) {
			try(a.ChangeCampaigns(ctx, []string{"spring"}, BulkChange{Action: "resume"}))(t)
			return a.GetCampaign(ctx, "spring")
		},
	} {
		if row := try(a.SetStatus(ctx, "spring", delivery.StatusPaused, "1h", nil))(t); row.PausedUntil == "" {
			t.Fatalf("%+v", row)
		}
		if row := try(end())(t); row.PausedUntil != "" {
			t.Errorf("%s: %+v", name, row)
		}
	}
}
