package app

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
)

// CampaignFlags are the flags of `campaign create` and `campaign set`; nil where not given.
type CampaignFlags struct {
	Rate           *string
	Sink           *string
	Quotas         *[]string
	Burst          *int64
	PriorityWeight *int64
	MaxInFlight    *int64
	JobTTL         *string
	StartsAt       *string
	EndsAt         *string
	ActiveHours    *string
	TimeZone       *string
	Ramp           *string
	Overflow       *string
	ExpectedTotal  *int64
	Status         *string
}

// change turns the flags into a change of the catalog.
func (f *CampaignFlags) change() (catalog.CampaignChange, error) {
	c := catalog.CampaignChange{
		Rate: f.Rate, Sink: f.Sink, Burst: f.Burst, PriorityWeight: f.PriorityWeight, MaxInFlight: f.MaxInFlight,
		ExpectedTotal: f.ExpectedTotal, TimeZone: f.TimeZone,
	}
	if f.Rate != nil {
		if _, _, err := delivery.ParseRate(*f.Rate); err != nil {
			return c, usagef("--rate: %w", err)
		}
	}
	if f.Quotas != nil {
		quotas := []string{}
		for _, id := range *f.Quotas {
			if id != "" { // --quota "" takes all links away
				quotas = append(quotas, id)
			}
		}
		c.Quotas = &quotas
	}
	if f.JobTTL != nil {
		ttl, err := catalog.ParseSpan(*f.JobTTL)
		if err != nil {
			return c, usagef("--job-ttl: %w", err)
		}
		c.JobTTL = &ttl
	}
	if err := f.schedule(&c); err != nil {
		return c, err
	}
	if f.Overflow != nil {
		overflow := delivery.Overflow(*f.Overflow)
		c.Overflow = &overflow
	}
	if f.Status != nil {
		status := delivery.Status(*f.Status)
		c.Status = &status
	}
	return c, nil
}

// schedule turns the flags that say when and how fast into changes.
func (f *CampaignFlags) schedule(c *catalog.CampaignChange) (err error) {
	if c.StartsAt, err = parseInstant("--starts-at", f.StartsAt); err != nil {
		return err
	}
	if c.EndsAt, err = parseInstant("--ends-at", f.EndsAt); err != nil {
		return err
	}
	if f.ActiveHours != nil {
		hours, err := catalog.ParseHoursWords(*f.ActiveHours)
		if err != nil {
			return usagef("--active-hours: %w", err)
		}
		c.ActiveHours = &hours
	}
	if f.Ramp != nil {
		ramp, err := catalog.ParseRampWords(*f.Ramp)
		if err != nil {
			return usagef("--ramp: %w", err)
		}
		c.Ramp = &ramp
	}
	return nil
}

// parseInstant reads RFC 3339; none takes a time away.
func parseInstant(flag string, text *string) (*time.Time, error) {
	switch {
	case text == nil:
		return nil, nil
	case *text == "" || *text == "none":
		return &time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, *text)
	if err != nil {
		return nil, usagef("%s %q is not a time such as 2026-11-30T09:00:00+03:00", flag, *text)
	}
	return &at, nil
}

// CampaignList is `pacer campaign list`.
func CampaignList(ctx context.Context, in Invocation) error {
	admin, err := in.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	campaigns, err := admin.ListCampaigns(ctx)
	if err != nil {
		return err
	}
	if in.JSON {
		return writeJSON(in.Stdout, campaigns)
	}
	return writeTable(in.Stdout, func(p *printer) {
		p.line("ID\tRATE\tSTATUS\tSINK\tQUOTAS\tWEIGHT\tDELIVERED\tBACKLOG\tETA\tDONE")
		for i := range campaigns {
			c := &campaigns[i]
			g := &c.Progress
			p.line("%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\t%s", c.ID, c.Rate(), c.Status, orDash(c.Sink),
				orDash(strings.Join(c.Quotas, ",")), c.PriorityWeight, g.Delivered, g.Backlog, formatETA(g), formatPercent(g))
		}
	})
}

// CampaignShow is `pacer campaign show`.
func CampaignShow(ctx context.Context, in Invocation, id string) error {
	admin, err := in.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	c, err := admin.GetCampaign(ctx, id)
	if err != nil {
		return err
	}
	return in.showCampaign(&c)
}

// CampaignCreate is `pacer campaign create`.
func CampaignCreate(ctx context.Context, in Invocation, id string, flags *CampaignFlags) error {
	return in.changeCampaign(ctx, flags, func(admin *catalog.Admin, change catalog.CampaignChange) (catalog.CampaignRow, error) {
		return admin.CreateCampaign(ctx, id, change)
	})
}

// CampaignSet is `pacer campaign set`.
func CampaignSet(ctx context.Context, in Invocation, id string, flags *CampaignFlags) error {
	if *flags == (CampaignFlags{}) {
		return usagef("campaign set %s: nothing to set; give at least one flag, such as --rate 500", id)
	}
	return in.changeCampaign(ctx, flags, func(admin *catalog.Admin, change catalog.CampaignChange) (catalog.CampaignRow, error) {
		return admin.SetCampaign(ctx, id, change)
	})
}

// CampaignStatus is `pacer campaign pause | resume | cancel`.
func CampaignStatus(ctx context.Context, in Invocation, id string, status delivery.Status) error {
	return in.changeCampaign(ctx, &CampaignFlags{}, func(admin *catalog.Admin, _ catalog.CampaignChange) (catalog.CampaignRow, error) {
		return admin.SetStatus(ctx, id, status)
	})
}

func (in Invocation) changeCampaign(_ context.Context, flags *CampaignFlags,
	apply func(*catalog.Admin, catalog.CampaignChange) (catalog.CampaignRow, error)) error {
	change, err := flags.change()
	if err != nil {
		return err
	}
	admin, err := in.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	c, err := apply(admin, change)
	if err != nil {
		return err
	}
	return in.showCampaign(&c)
}

func (in Invocation) showCampaign(c *catalog.CampaignRow) error {
	campaign := c.Campaign()
	now, held := currentOf(campaign, time.Now()), campaign.Invalid
	if held == "" {
		held = in.heldBySink(c.Sink)
	}
	if in.JSON {
		return writeJSON(in.Stdout, struct {
			*catalog.CampaignRow
			Held string          `json:"held,omitempty"`
			Now  campaignCurrent `json:"now"`
		}{c, held, now})
	}
	return writeTable(in.Stdout, func(p *printer) {
		p.line("id\t%s", c.ID)
		p.line("rate\t%s", c.Rate())
		p.line("rate now\t%s", formatRate(now.Rate))
		p.line("ramp\t%s", formatRamp(c))
		p.line("status\t%s", c.Status)
		if held != "" {
			p.line("held\t%s", held)
		}
		p.line("sink\t%s", orDash(c.Sink))
		p.line("quotas\t%s", orDash(strings.Join(c.Quotas, ", ")))
		p.line("priority weight\t%d", c.PriorityWeight)
		p.line("burst\t%d", c.Burst)
		p.line("max in flight\t%s", orUnlimited(c.MaxInFlight))
		p.line("overflow\t%s", c.Overflow)
		p.line("job ttl\t%s", orDash(c.JobTTL))
		p.line("starts at\t%s", formatInstant(c.StartsAt))
		p.line("ends at\t%s", formatInstant(c.EndsAt))
		p.line("active hours\t%s", formatHours(c))
		p.line("active now\t%s", now.words())
		p.line("next change\t%s", formatInstant(now.NextChange))
		if c.ExpectedTotal != nil {
			p.line("expected total\t%d", *c.ExpectedTotal)
			p.line("done\t%s", formatPercent(&c.Progress))
		}
		showProgress(p, &c.Progress)
		if c.Lane != nil {
			p.line("lane\t%d", *c.Lane)
		}
		p.line("updated at\t%s", c.UpdatedAt.UTC().Format(time.RFC3339))
	})
}

// campaignCurrent is what a campaign's schedule says at the moment, whatever its status and its sink.
type campaignCurrent struct {
	Rate       float64    `json:"rate"`   // units per second, of the ramp's step
	Active     bool       `json:"active"` // within the active hours, after the start, before the end
	NextChange *time.Time `json:"next_change,omitempty"`
	ended      bool
	begun      bool
}

func currentOf(c *delivery.Campaign, now time.Time) campaignCurrent {
	rate, _, _ := c.RateAt(now)
	current := campaignCurrent{Rate: rate.PerSecond(), ended: c.Ended(now), begun: !now.Before(c.StartsAt)}
	current.Active = c.Active(now) && !current.ended
	if next := c.NextChange(now); !next.IsZero() {
		current.NextChange = &next
	}
	return current
}

// words tells whether the campaign is active, or else why not.
func (c campaignCurrent) words() string {
	switch {
	case c.ended:
		return "no: it has ended, its jobs expire"
	case !c.begun:
		return "no: it has not begun"
	case !c.Active:
		return "no: outside its active hours"
	}
	return "yes"
}

func formatRate(perSecond float64) string { return strconv.FormatFloat(perSecond, 'f', -1, 64) + "/s" }

func formatRamp(c *catalog.CampaignRow) string {
	if c.RampSince == nil {
		return "-"
	}
	return catalog.FormatRamp(c.Ramp) + ", since " + formatInstant(c.RampSince)
}

func formatHours(c *catalog.CampaignRow) string {
	if c.ActiveHours == nil {
		return "always"
	}
	return catalog.FormatHours(c.ActiveHours) + " (" + c.TimeZone + ")"
}

func formatInstant(at *time.Time) string {
	if at == nil {
		return "-"
	}
	return at.UTC().Format(time.RFC3339)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func orUnlimited(n int64) string {
	if n == 0 {
		return "unlimited"
	}
	return strconv.FormatInt(n, 10)
}
