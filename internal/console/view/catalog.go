package view

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	"github.com/pacer/pacer/internal/notation"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// Catalog is the database of campaigns, quotas and destinations, a *catalog.Admin. A change is that of the actor of its context.
type Catalog interface {
	ListCampaigns(ctx context.Context) ([]catalog.CampaignRow, error)
	GetCampaign(ctx context.Context, id string) (catalog.CampaignRow, error)
	CreateCampaign(ctx context.Context, id string, change catalog.CampaignChange) (catalog.CampaignRow, error)
	SetCampaign(ctx context.Context, id string, change catalog.CampaignChange) (catalog.CampaignRow, error)
	SetStatusAt(ctx context.Context, id string, change catalog.CampaignChange) (catalog.CampaignRow, error)
	PausedFor(ctx context.Context, reason string) (ids []string, err error)
	ChangeCampaigns(ctx context.Context, ids []string, change catalog.BulkChange) (changed int, err error)
	DeleteCampaign(ctx context.Context, id string, revision *int64) (catalog.CampaignRow, error)
	GetQuota(ctx context.Context, id string) (catalog.QuotaRow, error)
	SetQuota(ctx context.Context, id string, change catalog.QuotaChange) (catalog.QuotaRow, error)
	GetKeyed(ctx context.Context, quota, value string) (*delivery.Quota, error)
	SetKey(ctx context.Context, quota, value string, change catalog.KeyChange) error
	AdjustQuota(ctx context.Context, id string, span time.Duration, reason string, adjust func(q *delivery.Quota, window int) (before, after, minute int64, err error)) (catalog.QuotaRow, error)
	DeleteQuota(ctx context.Context, id string, unlink bool, revision *int64) (catalog.QuotaRow, error)
	FindDestinations(ctx context.Context, of catalog.DestinationsOf) ([]catalog.DestinationRow, error)
	GetDestination(ctx context.Context, id string) (catalog.DestinationRow, error)
	CreateDestination(ctx context.Context, id string, change catalog.DestinationChange) (catalog.DestinationRow, error)
	SetDestination(ctx context.Context, id string, change catalog.DestinationChange) (catalog.DestinationRow, error)
	DisableDestination(ctx context.Context, id, reason string) (catalog.DestinationRow, error)
	EnableDestination(ctx context.Context, id string) (catalog.DestinationRow, error)
	DeleteDestination(ctx context.Context, id string, revision *int64) (catalog.DestinationRow, error)
	UsageHistory(ctx context.Context, quota string, from, to time.Time, step time.Duration) ([]catalog.Usage, error)
	Changes(ctx context.Context, of catalog.ChangesOf) ([]catalog.Change, error)
	ReadOnly(ctx context.Context) (why string, err error)
}

// Condition is what must be so for a row to be written.
type Condition struct {
	New bool   // it does not exist
	At  *int64 // it exists at this revision; nil: at any
}

// row returns a campaign as the database has it.
func (s *Sources) row(ctx context.Context, id string) (row catalog.CampaignRow, err error) {
	if s.Catalog == nil {
		return row, errNoDatabase
	}
	return s.Catalog.GetCampaign(ctx, id)
}

// Campaign returns what people set of a campaign, as the database has it.
func (s *Sources) Campaign(ctx context.Context, id string) (*Settings, error) {
	return s.settingsOf(s.row(ctx, id))
}

// WriteCampaign changes a campaign, or creates it, and returns what it is then.
func (s *Sources) WriteCampaign(ctx context.Context, id string, e *Edit, on Condition) (*Settings, error) {
	change := e.CampaignChange
	change.Overflow, change.AtRevision = (*delivery.Overflow)(e.Overflow), on.At
	zone, unread := s.zone(ctx, id, e)
	at := func(text string) (time.Time, error) { return parseTime(text, zone) }
	err := cmp.Or(
		parsed("starts_at", e.StartsAt, &change.StartsAt, at), parsed("ends_at", e.EndsAt, &change.EndsAt, at), parsed("finish_by", e.FinishBy, &change.FinishBy, at),
		parsed("active_hours", e.ActiveHours, &change.ActiveHours, func(text string) (json.RawMessage, error) { return notation.ParseHours(cmp.Or(text, "none")) }),
		parsed("ramp", e.Ramp, &change.Ramp, func(text string) (json.RawMessage, error) { return notation.ParseRamp(cmp.Or(text, "none")) }),
		parsed("avoid_minutes", e.AvoidMinutes, &change.AvoidMinutes, func(text string) (string, error) { return strings.TrimSuffix(text, "none"), nil }),
		parsed("job_ttl", e.JobTTL, &change.JobTTL, func(text string) (time.Duration, error) { return notation.ParseSpan(cmp.Or(text, "0s")) }),
		unread,
	)
	switch {
	case err != nil:
		return nil, err
	case on.New:
		return s.settingsOf(s.Catalog.CreateCampaign(ctx, id, change))
	}
	return s.settingsOf(s.Catalog.SetCampaign(ctx, id, change))
}

// zone returns the time zone in which a change writes times: as the change says, or as the campaign has it. With an error it is UTC.
func (s *Sources) zone(ctx context.Context, id string, e *Edit) (*time.Location, error) {
	if e.TimeZone != nil || e.StartsAt == nil && e.EndsAt == nil && e.FinishBy == nil {
		return zoneOf(orZero(e.TimeZone)), nil
	}
	row, err := s.Catalog.GetCampaign(ctx, id)
	if err != nil && !errors.Is(err, catalog.ErrNotFound) {
		return time.UTC, err
	}
	return zoneOf(row.TimeZone), nil
}

// parseTime reads a time of a campaign; the zero time of an empty text, and of none.
func parseTime(text string, zone *time.Location) (time.Time, error) {
	if text == "" || text == "none" {
		return time.Time{}, nil
	}
	return notation.ParseTimeIn(text, zone, time.Now())
}

// zoneOf returns the time zone in which the times of a campaign are written: UTC if the name is none, such as recipient.
func zoneOf(name string) *time.Location {
	if zone, err := notation.Zone(name); err == nil {
		return zone
	}
	return time.UTC
}

// SetStatus changes the status of a campaign at a revision; nil: at any. until is when a pause ends by itself, a time or a span; "" for never.
func (s *Sources) SetStatus(ctx context.Context, id string, status delivery.Status, until string, at *int64) (*Settings, error) {
	change := catalog.CampaignChange{Status: &status, AtRevision: at}
	if status == delivery.StatusPaused && until != "" {
		at, err := parseUntil(until)
		if err != nil {
			return nil, err
		}
		change.PausedUntil = &at
	}
	return s.settingsOf(s.Catalog.SetStatusAt(ctx, id, change))
}

// Bulk changes campaigns, and returns how many have changed: with an error as well.
func (s *Sources) Bulk(ctx context.Context, ids []string, bulk *Bulk) (changed int, err error) {
	var change catalog.BulkChange
	switch bulk.Action {
	case "pause":
		change.Status = delivery.StatusPaused
		if bulk.Until != "" {
			if change.PausedUntil, err = parseUntil(bulk.Until); err != nil {
				return 0, err
			}
		}
	case "resume":
		change.Status = delivery.StatusActive
	case "rate":
		if change.Rate = bulk.Rate; bulk.Rate == "" {
			return 0, Fault(catalog.ErrInvalid, "rate: give one such as 500 or 150/m")
		}
	default:
		change.Percent = bulk.Percent
	}
	return s.Catalog.ChangeCampaigns(ctx, ids, change)
}

// parsed reads a text, if there is one.
func parsed[T any](name string, text *string, into **T, parse func(string) (T, error)) error {
	if text == nil {
		return nil
	}
	value, err := parse(*text)
	if err != nil {
		return Fault(catalog.ErrInvalid, "%s: %s", name, err)
	}
	*into = &value
	return nil
}

func parseUntil(text string) (time.Time, error) {
	at, err := notation.ParseUntil(text, time.Now())
	if err != nil {
		return at, Fault(catalog.ErrInvalid, "until: %s", err)
	}
	return at, nil
}

func (s *Sources) settingsOf(row catalog.CampaignRow, err error) (*Settings, error) {
	if err != nil {
		return nil, err
	}
	now := &Settings{
		ID: row.ID, Revision: row.Revision, Status: string(row.Status), Rate: row.Rate(), Sink: row.Sink, Quotas: append([]string{}, row.Quotas...),
		PriorityWeight: row.PriorityWeight, Burst: row.Burst, MaxInFlight: row.MaxInFlight, Overflow: string(row.Overflow),
		PausedUntil: Instant(row.PausedUntil), StartsAt: Instant(row.StartsAt), EndsAt: Instant(row.EndsAt), TimeZone: row.TimeZone, JobTTL: row.JobTTL,
		ZoneMissing: row.ZoneMissing, AvoidMinutes: row.AvoidMinutes,
		ExpectedTotal: orZero(row.ExpectedTotal), Note: row.Note, FinishBy: Instant(row.FinishBy), RampSince: row.RampSince,
		UpdatedAt: &row.UpdatedAt, Progress: &row.Progress,
	}
	now.ActiveHours, now.Ramp = scheduleOf(&row)
	_, now.Fault = s.Sink(row.Sink)
	return now, nil
}

// scheduleOf returns the hours and the ramp of a campaign as people write them; "" for none.
func scheduleOf(row *catalog.CampaignRow) (hours, ramp string) {
	if row.ActiveHours != nil {
		hours = notation.FormatHours(row.ActiveHours)
	}
	if row.Ramp != nil {
		ramp = notation.FormatRamp(row.Ramp)
	}
	return hours, ramp
}

// as gives a campaign the settings that the database has now.
func (c *Campaign) as(row *catalog.CampaignRow) {
	at := func(t *time.Time) *time.Time { return instant(orZero(t)) }
	c.Revision, c.Status, c.Rate, c.SinkSet, c.Quotas = row.Revision, string(row.Status), row.Rate(), row.Sink, append([]string{}, row.Quotas...)
	c.PriorityWeight, c.Burst, c.MaxInFlight, c.Overflow = row.PriorityWeight, row.Burst, int(row.MaxInFlight), string(row.Overflow)
	c.PausedUntil, c.StartsAt, c.EndsAt, c.FinishBy = at(row.PausedUntil), at(row.StartsAt), at(row.EndsAt), at(row.FinishBy)
	c.TimeZone, c.ZoneMissing, c.AvoidMinutes = row.TimeZone, row.ZoneMissing, row.AvoidMinutes
	c.ActiveHours, c.Ramp = scheduleOf(row)
	c.RampSince, c.JobTTL, c.ExpectedTotal, c.Note = row.RampSince, row.JobTTL, orZero(row.ExpectedTotal), row.Note
	c.UpdatedAt, c.Progress = &row.UpdatedAt, c.foreseen(&row.Progress)
}

// foreseen returns the progress of the campaign with the backlog that the daemons report now, and without an end while it is not known when
// the campaign goes on.
func (c *Campaign) foreseen(p *catalog.CampaignProgress) *catalog.CampaignProgress {
	now := *p
	if c.States != nil {
		now.Backlog, now.Retrying, now.InFlight = c.States.Total(), c.States.Retrying, c.States.InFlight
		switch {
		case now.Backlog == 0 && c.ExpectedTotal == 0 && now.UpdatedAt != nil:
			now.DoneAt, now.ETASeconds = nil, new(float64)
		case now.DoneAt == nil:
			now.ETASeconds = nil
		}
	}
	if h := c.Held; h != nil && h.Until == nil && h.Cause != string(hold.Quota) && h.Cause != string(hold.Share) {
		now.DoneAt, now.ETASeconds = nil, nil
	}
	return &now
}

// Quota returns what people set of a quota, as the database has it.
func (s *Sources) Quota(ctx context.Context, id string) (*QuotaSettings, error) {
	if s.Catalog == nil {
		return nil, errNoDatabase
	}
	return quotaSettingsOf(s.Catalog.GetQuota(ctx, id))
}

// Usage returns what was used of a quota.
func (s *Sources) Usage(ctx context.Context, quota string, from, to time.Time, step time.Duration) ([]catalog.Usage, error) {
	if s.Catalog == nil {
		return nil, errNoDatabase
	}
	return s.Catalog.UsageHistory(ctx, quota, from, to, step)
}

// WriteQuota changes a quota, or creates it, and returns what it is then.
func (s *Sources) WriteQuota(ctx context.Context, id string, e *QuotaEdit, on Condition) (*QuotaSettings, error) {
	exists := !on.New
	change := e.QuotaChange
	change.Exists, change.AtRevision = &exists, on.At
	if e.Windows != nil {
		windows, err := catalog.ParseWindows(strings.Join(*e.Windows, ","))
		if err != nil {
			return nil, Fault(catalog.ErrInvalid, "windows: %s", err)
		}
		change.Windows = &windows
	}
	return quotaSettingsOf(s.Catalog.SetQuota(ctx, id, change))
}

func quotaSettingsOf(row catalog.QuotaRow, err error) (*QuotaSettings, error) {
	if err != nil {
		return nil, err
	}
	s := &QuotaSettings{
		ID: row.ID, Revision: row.Revision, Windows: []string{}, Mode: row.Mode, Spend: row.Spend, OnStoreFailure: row.OnStoreFailure, Rollout: 100 - row.Exempt,
		Unit: row.Unit, Keying: keyingOf(&row.Quota), Shard: row.Shard, Campaigns: len(row.Campaigns), CampaignIDs: append([]string{}, row.Campaigns[:min(len(row.Campaigns), MaxListed)]...),
		UpdatedAt: &row.UpdatedAt,
	}
	for _, w := range row.Windows {
		s.Windows = append(s.Windows, notation.FormatWindow(w))
	}
	return s, nil
}

// Destinations returns a page of destinations: the disabled ones first, then those that fail, each in the order of their ids. There may
// be a million of them. It reads one row more than the page has, to find out whether there is another page.
func (s *Sources) Destinations(ctx context.Context, of DestinationsOf) (list []catalog.DestinationRow, next string, err error) {
	if s.Catalog == nil {
		return nil, "", errNoDatabase
	}
	found := catalog.DestinationsOf{Text: of.Text, State: of.State, Sink: of.Sink, Limit: of.Limit + 1}
	if of.After != "" {
		// The list is sorted by state and id, so a page begins after a state and an id.
		var ok bool
		if found.AfterState, found.After, ok = strings.Cut(of.After, ":"); !ok || found.After == "" {
			return nil, "", Fault(catalog.ErrInvalid, "after: it must be what next of the page before says")
		}
	}
	if list, err = s.Catalog.FindDestinations(ctx, found); err != nil {
		return nil, "", err
	}
	if len(list) > of.Limit {
		list = list[:of.Limit]
		last := &list[len(list)-1]
		next = last.State + ":" + last.ID
	}
	for i := range list {
		s.hideSecrets(ctx, &list[i])
	}
	return list, next, nil
}

// Destination returns one destination, as the database has it.
func (s *Sources) Destination(ctx context.Context, id string) (*catalog.DestinationRow, error) {
	if s.Catalog == nil {
		return nil, errNoDatabase
	}
	row, err := s.Catalog.GetDestination(ctx, id)
	return s.oneDestination(ctx, &row, err)
}

// WriteDestination changes a destination, or creates it, and returns what it is then.
func (s *Sources) WriteDestination(ctx context.Context, id string, change *catalog.DestinationChange, on Condition) (*catalog.DestinationRow, error) {
	write := s.Catalog.SetDestination
	if on.New {
		write = s.Catalog.CreateDestination
	}
	at := *change
	at.AtRevision = on.At
	row, err := write(ctx, id, at)
	return s.oneDestination(ctx, &row, err)
}

// SetDestination disables a destination, for the reason of the actor, or enables it.
func (s *Sources) SetDestination(ctx context.Context, id string, disable bool) (*catalog.DestinationRow, error) {
	if !disable {
		row, err := s.Catalog.EnableDestination(ctx, id)
		return s.oneDestination(ctx, &row, err)
	}
	row, err := s.Catalog.DisableDestination(ctx, id, catalog.ActorOf(ctx).Reason)
	return s.oneDestination(ctx, &row, err)
}

// oneDestination is a destination as those who ask may see it, with what is wrong with it.
func (s *Sources) oneDestination(ctx context.Context, row *catalog.DestinationRow, err error) (*catalog.DestinationRow, error) {
	if err != nil {
		return nil, err
	}
	row.Fault = s.Fault(row.Destination())
	s.hideSecrets(ctx, row)
	return row, nil
}

// hideSecrets takes out of a destination what may let others send to it: the query of its address, and for all but admins the values of its
// headers. What its answers say is not for viewers.
func (s *Sources) hideSecrets(ctx context.Context, row *catalog.DestinationRow) {
	row.URL = sinkhttp.Redacted(row.URL)
	for name := range row.Headers {
		if auth.Of(ctx).Role < auth.Admin {
			row.Headers[name] = ""
		}
	}
	for i := range row.Progress.Answers {
		if s.Hidden || auth.Of(ctx).Role < auth.Operator {
			row.Progress.Answers[i].Answer = ""
		}
	}
}

// Changes returns changes of campaigns, quotas and destinations, the newest first, as those who ask may see them.
func (s *Sources) Changes(ctx context.Context, of catalog.ChangesOf) ([]catalog.Change, error) {
	if s.Catalog == nil {
		return nil, errNoDatabase
	}
	changes, err := s.Catalog.Changes(ctx, of)
	for i := range changes {
		if c := &changes[i]; c.Destination != "" && auth.Of(ctx).Role < auth.Admin {
			redact(c.Fields)
		}
	}
	return changes, err
}

// redact takes out of the fields of a destination what may let others send to it: the query of its address, and the values of its headers.
func redact(fields []catalog.Field) {
	for i := range fields {
		f := &fields[i]
		for _, text := range []*string{&f.Old, &f.New} {
			switch {
			case *text == "":
			case f.Name == "url":
				*text = sinkhttp.Redacted(*text)
			case f.Name == "headers":
				var headers map[string]json.RawMessage
				_ = json.Unmarshal([]byte(*text), &headers) // the table holds nothing else; of anything else no name is shown
				*text = strings.Join(slices.Sorted(maps.Keys(headers)), ", ")
			}
		}
	}
}
