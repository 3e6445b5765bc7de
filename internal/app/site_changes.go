package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/config"
	"github.com/pacer/pacer/internal/console/auth"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
)

// guard says who may do what on the console. The tokens are those that were read last.
func (s *Services) guard() *auth.Guard {
	h := &s.Config.HTTP
	anonymous, _ := auth.ParseRole(h.Anonymous) // checked by the configuration
	options := auth.Options{
		Tokens:    func() string { return s.latest().HTTP.Tokens.Reveal() },
		Admin:     func() string { return s.latest().AdminToken.Reveal() },
		Anonymous: anonymous, InsecureLogin: h.InsecureLogin, Logger: s.Log,
		Proxy: auth.Proxy{
			UserHeader: h.Proxy.UserHeader, GroupsHeader: h.Proxy.GroupsHeader, Operators: h.Proxy.Operators, Admins: h.Proxy.Admins,
		},
	}
	for _, text := range h.Proxy.Networks {
		if network, err := netip.ParsePrefix(text); err == nil { // checked by the configuration
			options.Proxy.Networks = append(options.Proxy.Networks, network)
		}
	}
	return auth.NewGuard(options)
}

// latest returns the configuration with the secrets that were read last.
func (s *Services) latest() *config.Config {
	if s.keeper != nil {
		if a := s.keeper.current.Load(); a != nil {
			return a.config
		}
	}
	return s.Config
}

// changer implements view.Changer over the database.
type changer struct{ admin *catalog.Admin }

func (c changer) Settings(ctx context.Context, id string) (*view.Settings, error) {
	row, err := c.admin.GetCampaign(ctx, id)
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	return settingsOf(&row), nil
}

func (c changer) Edit(ctx context.Context, by view.Actor, id string, edit *view.Edit) (*view.Settings, error) {
	ctx = catalog.WithActor(ctx, catalog.Actor(by))
	var row catalog.CampaignRow
	var err error
	if edit.Status != "" {
		change := catalog.CampaignChange{Status: (*delivery.Status)(&edit.Status), AtRevision: edit.AtRevision}
		if err = parsedUntil(edit, &change); err == nil {
			row, err = c.admin.SetStatusAt(ctx, id, change)
		}
	} else {
		var change catalog.CampaignChange
		if change, err = changeOf(edit); err == nil && edit.New {
			row, err = c.admin.CreateCampaign(ctx, id, change)
		} else if err == nil {
			row, err = c.admin.SetCampaign(ctx, id, change)
		}
	}
	if err != nil {
		return nil, c.explain(ctx, err)
	}
	return settingsOf(&row), nil
}

// delete implements view.Sources.Delete.
func (c changer) delete(ctx context.Context, by view.Actor, id string, revision *int64) error {
	_, err := c.admin.DeleteCampaign(catalog.WithActor(ctx, catalog.Actor(by)), id, revision)
	return c.explain(ctx, err)
}

func (c changer) Bulk(ctx context.Context, by view.Actor, ids []string, bulk *view.Bulk) (int, error) {
	change := catalog.BulkChange{Rate: bulk.Rate, Percent: bulk.Percent}
	switch bulk.Action {
	case "pause":
		change = catalog.BulkChange{Status: delivery.StatusPaused}
		if bulk.Until != "" {
			var err error
			if change.PausedUntil, err = notation.ParseUntil(bulk.Until, time.Now()); err != nil {
				return 0, view.Fault(view.ErrInvalid, "until: %s", err)
			}
		}
	case "resume":
		change = catalog.BulkChange{Status: delivery.StatusActive}
	case "rate":
		change.Percent = 0
		if bulk.Rate == "" {
			return 0, view.Fault(view.ErrInvalid, "rate: give one such as 500 or 150/m")
		}
	default:
		change.Rate = ""
	}
	changed, err := c.admin.ChangeCampaigns(catalog.WithActor(ctx, catalog.Actor(by)), ids, change)
	return changed, c.explain(ctx, err)
}

// explain gives an error of the catalog its kind.
func (c changer) explain(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, view.ErrInvalid) {
		return err
	}
	for _, kind := range []struct{ of, is error }{
		{catalog.ErrNotFound, view.ErrNotFound}, {catalog.ErrStale, view.ErrStale}, {catalog.ErrOver, view.ErrOver}, {catalog.ErrExists, view.ErrExists},
		{catalog.ErrInvalid, view.ErrInvalid}, // what exists is invalid as well
		{catalog.ErrInDoubt, view.ErrInDoubt},
	} {
		if errors.Is(err, kind.of) {
			return view.Fault(kind.is, "%s", err)
		}
	}
	if errors.Is(err, catalog.ErrUnreachable) {
		return err
	}
	if why, failed := c.readOnly(ctx); failed == nil && why != "" {
		return view.Fault(view.ErrForbidden, "%s", why)
	}
	return err
}

// readOnly implements view.Sources.ReadOnly.
func (c changer) readOnly(ctx context.Context) (why string, err error) {
	role, may, err := c.admin.Rights(ctx)
	if err != nil || may {
		return "", err
	}
	return fmt.Sprintf("the database role %s of this process may not change campaigns; use a process with the role of operators, such as pacer console", role), nil
}

func settingsOf(row *catalog.CampaignRow) *view.Settings {
	s := &view.Settings{
		ID: row.ID, Revision: row.Revision, Status: string(row.Status), Rate: row.Rate(), Sink: row.Sink, Quotas: append([]string{}, row.Quotas...),
		PriorityWeight: row.PriorityWeight, Burst: row.Burst, MaxInFlight: row.MaxInFlight, Overflow: string(row.Overflow),
		PausedUntil: view.Instant(row.PausedUntil), StartsAt: view.Instant(row.StartsAt), EndsAt: view.Instant(row.EndsAt), TimeZone: row.TimeZone, JobTTL: row.JobTTL,
	}
	if row.ActiveHours != nil {
		s.ActiveHours = notation.FormatHours(row.ActiveHours)
	}
	if row.Ramp != nil {
		s.RampSince = row.RampSince
		s.Ramp = notation.FormatRamp(row.Ramp)
	}
	if row.ExpectedTotal != nil {
		s.ExpectedTotal = *row.ExpectedTotal
	}
	return s
}

// changeOf reads what an edit has in words.
func changeOf(e *view.Edit) (change catalog.CampaignChange, err error) {
	change = catalog.CampaignChange{
		Rate: e.Rate, Sink: e.Sink, Quotas: e.Quotas, PriorityWeight: e.PriorityWeight, Burst: e.Burst, MaxInFlight: e.MaxInFlight,
		Overflow: (*delivery.Overflow)(e.Overflow), TimeZone: e.TimeZone, ExpectedTotal: e.ExpectedTotal, AtRevision: e.AtRevision,
	}
	return change, cmp.Or(
		parsed("starts_at", e.StartsAt, &change.StartsAt, parseInstant), parsed("ends_at", e.EndsAt, &change.EndsAt, parseInstant),
		parsed("active_hours", e.ActiveHours, &change.ActiveHours, func(text string) (json.RawMessage, error) { return notation.ParseHours(cmp.Or(text, "none")) }),
		parsed("ramp", e.Ramp, &change.Ramp, func(text string) (json.RawMessage, error) { return notation.ParseRamp(cmp.Or(text, "none")) }),
		parsed("job_ttl", e.JobTTL, &change.JobTTL, func(text string) (time.Duration, error) { return notation.ParseSpan(cmp.Or(text, "0s")) }),
	)
}

// parsed reads a text, if there is one.
func parsed[T any](name string, text *string, into **T, parse func(string) (T, error)) error {
	if text == nil {
		return nil
	}
	value, err := parse(*text)
	if err != nil {
		return view.Fault(view.ErrInvalid, "%s: %s", name, err)
	}
	*into = &value
	return nil
}

// parsedUntil sets when a pause ends by itself, if that is given.
func parsedUntil(edit *view.Edit, change *catalog.CampaignChange) error {
	if edit.Until == "" || *change.Status != delivery.StatusPaused {
		return nil
	}
	until, err := notation.ParseUntil(edit.Until, time.Now())
	if err != nil {
		return view.Fault(view.ErrInvalid, "until: %s", err)
	}
	change.PausedUntil = &until
	return nil
}

func parseInstant(text string) (time.Time, error) {
	if text == "" {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return at, fmt.Errorf("%q is not a time such as 2026-11-30T09:00:00+03:00", notation.Shorten(text))
	}
	return at, nil
}
