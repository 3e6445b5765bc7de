package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/pacer/pacer/internal/delivery"
)

// CampaignRow is a campaign as people see it: numbers as they were written, lengths of time in words.
type CampaignRow struct {
	ID             string            `json:"id"`
	SendRate       string            `json:"send_rate"` // units per SendPer, without trailing zeros
	SendPer        string            `json:"send_per"`
	Burst          int64             `json:"burst"`
	Status         delivery.Status   `json:"status"`
	Sink           string            `json:"sink"` // "" is the default sink
	PriorityWeight int64             `json:"priority_weight"`
	MaxInFlight    int64             `json:"max_in_flight"`
	StartsAt       *time.Time        `json:"starts_at,omitempty"`
	EndsAt         *time.Time        `json:"ends_at,omitempty"`
	ActiveHours    json.RawMessage   `json:"active_hours,omitempty"`
	TimeZone       string            `json:"time_zone"`
	Ramp           json.RawMessage   `json:"ramp,omitempty"`
	RampSince      *time.Time        `json:"ramp_since,omitempty"`
	Overflow       delivery.Overflow `json:"overflow"`
	JobTTL         string            `json:"job_ttl,omitempty"`
	ExpectedTotal  *int64            `json:"expected_total,omitempty"`
	Quotas         []string          `json:"quotas"`
	Lane           *int              `json:"lane,omitempty"`
	Revision       int64             `json:"revision"`
	UpdatedAt      time.Time         `json:"updated_at"`
	Progress       CampaignProgress  `json:"progress"`
}

// CampaignProgress is how far a campaign has come, as the daemons said last.
type CampaignProgress struct {
	Delivered  int64      `json:"delivered"`
	Dead       int64      `json:"dead"`
	Expired    int64      `json:"expired"`
	Cancelled  int64      `json:"cancelled"`
	Backlog    int64      `json:"backlog"`
	DoneAt     *time.Time `json:"done_at,omitempty"`     // when all will have been sent; nil: unknown
	ETASeconds *float64   `json:"eta_seconds,omitempty"` // until then; nil: unknown
	Percent    *float64   `json:"percent,omitempty"`     // settled for good of what is expected; nil: nothing is said
	UpdatedAt  *time.Time `json:"updated_at,omitempty"`  // nil: nothing was said yet
}

// complete works out what follows from the rest at now.
func (p *CampaignProgress) complete(now time.Time, expected *int64) {
	switch {
	case p.DoneAt != nil:
		done := *p.DoneAt
		if p.UpdatedAt != nil && done.Before(now) { // there was work left when it was foreseen: as much as then, for all we know
			done = now.Add(done.Sub(*p.UpdatedAt))
		}
		eta := max(0, done.Sub(now).Seconds())
		p.DoneAt, p.ETASeconds = &done, &eta
	case p.UpdatedAt != nil && p.Backlog == 0 && expected == nil:
		p.ETASeconds = new(float64)
	}
	if expected != nil && *expected > 0 {
		percent := 100 * float64(p.Delivered+p.Dead+p.Expired+p.Cancelled) / float64(*expected)
		p.Percent = &percent
	}
}

// Rate spells the rate as ParseRate reads it: 500, 150/1m, 1/1h.
func (r CampaignRow) Rate() string {
	if r.SendPer == "1s" {
		return r.SendRate
	}
	return r.SendRate + "/" + r.SendPer
}

// Campaign is the row as daemons read it, without its quotas and its lane.
func (r CampaignRow) Campaign() *delivery.Campaign {
	per, _ := ParseSpan(r.SendPer) // one that cannot be read makes no rate, and the campaign says so
	record := campaignRecord{
		id: r.ID, rate: r.SendRate, status: string(r.Status), sink: r.Sink, overflow: string(r.Overflow), revision: r.Revision,
		per: per.Microseconds(), burst: r.Burst, weight: r.PriorityWeight, inFlight: r.MaxInFlight, startsAt: r.StartsAt,
		endsAt: r.EndsAt, rampSince: r.RampSince, hours: text(r.ActiveHours), ramp: text(r.Ramp), zone: r.TimeZone,
	}
	return newState().build(r.ID, record.entry())
}

// text is JSON as a record holds it.
func text(raw json.RawMessage) *string { return nullable(string(raw)) }

// CampaignChange says what to change about a campaign; nil fields stay as they are.
type CampaignChange struct {
	Rate           *string // 500, 2.5, 150/m, 1/h; sets send_rate and send_per
	Burst          *int64
	Status         *delivery.Status
	Sink           *string // "" for the default sink
	PriorityWeight *int64
	MaxInFlight    *int64           // 0 for no limit
	StartsAt       *time.Time       // the zero time for none
	EndsAt         *time.Time       // the zero time for none
	ActiveHours    *json.RawMessage // as ParseHoursWords makes it; nil for always
	TimeZone       *string
	Ramp           *json.RawMessage // as ParseRampWords makes it; nil for none
	Overflow       *delivery.Overflow
	JobTTL         *time.Duration // 0 for none
	ExpectedTotal  *int64         // 0 for unknown
	Quotas         *[]string      // replaces all
}

// validate refuses in one line what the database would refuse, and more readably.
func (c CampaignChange) validate(id string) error {
	switch {
	case !delivery.ValidID(id):
		return invalid("campaign id %q must be 1 to 256 printable ASCII characters without spaces", shorten(id))
	case c.Status != nil && !validStatus(*c.Status):
		return invalid("status %q must be active, paused, cancelled or completed", shorten(string(*c.Status)))
	case c.Overflow != nil && !validOverflow(*c.Overflow):
		return invalid("overflow %q must be lane or block", shorten(string(*c.Overflow)))
	case c.Sink != nil && *c.Sink != "" && !delivery.ValidID(*c.Sink):
		return invalid("sink %q must be the name of a configured sink, or empty for the default one", shorten(*c.Sink))
	case c.Burst != nil && (*c.Burst < 0 || *c.Burst > 1_000_000):
		return invalid("burst %d must lie between 0 (none) and 1000000", *c.Burst)
	case c.PriorityWeight != nil && (*c.PriorityWeight < 1 || *c.PriorityWeight > 1_000_000):
		return invalid("priority_weight %d must lie between 1 and 1000000", *c.PriorityWeight)
	case c.MaxInFlight != nil && (*c.MaxInFlight < 0 || *c.MaxInFlight > 1<<31-1):
		return invalid("max_in_flight %d must lie between 0 (no limit) and 2147483647", *c.MaxInFlight)
	case c.ExpectedTotal != nil && *c.ExpectedTotal < 0:
		return invalid("expected_total %d must not be negative; 0 is unknown", *c.ExpectedTotal)
	case c.JobTTL != nil && *c.JobTTL != 0 && (*c.JobTTL < time.Millisecond || *c.JobTTL > maxSpan):
		return invalid("job_ttl %s must lie between 1ms and 366d; 0 is none", *c.JobTTL)
	case c.StartsAt != nil && c.EndsAt != nil && !c.EndsAt.IsZero() && !c.EndsAt.After(*c.StartsAt):
		return invalid("ends_at must be later than starts_at")
	}
	if c.Rate != nil {
		if _, _, err := delivery.ParseRate(*c.Rate); err != nil {
			return invalid("%s", err)
		}
	}
	if err := c.validateSchedule(); err != nil {
		return invalid("%s", err)
	}
	return c.validateQuotas()
}

// validateSchedule looks at what can be judged without the rest of the row; the database sees to that.
func (c CampaignChange) validateSchedule() error {
	zone := "UTC"
	if c.TimeZone != nil {
		zone = *c.TimeZone
	}
	if _, err := loadZone(zone); err != nil {
		return err
	}
	if c.ActiveHours != nil && len(*c.ActiveHours) > 0 {
		if _, err := parseHours(string(*c.ActiveHours), zone); err != nil {
			return err
		}
	}
	if c.Ramp == nil || len(*c.Ramp) == 0 {
		return nil
	}
	ramp, err := parseRamp(string(*c.Ramp), time.Second, time.Now())
	if err != nil {
		return err
	}
	return ramp.Validate(delivery.Rate{})
}

func (c CampaignChange) validateQuotas() error {
	if c.Quotas == nil {
		return nil
	}
	if len(*c.Quotas) > maxQuotas {
		return invalid("quotas: at most %d per campaign; join several into one with more windows", maxQuotas)
	}
	for _, quota := range *c.Quotas {
		if !delivery.ValidID(quota) {
			return invalid("quota id %q must be 1 to 256 printable ASCII characters without spaces", shorten(quota))
		}
	}
	return nil
}

// assignments returns the names of the columns to set, their places and their values; the id is always $1.
func (c CampaignChange) assignments(id string) (names, places string, values []any) {
	columns := []string{"id"}
	values = []any{id}
	set := func(column string, value any) {
		columns = append(columns, column)
		values = append(values, value)
	}
	if c.Rate != nil {
		if units, per, err := delivery.ParseRate(*c.Rate); err == nil { // validate has seen to it
			set("send_rate", formatMicros(units))
			set("send_per", per)
		}
	}
	if c.Sink != nil {
		set("sink", nullable(*c.Sink))
	}
	if c.StartsAt != nil {
		set("starts_at", instant(*c.StartsAt))
	}
	if c.EndsAt != nil {
		set("ends_at", instant(*c.EndsAt))
	}
	if c.ActiveHours != nil {
		set("active_hours", text(*c.ActiveHours))
	}
	if c.Ramp != nil {
		set("ramp", text(*c.Ramp))
	}
	if c.JobTTL != nil {
		set("job_ttl", nullable(*c.JobTTL))
	}
	if c.ExpectedTotal != nil {
		set("expected_total", nullable(*c.ExpectedTotal))
	}
	setIf(set, "burst", c.Burst)
	setIf(set, "status", c.Status)
	setIf(set, "priority_weight", c.PriorityWeight)
	setIf(set, "max_in_flight", c.MaxInFlight)
	setIf(set, "overflow", c.Overflow)
	setIf(set, "time_zone", c.TimeZone)
	numbers := make([]string, len(columns))
	for i := range numbers {
		numbers[i] = "$" + strconv.Itoa(i+1)
	}
	return strings.Join(columns, ", "), strings.Join(numbers, ", "), values
}

// setIf sets a column if there is a value.
func setIf[T any](set func(string, any), column string, value *T) {
	if value != nil {
		set(column, *value)
	}
}

// nullable is v, or null for the zero value.
func nullable[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// rowsQuerier is what the reading side of Admin needs of a pool or a transaction.
type rowsQuerier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func oneCampaign(ctx context.Context, q rowsQuerier, id string) (CampaignRow, error) {
	campaigns, err := queryCampaigns(ctx, q, `WHERE c.id = $1`, id)
	if err != nil {
		return CampaignRow{}, err
	}
	if len(campaigns) == 0 {
		return CampaignRow{}, unknownCampaign(id)
	}
	return campaigns[0], nil
}

func queryCampaigns(ctx context.Context, q rowsQuerier, clause string, args ...any) ([]CampaignRow, error) {
	rows, err := q.Query(ctx, `
SELECT c.id, trim_scale(c.send_rate)::text, (extract(epoch FROM c.send_per) * 1000000)::bigint, c.burst, c.status,
       coalesce(c.sink, ''), c.priority_weight, c.max_in_flight, c.starts_at, c.ends_at,
       c.active_hours::text, c.time_zone, c.ramp::text, c.ramp_since, c.overflow,
       (extract(epoch FROM c.job_ttl) * 1000000)::bigint, c.expected_total,
       ARRAY(SELECT l.quota_id FROM pacer.campaign_quotas l WHERE l.campaign_id = c.id ORDER BY l.quota_id COLLATE "C"),
       p.lane, c.revision, c.updated_at,
       coalesce(g.delivered, 0), coalesce(g.dead, 0), coalesce(g.expired, 0), coalesce(g.cancelled, 0), coalesce(g.backlog, 0),
       g.done_at, g.updated_at
FROM pacer.campaigns c LEFT JOIN pacer.lane_pins p ON p.campaign_id = c.id
LEFT JOIN pacer.campaign_progress g ON g.campaign_id = c.id `+clause, args...)
	if err != nil {
		return nil, fmt.Errorf("read campaigns: %w", err)
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (CampaignRow, error) {
		var c CampaignRow
		var per int64
		var ttl *int64
		var hours, ramp *string
		err := row.Scan(&c.ID, &c.SendRate, &per, &c.Burst, &c.Status, &c.Sink, &c.PriorityWeight, &c.MaxInFlight,
			&c.StartsAt, &c.EndsAt, &hours, &c.TimeZone, &ramp, &c.RampSince, &c.Overflow, &ttl, &c.ExpectedTotal, &c.Quotas,
			&c.Lane, &c.Revision, &c.UpdatedAt, &c.Progress.Delivered, &c.Progress.Dead, &c.Progress.Expired,
			&c.Progress.Cancelled, &c.Progress.Backlog, &c.Progress.DoneAt, &c.Progress.UpdatedAt)
		c.Progress.complete(time.Now(), c.ExpectedTotal)
		c.ActiveHours, c.Ramp = compact(hours), compact(ramp)
		c.SendPer = FormatSpan(micros(per))
		if ttl != nil {
			c.JobTTL = FormatSpan(micros(*ttl))
		}
		return c, err
	})
}

// shorten keeps what is repeated in a message within a line.
func shorten(s string) string {
	const most = 64
	if len(s) > most {
		return s[:most] + "..."
	}
	return s
}
