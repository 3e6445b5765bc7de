package catalog

import (
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestAPauseEndsByItself: at the instant that its row says, with several daemons once, and no poll comes to help. The record of changes
// says who did it.
func TestAPauseEndsByItself(t *testing.T) {
	t.Parallel()
	dsn := migrated(t)
	conn := connected(t, dsn)
	run(t, conn, `INSERT INTO pacer.campaigns (id) VALUES ('night'), ('ever')`)
	var daemons []*Postgres
	for range 3 {
		daemons = append(daemons, started(t, Options{DSN: dsn, PollInterval: time.Hour}))
	}
	p := daemons[0]
	changed := p.Subscribe()
	if _, err := p.Admin().SetStatus(t.Context(), "ever", delivery.StatusPaused); err != nil {
		t.Fatal(err)
	}
	until := time.Now().Add(time.Second / 2).Truncate(time.Microsecond)
	row, err := p.Admin().SetStatusAt(t.Context(), "night", CampaignChange{Status: new(delivery.StatusPaused), PausedUntil: &until})
	if err != nil || row.Status != delivery.StatusPaused || row.PausedUntil == nil || !row.PausedUntil.Equal(until) {
		t.Fatalf("%+v, %v", row, err)
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
	if row, err = p.Admin().GetCampaign(t.Context(), "night"); err != nil || row.PausedUntil != nil {
		t.Errorf("%+v, %v", row, err)
	}
	var times int
	err = conn.QueryRow(t.Context(), `SELECT count(*) FROM pacer.campaign_changes
WHERE campaign_id = 'night' AND new ->> 'status' = 'active' AND old ->> 'status' = 'paused' AND actor = 'pacer' AND reason = 'its pause has ended'`).Scan(&times)
	if err != nil || times != 1 {
		t.Errorf("it was ended %d times, %v", times, err)
	}
}

// TestAPauseThatSomebodyEnds has no end any more, and one that is begun anew has no other.
func TestAPauseThatSomebodyEnds(t *testing.T) {
	t.Parallel()
	a, ctx := administered(t), t.Context()
	if _, err := a.CreateCampaign(ctx, "spring", CampaignChange{}); err != nil {
		t.Fatal(err)
	}
	pause := func() {
		t.Helper()
		if row, err := a.SetStatusAt(ctx, "spring", CampaignChange{Status: new(delivery.StatusPaused), PausedUntil: new(time.Now().Add(time.Hour))}); err != nil || row.PausedUntil == nil {
			t.Fatalf("%+v, %v", row, err)
		}
	}
	for name, end := range map[string]func() (CampaignRow, error){
		"resumed":     func() (CampaignRow, error) { return a.SetStatus(ctx, "spring", delivery.StatusActive) },
		"paused anew": func() (CampaignRow, error) { return a.SetStatus(ctx, "spring", delivery.StatusPaused) },
		"set": func() (CampaignRow, error) {
			return a.SetCampaign(ctx, "spring", CampaignChange{Status: new(delivery.StatusActive)})
		},
		"in passing": func() (CampaignRow, error) {
			return a.SetStatusAt(ctx, "spring", CampaignChange{Status: new(delivery.StatusActive)})
		},
		"of all of it": func() (CampaignRow, error) {
			_, err := a.ChangeCampaigns(ctx, []string{"spring"}, BulkChange{Status: delivery.StatusActive})
			if err != nil {
				return CampaignRow{}, err
			}
			return a.GetCampaign(ctx, "spring")
		},
	} {
		pause()
		if row, err := end(); err != nil || row.PausedUntil != nil {
			t.Errorf("%s: %+v, %v", name, row, err)
		}
	}
}
