package catalog

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// CampaignRow is what people set of a campaign, as they write it, and what became of its jobs.
type CampaignRow struct {
	ID             string            `json:"id"`
	Revision       int64             `json:"revision"`
	Status         delivery.Status   `json:"status"`
	PausedUntil    string            `json:"paused_until,omitempty" doc:"when a pause ends by itself; empty for never"`
	Rate           string            `json:"rate"` // as notation.ParseRate reads it: 500, 150/1m, 1/1h
	Sink           string            `json:"sink"` // "" is the default sink
	Quotas         []string          `json:"quotas"`
	PriorityWeight int64             `json:"priority_weight"`
	Burst          int64             `json:"burst"`
	MaxInFlight    int64             `json:"max_in_flight"`
	Overflow       delivery.Overflow `json:"overflow"`
	StartsAt       string            `json:"starts_at"`
	EndsAt         string            `json:"ends_at"`
	ActiveHours    string            `json:"active_hours"`
	TimeZone       string            `json:"time_zone"`
	ZoneMissing    string            `json:"time_zone_missing"`
	AvoidMinutes   string            `json:"avoid_minutes"`
	Ramp           string            `json:"ramp"`
	JobTTL         string            `json:"job_ttl"`
	ExpectedTotal  int64             `json:"expected_total"`
	Note           string            `json:"note,omitempty"`
	FinishBy       string            `json:"finish_by,omitempty"`
	Late           string            `json:"late,omitempty" doc:"after a change: by how much it will miss its finish_by, and what is in the way"`

	RampSince *time.Time        `json:"ramp_since,omitempty" doc:"when the ramp was set"`
	UpdatedAt *time.Time        `json:"updated_at,omitempty"`
	Progress  *CampaignProgress `json:"progress,omitempty"`
	Fault     string            `json:"fault,omitempty" doc:"why its sink is none, as far as the process that answers knows"`
}

// Seen returns the revision of the campaign when it was read.
func (r *CampaignRow) Seen() int64 { return r.Revision }

// Outcomes counts jobs by how they ended.
type Outcomes struct {
	Delivered int64 `json:"delivered"`
	Rejected  int64 `json:"rejected"`
	Dead      int64 `json:"dead"`
	Expired   int64 `json:"expired"`
	Cancelled int64 `json:"cancelled"`
	Capped    int64 `json:"capped" doc:"that a keyed quota did not let wait any longer"`
}

// CampaignProgress is what became of a campaign's jobs, as last saved by the daemons: counts for people, not exact.
type CampaignProgress struct {
	Outcomes

	Backlog    int64      `json:"backlog" doc:"jobs that are not settled: in ingress, lanes, timers and memory"`
	Retrying   int64      `json:"retrying" doc:"of these, jobs that were tried before, or put off by their destination"`
	InFlight   int64      `json:"in_flight" doc:"of these, jobs that a sink was given and has not answered"`
	DoneAt     *time.Time `json:"done_at,omitempty" doc:"when the backlog will have been sent"`
	ETASeconds *float64   `json:"eta_seconds,omitempty" doc:"seconds until then"`
	Percent    *float64   `json:"percent,omitempty" doc:"settled jobs, of the expected total"`
	UpdatedAt  *time.Time `json:"updated_at,omitempty" doc:"when a daemon stored this; absent before the first time"`
}

// Settled is how many jobs are settled for good.
func (p *CampaignProgress) Settled() int64 {
	return p.Delivered + p.Dead + p.Expired + p.Cancelled + p.Rejected + p.Capped
}

// complete computes the derived fields at now.
func (p *CampaignProgress) complete(now time.Time, expected int64) {
	switch {
	case p.DoneAt != nil:
		done := *p.DoneAt
		if p.UpdatedAt != nil && done.Before(now) { // predicted to be done by now: assume as much left as then
			done = now.Add(done.Sub(*p.UpdatedAt))
		}
		eta := max(0, done.Sub(now).Seconds())
		p.DoneAt, p.ETASeconds = &done, &eta
	case p.UpdatedAt != nil && p.Backlog == 0 && expected == 0:
		p.ETASeconds = new(float64)
	}
	if expected > 0 {
		percent := min(100, 100*float64(p.Settled())/float64(expected))
		p.Percent = &percent
	}
}

// CampaignChange is a change of a campaign, as people write it; nil fields are kept, or get their defaults in a new one.
type CampaignChange struct {
	Rate           *string   `json:"rate,omitempty" maxLength:"64" pattern:"^ *[0-9]+([.][0-9]{0,6})?(/[0-9a-zµμ. ]+)? *$" patternDescription:"a rate such as 500, 2.5 or 150/m, not negative" example:"150/m" doc:"500, 2.5, 150/m, 1/h; 0 holds"`
	Sink           *string   `json:"sink,omitempty" maxLength:"256" doc:"name of a configured sink; empty for the default one"`
	Quotas         *[]string `json:"quotas,omitempty" maxItems:"64" doc:"all of them" nullable:"false"`
	PriorityWeight *int64    `json:"priority_weight,omitempty" minimum:"1" maximum:"1000000"`
	Burst          *int64    `json:"burst,omitempty" minimum:"0" maximum:"1000000"`
	MaxInFlight    *int64    `json:"max_in_flight,omitempty" minimum:"0" maximum:"2147483647" doc:"per daemon; 0 for no limit"`
	TimeZone       *string   `json:"time_zone,omitempty" maxLength:"64" example:"Europe/Moscow" doc:"of the active hours; recipient for that of each job"`
	ZoneMissing    *string   `json:"time_zone_missing,omitempty" maxLength:"64" example:"Europe/Moscow" doc:"with time_zone recipient: the zone of jobs that name none, or hold: they wait"`
	AvoidMinutes   *string   `json:"avoid_minutes,omitempty" maxLength:"256" example:"0,15,30,45" doc:"minutes of each hour; nothing is sent from two minutes before to two minutes after"`
	ExpectedTotal  *int64    `json:"expected_total,omitempty" minimum:"0" maximum:"1000000000000000" doc:"0 for unknown"`
	Note           *string   `json:"note,omitempty" maxLength:"500" example:"ask Anna before raising it" doc:"one line for people"`
	StartsAt       *string   `json:"starts_at,omitempty" maxLength:"64" example:"2026-11-30T09:00:00+03:00" doc:"RFC 3339, or 2026-11-30T09:00 in time_zone; empty for at once"`
	EndsAt         *string   `json:"ends_at,omitempty" maxLength:"64" example:"2036-11-30T09:00:00+03:00" doc:"RFC 3339, or 2036-11-30T09:00 in time_zone; empty for never"`
	FinishBy       *string   `json:"finish_by,omitempty" maxLength:"64" example:"18:00" doc:"18:00, 2036-12-01T18:00 in time_zone, or RFC 3339; empty for none"`
	ActiveHours    *string   `json:"active_hours,omitempty" maxLength:"4096" example:"mon-fri 09:00-21:00; sat 10:00-18:00" doc:"mon-fri 09:00-21:00; sat 10:00-18:00; empty for always"`
	Ramp           *string   `json:"ramp,omitempty" maxLength:"256" example:"start=10,factor=1.5,every=1h" doc:"start=10,factor=1.5,every=1h; empty for none"`
	Overflow       *string   `json:"overflow,omitempty" enum:"lane,block"`
	JobTTL         *string   `json:"job_ttl,omitempty" maxLength:"64" pattern:"^[0-9a-zµμ. ]*$" patternDescription:"a span such as 36h or 7d, or empty" example:"36h" doc:"36h, 7d; empty for none"`

	Status *delivery.Status `json:"-"`
}

// validate returns in one line what is wrong without a look at the row, in more readable words than those of the database.
func (c *CampaignChange) validate(id string) error {
	switch {
	case !delivery.ValidID(id):
		return invalid("campaign id %q %s", notation.Shorten(id), delivery.IDRule)
	case !delivery.ValidCampaign(id):
		return invalid("campaign id %s is reserved for jobs without a campaign; choose another", id)
	case c.Sink != nil && *c.Sink != "" && !delivery.ValidID(*c.Sink):
		return invalid("sink %q must be the name of a configured sink, or empty for the default one", notation.Shorten(*c.Sink))
	case c.MaxInFlight != nil && (*c.MaxInFlight < 0 || *c.MaxInFlight > 1<<31-1):
		return invalid("max_in_flight %d must lie between 0 (no limit) and 2147483647", *c.MaxInFlight)
	case c.Note != nil && !IsLine(*c.Note):
		return invalid("note must be one line of at most %d characters, without control characters", maxLine)
	}
	return c.validateQuotas()
}

// maxLine bounds, in characters, what people write about a row or a change of it.
const maxLine = 500

// IsLine reports whether a text is one line that can be shown, logged and recorded as it is.
func IsLine(text string) bool {
	return utf8.RuneCountInString(text) <= maxLine && utf8.ValidString(text) && !strings.ContainsFunc(text, unicode.IsControl)
}

// schedule sets the hours and the ramp. It checks what does not depend on the rest of the row; the database checks the rest.
func (c *CampaignChange) schedule(a *assignment) error {
	hours, err := setParsed(a, "active_hours", c.ActiveHours, notation.ParseHours)
	if err != nil {
		return err
	}
	avoid := strings.TrimSuffix(orZero(c.AvoidMinutes), "none")
	if c.AvoidMinutes != nil {
		a.set("avoid_minutes", nullable(avoid))
	}
	zone := "UTC"
	if c.TimeZone != nil && *c.TimeZone != delivery.ZoneRecipient {
		zone = *c.TimeZone
	}
	if missing := orZero(c.ZoneMissing); missing != "" && missing != delivery.ZoneHold {
		if _, err := notation.Zone(missing); err != nil {
			return invalid("time_zone_missing %q must be the name of a time zone such as Europe/Moscow, or hold", notation.Shorten(missing))
		}
	}
	if _, err := notation.DecodeHours(string(hours), zone, avoid); err != nil {
		return invalid("%s", err)
	}
	words, err := setParsed(a, "ramp", c.Ramp, notation.ParseRamp)
	if err != nil || len(words) == 0 {
		return err
	}
	ramp, err := notation.DecodeRamp(string(words), time.Second, time.Now())
	if err == nil {
		err = ramp.Validate(delivery.Rate{})
	}
	if err != nil {
		return invalid("%s", err)
	}
	return nil
}

func (c *CampaignChange) validateQuotas() error {
	if c.Quotas == nil {
		return nil
	}
	if len(*c.Quotas) > delivery.MaxQuotas {
		return invalid("quotas: at most %d per campaign; join several into one with more windows", delivery.MaxQuotas)
	}
	for _, quota := range *c.Quotas {
		if !delivery.ValidID(quota) {
			return invalid("quota id %q %s", notation.Shorten(quota), delivery.IDRule)
		}
	}
	return nil
}

// assignment is what a statement sets of a row; the id is always $1.
type assignment struct {
	columns []string
	values  []any
}

func assign(id string) *assignment { return &assignment{[]string{"id"}, []any{id}} }

func (a *assignment) set(column string, value any) {
	a.columns, a.values = append(a.columns, column), append(a.values, value)
}

// statement puts the names of the columns and their placeholders into a statement.
func (a *assignment) statement(format string) string {
	numbers := make([]string, len(a.columns))
	for i := range numbers {
		numbers[i] = "$" + strconv.Itoa(i+1)
	}
	return fmt.Sprintf(format, strings.Join(a.columns, ", "), strings.Join(numbers, ", "))
}

// setIf sets a column if there is a value, converted to its database form.
func setIf[T, V any](a *assignment, column string, value *T, as func(T) V) {
	if value != nil {
		a.set(column, as(*value))
	}
}

// setParsed sets a column to what a text is read as, if there is one, and returns that.
func setParsed[V any](a *assignment, column string, text *string, parse func(string) (V, error)) (value V, err error) {
	if text == nil {
		return value, nil
	}
	if value, err = parse(*text); err != nil {
		return value, invalid("%s: %s", column, err)
	}
	a.set(column, value)
	return value, nil
}

// assignment returns what the change sets, with times of a zone, or in one line what is wrong with it.
func (c *CampaignChange) assignment(id string, zone *time.Location) (*assignment, error) {
	if err := c.validate(id); err != nil {
		return nil, err
	}
	a := assign(id)
	if c.Rate != nil {
		units, per, err := notation.ParseRate(*c.Rate)
		if err != nil {
			return nil, invalid("%s", err)
		}
		a.set("send_rate", notation.FormatMicros(units))
		a.set("send_per", per)
	}
	at := func(text string) (*time.Time, error) {
		if text == "" || text == "none" {
			return nil, nil
		}
		at, err := notation.ParseTimeIn(text, zone, time.Now())
		return &at, err
	}
	for _, time := range []struct {
		column string
		text   *string
	}{{"starts_at", c.StartsAt}, {"ends_at", c.EndsAt}, {"finish_by", c.FinishBy}} {
		if _, err := setParsed(a, time.column, time.text, at); err != nil {
			return nil, err
		}
	}
	if _, err := setParsed(a, "job_ttl", c.JobTTL, func(text string) (*time.Duration, error) {
		ttl, err := notation.ParseSpan(cmp.Or(text, "0s"))
		return nullable(ttl), err
	}); err != nil {
		return nil, err
	}
	if err := c.schedule(a); err != nil {
		return nil, err
	}
	setIf(a, "sink", c.Sink, nullable)
	setIf(a, "expected_total", c.ExpectedTotal, nullable)
	setIf(a, "note", c.Note, asIs)
	setIf(a, "burst", c.Burst, asIs)
	setIf(a, "status", c.Status, asIs)
	setIf(a, "priority_weight", c.PriorityWeight, asIs)
	setIf(a, "max_in_flight", c.MaxInFlight, asIs)
	setIf(a, "overflow", c.Overflow, asIs)
	setIf(a, "time_zone", c.TimeZone, asIs)
	setIf(a, "time_zone_missing", c.ZoneMissing, nullable)
	return a, nil
}

func asIs[T any](v T) T { return v }

// nullable returns v, or null for the zero value.
func nullable[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func oneCampaign(ctx context.Context, q querier, id string) (CampaignRow, error) {
	campaigns, err := queryCampaigns(ctx, q, `WHERE c.id = $1`, id)
	return only(campaigns, err, UnknownCampaign(id))
}

func queryCampaigns(ctx context.Context, q querier, clause string, args ...any) ([]CampaignRow, error) {
	rows, err := q.Query(ctx, `
SELECT c.id, trim_scale(c.send_rate)::text, c.burst, c.status, coalesce(c.sink, ''), c.priority_weight, c.max_in_flight,
       c.active_hours, c.time_zone, coalesce(c.time_zone_missing, ''), coalesce(c.avoid_minutes, ''), c.ramp, c.overflow, coalesce(c.expected_total, 0), c.note,
       ARRAY(SELECT l.quota_id FROM pacer.campaign_quotas l WHERE l.campaign_id = c.id ORDER BY l.quota_id COLLATE "C"),
       coalesce(c.set_revision, c.revision), c.updated_at, `+campaignTimes+`,
       coalesce(g.delivered, 0), greatest(0, g.dead), greatest(0, g.expired), coalesce(g.cancelled, 0), coalesce(g.rejected, 0), coalesce(g.capped, 0),
       coalesce(g.backlog, 0), coalesce(g.retrying, 0), coalesce(g.in_flight, 0), g.done_at, g.updated_at
FROM pacer.campaigns c LEFT JOIN pacer.campaign_progress g ON g.campaign_id = c.id `+clause, args...)
	if err != nil {
		return nil, fmt.Errorf("read campaigns: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (CampaignRow, error) {
		c := CampaignRow{Progress: &CampaignProgress{}}
		var units string
		var per, ttl int64
		var hours, ramp json.RawMessage
		var starts, ends, paused, finish *time.Time
		p := c.Progress
		err := row.Scan(&c.ID, &units, &c.Burst, &c.Status, &c.Sink, &c.PriorityWeight, &c.MaxInFlight,
			&hours, &c.TimeZone, &c.ZoneMissing, &c.AvoidMinutes, &ramp, &c.Overflow, &c.ExpectedTotal, &c.Note, &c.Quotas,
			&c.Revision, &c.UpdatedAt, &per, &ttl, &starts, &ends, &c.RampSince, &paused, &finish,
			&p.Delivered, &p.Dead, &p.Expired, &p.Cancelled, &p.Rejected, &p.Capped, &p.Backlog, &p.Retrying, &p.InFlight, &p.DoneAt, &p.UpdatedAt)
		p.complete(time.Now(), c.ExpectedTotal)
		c.Rate = formatRate(units, per)
		c.StartsAt, c.EndsAt, c.PausedUntil, c.FinishBy = notation.Instant(starts), notation.Instant(ends), notation.Instant(paused), notation.Instant(finish)
		if hours != nil {
			c.ActiveHours = notation.FormatHours(hours)
		}
		if ramp != nil {
			c.Ramp = notation.FormatRamp(ramp)
		}
		if ttl != 0 {
			c.JobTTL = notation.FormatSpan(micros(ttl))
		}
		return c, err
	})
}

// formatRate formats units per a number of microseconds, as notation.ParseRate reads it: 500, 150/1m, 1/1h.
func formatRate(units string, per int64) string {
	if span := notation.FormatSpan(micros(per)); span != "1s" {
		return units + "/" + span
	}
	return units
}
