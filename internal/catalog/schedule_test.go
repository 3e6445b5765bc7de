package catalog

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/pacer/pacer/internal/delivery"
)

// TestSchedulesReachSnapshots: the columns arrive as what delivery keeps, and go again.
func TestSchedulesReachSnapshots(t *testing.T) {
	dsn, conn := fresh(t)
	p := started(t, Options{DSN: dsn})
	changed := p.Subscribe()
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate, send_per, time_zone, active_hours, ramp) VALUES ('spring', 600, '1 minute',
'Europe/Moscow', '[{"days": ["sun", "sat"], "from": "22:00", "to": "02:00"}]', '{"start": 60, "add": 0.5, "every": "2 hours"}')`)
	s := await(t, p, changed, "the campaign", func(s *delivery.Snapshot) bool { return s.Campaign("spring") != nil })
	c := s.Campaign("spring")
	want := delivery.Ramp{Start: 60_000_000, Add: 500_000, Per: time.Minute, Every: 2 * time.Hour, Since: c.Ramp.Since}
	if c.Invalid != "" || *c.Ramp != want || time.Since(c.Ramp.Since).Abs() > time.Minute {
		t.Errorf("%q, %+v", c.Invalid, c.Ramp)
	}
	for at, active := range map[string]bool{
		"2026-11-21T18:59:59Z": false, "2026-11-21T19:00:00Z": true, "2026-11-22T22:59:59Z": true, "2026-11-22T23:00:00Z": false,
	} {
		equal(t, "active at "+at, c.Active(try(time.Parse(time.RFC3339, at))(t)), active)
	}
	if rate, step, _ := c.RateAt(c.Ramp.Since.Add(5 * time.Hour)); step != 2 || rate.String() != "1.0166666666666666/s" {
		t.Errorf("%s at step %d", rate, step)
	}
	run(t, conn, `UPDATE pacer.campaigns SET active_hours = '[]', ramp = 'null' WHERE id = 'spring'`)
	await(t, p, changed, "the schedule is gone", func(s *delivery.Snapshot) bool {
		return s.Campaign("spring").Ramp == nil && s.Campaign("spring").Hours == nil
	})
}

// TestRampSince: a ramp begins when it is set or changed, or when it is told to, and at no other time.
func TestRampSince(t *testing.T) {
	_, conn := fresh(t)
	since := func() *time.Time {
		return value[*time.Time](t, conn, `SELECT ramp_since FROM pacer.campaigns WHERE id = 'c'`)
	}
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate) VALUES ('c', 100)`)
	last := time.Now().Add(-day)
	for _, step := range []struct {
		set    string
		begins bool
	}{
		{`ramp = '{"start": 1, "add": 1, "every": "1 minute"}'`, true},
		{`ramp = '{"every": "1 minute", "add": 1.0, "start": 1}'`, false},
		{`send_rate = 200`, false},
		{`status = 'paused'`, false},
		{`status = 'active', active_hours = '[{"from": "09:00", "to": "21:00"}]'`, false},
		{`ramp = '{"start": 1, "add": 2, "every": "1 minute"}'`, true},
		{`ramp_since = null`, true},
		{`ramp_since = clock_timestamp()`, true},
	} {
		run(t, conn, `UPDATE pacer.campaigns SET `+step.set+` WHERE id = 'c'`)
		now := since()
		if now.After(last) != step.begins {
			t.Errorf("%s: begins at %s, before at %s", step.set, now, last)
		}
		last = *now
	}
	run(t, conn, `UPDATE pacer.campaigns SET ramp = null`)
	equal(t, "begin without a ramp", since(), nil)
	run(t, conn, `UPDATE pacer.campaigns SET ramp = '{"start": 1, "add": 2, "every": "1 minute"}'`)
	if now := since(); !now.After(last) {
		t.Errorf("begins at %s, before at %s", now, last)
	}
	run(t, conn, `UPDATE pacer.campaigns SET ramp = '{"start": 5, "add": 2, "every": "1 minute"}', ramp_since = '2026-01-01T00:00:00Z'`)
	run(t, conn, `INSERT INTO pacer.campaigns (id, send_rate, ramp, ramp_since)
VALUES ('d', 5, '{"start": 5, "add": 2, "every": "1 minute"}', '2026-01-01T00:00:00Z')`)
	said := value[int](t, conn, `SELECT count(*) FROM pacer.campaigns WHERE ramp_since = '2026-01-01T00:00:00Z'`)
	equal(t, "ramps that begin when they were said to", said, 2)
}

// TestARampThatLeadsNowhereHoldsItsCampaign, also if no trigger has refused it.
func TestARampThatLeadsNowhereHoldsItsCampaign(t *testing.T) {
	t.Parallel()
	m := NewMemory()
	ramp := &delivery.Ramp{Start: 1_000_000, Add: 1_000_000, Per: time.Second, Every: time.Minute, Since: time.Now()}
	m.PutCampaign(delivery.Campaign{ID: "c", Rate: delivery.PerSecond(100), Ramp: ramp})
	for _, rate := range []int64{100_000, 50} {
		m.ChangeCampaign("c", func(c *delivery.Campaign) { c.Rate = delivery.PerSecond(rate) })
		if c := m.Snapshot().Campaign("c"); strings.Contains(c.Invalid, "10000 steps") != (rate > 50) {
			t.Errorf("%+v", c)
		}
	}
}

// TestAdminSchedules: what the commands set is what daemons read.
func TestAdminSchedules(t *testing.T) {
	dsn, _ := fresh(t)
	p, ctx := unstarted(t, Options{DSN: dsn}), t.Context()
	a := adminOver(p)
	hours, ramp := "mon-fri 09:00-21:00", "start=10,factor=1.5,every=1m"
	row := try(a.created(ctx, "c", CampaignChange{Rate: new("100/m"), ActiveHours: &hours, TimeZone: new("Europe/Moscow"), Ramp: &ramp}))(t)
	c := loaded(t, p, true).Campaign("c")
	if row.ActiveHours != hours || row.Ramp != ramp ||
		c.Invalid != "" || c.Ramp.Per != time.Minute || c.Hours == nil || c.Rate.String() != "1.6666666666666667/s" {
		t.Errorf("%+v, %+v", row, c)
	}
	try(a.edited(ctx, "c", CampaignChange{Rate: new("900000")}))(t)
	refused(t, ErrInvalid, "10000 steps")(a.edited(ctx, "c", CampaignChange{Ramp: new("start=10,add=5,every=1m")}))
	row = try(a.edited(ctx, "c", CampaignChange{ActiveHours: new(""), Ramp: new("none")}))(t)
	if row.ActiveHours != "" || row.Ramp != "" || row.RampSince != nil || row.TimeZone != "Europe/Moscow" {
		t.Errorf("%+v", row)
	}
}

// TestTimesAreOfTheCampaignsZone: of that of the change, or else of the row's; without either, UTC.
func TestTimesAreOfTheCampaignsZone(t *testing.T) {
	a, ctx := administered(t), t.Context()
	const local = "2036-11-30T09:00"
	row := try(a.created(ctx, "c", CampaignChange{StartsAt: new(local)}))(t)
	equal(t, "of a new one", row.StartsAt, "2036-11-30T09:00:00Z")
	row = try(a.edited(ctx, "c", CampaignChange{StartsAt: new(local), TimeZone: new("Europe/Moscow")}))(t)
	equal(t, "with a zone", row.StartsAt, "2036-11-30T06:00:00Z")
	try(a.edited(ctx, "c", CampaignChange{TimeZone: new("Asia/Tokyo")}))(t)
	row = try(a.edited(ctx, "c", CampaignChange{StartsAt: new(local)}))(t)
	equal(t, "in the row's zone", row.StartsAt, "2036-11-30T00:00:00Z")
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := a.zoneOf(ended, "c", &CampaignChange{EndsAt: new(local)}); err == nil { // UTC would be another time
		t.Error("the zone of a row that cannot be read is known")
	}
}

// TestRecipientsZones: the columns arrive as hours of each recipient and minutes of the receiving service.
func TestRecipientsZones(t *testing.T) {
	dsn, _ := fresh(t)
	p, ctx := unstarted(t, Options{DSN: dsn}), t.Context()
	a := adminOver(p)
	change := CampaignChange{Rate: new("100"), ActiveHours: new("10:00-20:00"), TimeZone: new(delivery.ZoneRecipient), AvoidMinutes: new("0,30")}
	refused(t, ErrInvalid, "time_zone_missing is needed")(a.created(ctx, "c", change))
	change.ZoneMissing = new("Europe/Moscow")
	row := try(a.created(ctx, "c", change))(t)
	moscow := loaded(t, p, true).Campaign("c")
	if moscow.Invalid != "" || moscow.Local == nil || moscow.Hours == nil || moscow.Zone.String() != "Europe/Moscow" || row.AvoidMinutes != "0,30" {
		t.Fatalf("%+v, %+v", row, moscow)
	}
	noon := time.Date(2026, 11, 20, 12, 30, 0, 0, time.UTC)
	if moscow.Active(noon) || !moscow.Active(noon.Add(5*time.Minute)) || !moscow.Active(noon.Add(10*time.Hour+5*time.Minute)) {
		t.Error("the campaign itself is closed near the minutes to avoid, and at no other time")
	}
	try(a.edited(ctx, "c", CampaignChange{ZoneMissing: new(delivery.ZoneHold), AvoidMinutes: new("")}))(t)
	if hold := loaded(t, p, true).Campaign("c"); hold.Zone != nil || hold.Local == nil || hold.Hours != nil {
		t.Errorf("%+v", hold)
	}
	try(a.edited(ctx, "c", CampaignChange{TimeZone: new("Asia/Tokyo")}))(t)
	if tokyo := loaded(t, p, true).Campaign("c"); tokyo.Local != nil || tokyo.Hours == nil || tokyo.Zone.String() != "Asia/Tokyo" {
		t.Errorf("%+v", tokyo)
	}
	windows := []string{"3/1d:fixed:day@recipient"}
	refused(t, ErrInvalid, "in a quota with per also")(a.quota(ctx, "all", QuotaChange{Windows: &windows}))
	try(a.quota(ctx, "cap", QuotaChange{Per: new("to"), Windows: &windows}))(t)
	try(a.quota(ctx, "cap", QuotaChange{Windows: &windows}))(t)
}
