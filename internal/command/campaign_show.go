package command

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/progress"
)

// showCampaign prints a campaign and what holds it.
func (c *cli) showCampaign(shown *campaignRow) error {
	row, why := shown.CampaignRow, ""
	if shown.Hold != nil {
		why = shown.Hold.Why
	}
	now := currentOf(row.Campaign(), time.Now())
	view := struct {
		campaignRow
		Held string          `json:"held,omitempty"`
		Now  campaignCurrent `json:"now"`
	}{*shown, why, now}
	return c.printTable(view, func(p *printer) {
		p.line("id\t%s", row.ID)
		p.line("rate\t%s", row.Rate())
		p.line("rate now\t%s", formatRate(now.Rate))
		p.line("ramp\t%s", formatRamp(row))
		status := string(row.Status)
		if row.PausedUntil != nil {
			status += " until " + instant(row.PausedUntil, time.RFC3339)
		}
		p.line("status\t%s", status)
		if shown.Hold != nil {
			printHeld(p, shown.Hold)
		}
		p.line("sink\t%s", cmp.Or(row.Sink, "-"))
		p.line("quotas\t%s", cmp.Or(strings.Join(row.Quotas, ", "), "-"))
		p.line("priority weight\t%d", row.PriorityWeight)
		p.line("burst\t%d", row.Burst)
		p.line("max in flight\t%s", orUnlimited(row.MaxInFlight))
		p.line("overflow\t%s", row.Overflow)
		p.line("job ttl\t%s", cmp.Or(row.JobTTL, "-"))
		p.line("starts at\t%s", instant(row.StartsAt, time.RFC3339))
		p.line("ends at\t%s", instant(row.EndsAt, time.RFC3339))
		p.line("active hours\t%s", formatHours(row))
		active := "yes"
		if why != "" {
			active = "no: " + why
		}
		p.line("active now\t%s", active)
		p.line("next change\t%s", instant(now.NextChange, time.RFC3339))
		if row.ExpectedTotal != nil {
			p.line("expected total\t%d", *row.ExpectedTotal)
			p.line("done\t%s", formatPercent(&row.Progress))
		}
		if row.Note != "" {
			p.line("note\t%s", row.Note)
		}
		showProgress(p, shown)
		showLanes(p, shown.Lanes)
		showSenders(p, shown.Senders)
		showFailure(p, shown.Failure)
		p.line("updated at\t%s", instant(whole(row.UpdatedAt), time.RFC3339))
	})
}

// showLanes prints the lanes of a campaign, and how many they are.
func showLanes(p *printer, lanes []int) {
	switch len(lanes) {
	case 0:
	case 1:
		p.line("lane\t%d", lanes[0])
	default:
		p.line("lanes\t%d: %s", len(lanes), notation.List(lanes))
	}
}

// showFailure prints when and why the sink of a campaign last did not take a job.
func showFailure(p *printer, failure string) {
	if failure != "" {
		p.line("last failure of its sink\t%s", failure)
	}
}

// showSenders prints which daemons send a campaign, a line each.
func showSenders(p *printer, senders []progress.Sender) {
	for i, s := range senders {
		name, lanes := "", ""
		if i == 0 {
			name = "sent by"
		}
		if len(s.Lanes) > 0 {
			lanes = "lanes " + notation.List(s.Lanes) + ", "
		}
		p.line("%s\t%s: %s%s in memory, %d in flight", name, s.Daemon, lanes, counted(s.InMemory, "job"), s.InFlight)
	}
}

// showProgress prints the progress of a campaign, as last saved by the daemons.
func showProgress(p *printer, r *campaignRow) {
	g := &r.Progress
	p.line("delivered\t%d", g.Delivered)
	for _, other := range []struct {
		name string
		jobs int64
	}{{"rejected", g.Rejected}, {"dead", g.Dead}, {"expired", g.Expired}, {"cancelled", g.Cancelled}} {
		if other.jobs > 0 {
			p.line("%s\t%d", other.name, other.jobs)
		}
	}
	p.line("backlog\t%d", g.Backlog)
	if g.DoneAt != nil {
		p.line("eta\t%s (%s)", formatETA(g), instant(g.DoneAt, time.RFC3339))
	} else {
		p.line("eta\t%s", r.eta())
	}
}

// formatETA rounds the ETA for display.
func formatETA(g *catalog.CampaignProgress) string {
	if g.ETASeconds == nil {
		return "-"
	}
	return formatSeconds(time.Duration(*g.ETASeconds * float64(time.Second)))
}

// formatSeconds formats a duration in whole seconds, or in days and hours.
func formatSeconds(d time.Duration) string {
	d = d.Round(time.Second)
	if days := d / (24 * time.Hour); days > 0 {
		return fmt.Sprintf("%dd%s", days, d%(24*time.Hour)/time.Hour*time.Hour)
	}
	return d.String()
}

func formatPercent(g *catalog.CampaignProgress) string {
	if g.Percent == nil {
		return "-"
	}
	return strconv.FormatFloat(*g.Percent, 'f', 1, 64) + "%"
}

// campaignCurrent is the current state of a campaign's schedule, regardless of its sink.
type campaignCurrent struct {
	Rate       float64    `json:"rate"`   // units per second, of the ramp's step
	Active     bool       `json:"active"` // by its status; within the active hours, after the start, before the end
	NextChange *time.Time `json:"next_change,omitempty"`
}

func currentOf(c *delivery.Campaign, now time.Time) campaignCurrent {
	rate, _, _ := c.RateAt(now)
	current := campaignCurrent{
		Rate: rate.PerSecond(), Active: c.Status == delivery.StatusActive && c.Active(now) && !c.Ended(now),
	}
	if next := c.NextChange(now); !next.IsZero() {
		current.NextChange = &next
	}
	return current
}

func formatRate(perSecond float64) string { return strconv.FormatFloat(perSecond, 'f', -1, 64) + "/s" }

func formatRamp(c *catalog.CampaignRow) string {
	if c.RampSince == nil {
		return "-"
	}
	return notation.FormatRamp(c.Ramp) + ", since " + instant(c.RampSince, time.RFC3339)
}

func formatHours(c *catalog.CampaignRow) string {
	if c.ActiveHours == nil {
		return "always"
	}
	return notation.FormatHours(c.ActiveHours) + " (" + c.TimeZone + ")"
}

func orUnlimited(n int64) string {
	if n == 0 {
		return "unlimited"
	}
	return strconv.FormatInt(n, 10)
}
