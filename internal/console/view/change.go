package view

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
)

// CheckReason returns catalog.ErrInvalid unless the text is one line that can be shown, logged and recorded as it is.
func CheckReason(name, text string) error {
	if !catalog.IsLine(text) {
		return Fault(catalog.ErrInvalid, "%s: give one line of at most 500 characters, without control characters", name)
	}
	return nil
}

// By returns a context whose changes are recorded as those of who asks, for a reason. The error is that of CheckReason.
func By(ctx context.Context, reason string) (context.Context, error) {
	who := auth.Of(ctx)
	return catalog.WithActor(ctx, catalog.Actor{Name: who.Actor(), Reason: reason, RequestID: who.Request}), CheckReason("reason", reason)
}

// Settings are what people set of a campaign, as they write it.
type Settings struct {
	ID             string   `json:"id"`
	Revision       int64    `json:"revision"`
	Status         string   `json:"status"`
	PausedUntil    string   `json:"paused_until,omitempty" doc:"when a pause ends by itself; empty for never"`
	Rate           string   `json:"rate"`
	Sink           string   `json:"sink"`
	Quotas         []string `json:"quotas"`
	PriorityWeight int64    `json:"priority_weight"`
	Burst          int64    `json:"burst"`
	MaxInFlight    int64    `json:"max_in_flight"`
	Overflow       string   `json:"overflow"`
	StartsAt       string   `json:"starts_at"`
	EndsAt         string   `json:"ends_at"`
	ActiveHours    string   `json:"active_hours"`
	TimeZone       string   `json:"time_zone"`
	ZoneMissing    string   `json:"time_zone_missing"`
	AvoidMinutes   string   `json:"avoid_minutes"`
	Ramp           string   `json:"ramp"`
	JobTTL         string   `json:"job_ttl"`
	ExpectedTotal  int64    `json:"expected_total"`
	Note           string   `json:"note,omitempty"`
	FinishBy       string   `json:"finish_by,omitempty"`
	Late           string   `json:"late,omitempty" doc:"after a change: by how much it will miss its finish_by, and what is in the way"`

	RampSince *time.Time                `json:"ramp_since,omitempty" doc:"when the ramp was set"`
	UpdatedAt *time.Time                `json:"updated_at,omitempty"`
	Progress  *catalog.CampaignProgress `json:"progress,omitempty"`
	Fault     string                    `json:"fault,omitempty" doc:"why its sink is none, as far as the process that answers knows"`
}

// Seen returns the revision of the campaign when it was read.
func (s *Settings) Seen() int64 { return s.Revision }

// Edit is a change of a campaign, as people write it; what is nil stays.
type Edit struct {
	catalog.CampaignChange

	Overflow    *string `json:"overflow,omitempty" enum:"lane,block"`
	StartsAt    *string `json:"starts_at,omitempty" maxLength:"64" example:"2026-11-30T09:00:00+03:00" doc:"RFC 3339, or 2026-11-30T09:00 in time_zone; empty for at once"`
	EndsAt      *string `json:"ends_at,omitempty" maxLength:"64" example:"2036-11-30T09:00:00+03:00" doc:"RFC 3339, or 2036-11-30T09:00 in time_zone; empty for never"`
	FinishBy    *string `json:"finish_by,omitempty" maxLength:"64" example:"18:00" doc:"18:00, 2036-12-01T18:00 in time_zone, or RFC 3339; empty for none"`
	ActiveHours *string `json:"active_hours,omitempty" maxLength:"4096" example:"mon-fri 09:00-21:00; sat 10:00-18:00" doc:"mon-fri 09:00-21:00; sat 10:00-18:00; empty for always"`
	Ramp        *string `json:"ramp,omitempty" maxLength:"256" example:"start=10,factor=1.5,every=1h" doc:"start=10,factor=1.5,every=1h; empty for none"`
	JobTTL      *string `json:"job_ttl,omitempty" maxLength:"64" pattern:"^[0-9a-zµμ. ]*$" patternDescription:"a span such as 36h or 7d, or empty" example:"36h" doc:"36h, 7d; empty for none"`
}

// NewCampaign is what the form of a new campaign begins with.
func NewCampaign() *Settings {
	return &Settings{Rate: "100", Quotas: []string{}, PriorityWeight: 1, Overflow: "lane", TimeZone: "UTC"}
}

// OnlyRate reports whether nothing but the rate is changed.
func (e *Edit) OnlyRate() bool {
	rest := *e
	rest.Rate = nil
	return rest == Edit{}
}

// Bulk is one change of many campaigns.
type Bulk struct {
	Action  string  `json:"action" enum:"pause,resume,rate,percent"`
	Rate    string  `json:"rate,omitempty" maxLength:"64" pattern:"^ *[0-9]+([.][0-9]{0,6})?(/[0-9a-zµμ. ]+)? *$" patternDescription:"a rate such as 500, 2.5 or 150/m, not negative" doc:"of action rate"`
	Percent float64 `json:"percent,omitempty" minimum:"0" maximum:"10000" doc:"of action percent: the new rates, of the present ones"`
	Until   string  `json:"until,omitempty" maxLength:"64" example:"2h" doc:"of action pause: when they go on by themselves, RFC 3339 or a span from now on; empty for never"`
}

// MaxBulk is how many campaigns one change may be of.
const MaxBulk = 100_000

// Chosen returns those of the ids that exist, or if there are none, the ids of the selected campaigns, as All does.
func (s *State) Chosen(by CampaignFilter, ids []string, expect int) ([]string, error) {
	if len(ids) == 0 {
		return s.All(by, expect)
	}
	if by != (CampaignFilter{}) {
		return nil, Fault(catalog.ErrInvalid, "give a filter or ids, not both")
	}
	ids = slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(ids))), func(id string) bool { return s.Campaign(id) == nil })
	if len(ids) != expect {
		return nil, Fault(catalog.ErrStale, "%d of the campaigns exist, not %d as expected; look again", len(ids), expect)
	}
	return ids, nil
}

// All returns the ids of the selected campaigns, on all pages. The error is catalog.ErrInvalid if they are too many, catalog.ErrStale
// if their number is not the expected one, and that of Missing.
func (s *State) All(by CampaignFilter, expect int) ([]string, error) {
	list, all, _ := s.Select(Selection{CampaignFilter: by}, MaxBulk)
	if missing := s.Missing(by); all == 0 && missing != nil {
		return nil, missing
	}
	switch {
	case all > MaxBulk:
		return nil, Fault(catalog.ErrInvalid, "%d campaigns match, and at most %d are changed at once; narrow the filter", all, MaxBulk)
	case all != expect:
		return nil, Fault(catalog.ErrStale, "%d campaigns match, not %d as expected; look again", all, expect)
	}
	ids := make([]string, len(list))
	for i, c := range list {
		ids[i] = c.ID
	}
	return ids, nil
}

// fault is an error of one line with its kind.
type fault struct {
	line string
	kind error
}

func (f *fault) Error() string { return f.line }

func (f *fault) Unwrap() error { return f.kind }

// Fault makes an error of a kind.
func Fault(kind error, format string, args ...any) error {
	return &fault{fmt.Sprintf(format, args...), kind}
}

// Line is an error in one line.
func Line(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// Instant formats a time for a form; "" for none.
func Instant(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
