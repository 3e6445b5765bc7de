package view

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/hold"
	sinkhttp "github.com/pacer/pacer/internal/sink/http"
)

// Catalog is the database of campaigns, quotas and destinations, a *catalog.Admin. A change is that of the actor of its context.
type Catalog interface {
	ListCampaigns(ctx context.Context) ([]catalog.CampaignRow, error)
	GetCampaign(ctx context.Context, id string) (catalog.CampaignRow, error)
	WriteCampaign(ctx context.Context, id string, change *catalog.CampaignChange, on catalog.Precondition) (catalog.CampaignRow, error)
	SetStatus(ctx context.Context, id string, status delivery.Status, until string, at *int64) (catalog.CampaignRow, error)
	PausedFor(ctx context.Context, reason string) (ids []string, err error)
	ChangeCampaigns(ctx context.Context, ids []string, change catalog.BulkChange) (changed int, err error)
	DeleteCampaign(ctx context.Context, id string, revision *int64) (catalog.CampaignRow, error)
	GetQuota(ctx context.Context, id string) (catalog.QuotaRow, error)
	WriteQuota(ctx context.Context, id string, change *catalog.QuotaChange, on catalog.Precondition) (catalog.QuotaRow, error)
	GetKeyed(ctx context.Context, quota, value string) (*delivery.Quota, error)
	SetKey(ctx context.Context, quota, value string, change catalog.KeyChange) error
	AdjustQuota(ctx context.Context, id string, span time.Duration, adjust func(q *delivery.Quota, window int) (before, after, minute int64, err error)) (catalog.QuotaRow, error)
	DeleteQuota(ctx context.Context, id string, unlink bool, revision *int64) (catalog.QuotaRow, error)
	FindDestinations(ctx context.Context, of catalog.DestinationsOf) (list []catalog.DestinationRow, next string, err error)
	GetDestination(ctx context.Context, id string) (catalog.DestinationRow, error)
	WriteDestination(ctx context.Context, id string, change *catalog.DestinationChange, on catalog.Precondition) (catalog.DestinationRow, error)
	DisableDestination(ctx context.Context, id string, disable bool) (catalog.DestinationRow, error)
	DeleteDestination(ctx context.Context, id string, revision *int64) (catalog.DestinationRow, error)
	UsageHistory(ctx context.Context, quota string, from, to time.Time, step time.Duration) ([]catalog.Usage, error)
	Changes(ctx context.Context, of catalog.ChangesOf) ([]catalog.Change, error)
	ReadOnly(ctx context.Context) (why string, err error)
}

// Campaign returns what people set of a campaign, as the database has it.
func (s *Sources) Campaign(ctx context.Context, id string) (*catalog.CampaignRow, error) {
	if s.Catalog == nil {
		return nil, errNoDatabase
	}
	return s.settings(s.Catalog.GetCampaign(ctx, id))
}

// WriteCampaign changes a campaign, or creates it, and returns what it is then.
func (s *Sources) WriteCampaign(ctx context.Context, id string, change *catalog.CampaignChange, on catalog.Precondition) (*catalog.CampaignRow, error) {
	return s.settings(s.Catalog.WriteCampaign(ctx, id, change, on))
}

// SetStatus changes the status of a campaign at a revision; nil: at any. until is when a pause ends by itself, a time or a span; "" for never.
func (s *Sources) SetStatus(ctx context.Context, id string, status delivery.Status, until string, at *int64) (*catalog.CampaignRow, error) {
	return s.settings(s.Catalog.SetStatus(ctx, id, status, until, at))
}

// settings adds why the sink of a campaign is none.
func (s *Sources) settings(row catalog.CampaignRow, err error) (*catalog.CampaignRow, error) {
	if err != nil {
		return nil, err
	}
	_, row.Fault = s.Sink(row.Sink)
	return &row, nil
}

// as gives a campaign the settings that the database has now.
func (c *Campaign) as(row *catalog.CampaignRow) {
	at := func(text string) *time.Time {
		t, _ := time.Parse(time.RFC3339, text) // the zero time of none
		return instant(t)
	}
	c.Revision, c.Status, c.Rate, c.SinkSet, c.Quotas = row.Revision, string(row.Status), row.Rate, row.Sink, append([]string{}, row.Quotas...)
	c.PriorityWeight, c.Burst, c.MaxInFlight, c.Overflow = row.PriorityWeight, row.Burst, int(row.MaxInFlight), string(row.Overflow)
	c.PausedUntil, c.StartsAt, c.EndsAt, c.FinishBy = at(row.PausedUntil), at(row.StartsAt), at(row.EndsAt), at(row.FinishBy)
	c.TimeZone, c.ZoneMissing, c.AvoidMinutes = row.TimeZone, row.ZoneMissing, row.AvoidMinutes
	c.ActiveHours, c.Ramp = row.ActiveHours, row.Ramp
	c.RampSince, c.JobTTL, c.ExpectedTotal, c.Note = row.RampSince, row.JobTTL, row.ExpectedTotal, row.Note
	c.UpdatedAt, c.Progress = row.UpdatedAt, c.foreseen(row.Progress)
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
func (s *Sources) Quota(ctx context.Context, id string) (*catalog.QuotaRow, error) {
	if s.Catalog == nil {
		return nil, errNoDatabase
	}
	row, err := s.Catalog.GetQuota(ctx, id)
	return &row, err
}

// Usage returns what was used of a quota.
func (s *Sources) Usage(ctx context.Context, quota string, from, to time.Time, step time.Duration) ([]catalog.Usage, error) {
	if s.Catalog == nil {
		return nil, errNoDatabase
	}
	return s.Catalog.UsageHistory(ctx, quota, from, to, step)
}

// WriteQuota changes a quota, or creates it, and returns what it is then.
func (s *Sources) WriteQuota(ctx context.Context, id string, change *catalog.QuotaChange, on catalog.Precondition) (*catalog.QuotaRow, error) {
	row, err := s.Catalog.WriteQuota(ctx, id, change, on)
	return &row, err
}

// Destinations returns a page of destinations as those who ask may see them, and where the next one begins; "" if there is none.
func (s *Sources) Destinations(ctx context.Context, of catalog.DestinationsOf) (list []catalog.DestinationRow, next string, err error) {
	if s.Catalog == nil {
		return nil, "", errNoDatabase
	}
	list, next, err = s.Catalog.FindDestinations(ctx, of)
	for i := range list {
		s.hideSecrets(ctx, &list[i])
	}
	return list, next, err
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
func (s *Sources) WriteDestination(ctx context.Context, id string, change *catalog.DestinationChange, on catalog.Precondition) (*catalog.DestinationRow, error) {
	row, err := s.Catalog.WriteDestination(ctx, id, change, on)
	return s.oneDestination(ctx, &row, err)
}

// DisableDestination disables a destination, for the reason of the actor, or enables it.
func (s *Sources) DisableDestination(ctx context.Context, id string, disable bool) (*catalog.DestinationRow, error) {
	row, err := s.Catalog.DisableDestination(ctx, id, disable)
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
