package command

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pacer/pacer/internal/catalog"
	"github.com/pacer/pacer/internal/console/view"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/notation"
	"github.com/pacer/pacer/internal/progress"
)

// showCampaign prints a campaign and what holds it.
func (c *cli) showCampaign(v *view.Campaign) error {
	return c.printTable(v, func(p *printer) {
		p.line("id\t%s", v.ID)
		p.line("rate\t%s", v.Rate)
		p.line("rate now\t%s/s", strconv.FormatFloat(v.Allowed, 'g', 6, 64))
		ramp, status, active := "-", v.Status, "yes"
		if v.Ramp != "" {
			ramp = v.Ramp + ", since " + instant(v.RampSince, time.RFC3339)
		}
		if v.PausedUntil != nil {
			status += " until " + instant(v.PausedUntil, time.RFC3339)
		}
		p.line("ramp\t%s", ramp)
		p.line("status\t%s", status)
		if v.Held != nil {
			active = "no: " + v.Held.Why
			printHeld(p, v.Held)
		}
		p.line("sink\t%s", cmp.Or(v.SinkSet, "-"))
		p.line("quotas\t%s", cmp.Or(strings.Join(v.Quotas, ", "), "-"))
		p.line("priority weight\t%d", v.PriorityWeight)
		p.line("burst\t%d", v.Burst)
		p.line("max in flight\t%s", orUnlimited(v.MaxInFlight))
		p.line("overflow\t%s", v.Overflow)
		p.line("job ttl\t%s", cmp.Or(v.JobTTL, "-"))
		p.line("starts at\t%s", instant(v.StartsAt, time.RFC3339))
		p.line("ends at\t%s", instant(v.EndsAt, time.RFC3339))
		p.line("finish by\t%s", instant(v.FinishBy, time.RFC3339))
		p.line("active hours\t%s", hoursOf(v))
		p.line("active now\t%s", active)
		p.line("next change\t%s", instant(v.NextChange, time.RFC3339))
		if v.ExpectedTotal > 0 {
			p.line("expected total\t%d", v.ExpectedTotal)
			p.line("done\t%s", formatPercent(progressOf(v)))
		}
		if v.Note != "" {
			p.line("note\t%s", v.Note)
		}
		showProgress(p, v)
		showLanes(p, v.Lanes)
		showSenders(p, v.Senders)
		showFailure(p, v.LastFailure)
		p.line("updated at\t%s", instant(v.UpdatedAt, time.RFC3339))
	})
}

// hoursOf returns the active hours of a campaign, and whose clocks they follow.
func hoursOf(v *view.Campaign) string {
	hours, zone := "always", ""
	if v.ActiveHours != "" {
		hours, zone = v.ActiveHours, " ("+v.TimeZone+")"
	}
	if zone != "" && v.TimeZone == delivery.ZoneRecipient {
		zone = " (clocks of each recipient; without a zone: " + cmp.Or(v.ZoneMissing, "UTC") + ")"
	}
	if v.AvoidMinutes != "" {
		zone += ", without the minutes " + v.AvoidMinutes
	}
	return hours + zone
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

// progressOf returns the progress of a campaign, as last saved by the daemons; none where the database was not asked.
func progressOf(v *view.Campaign) *catalog.CampaignProgress {
	return cmp.Or(v.Progress, &catalog.CampaignProgress{})
}

// showProgress prints the progress of a campaign.
func showProgress(p *printer, v *view.Campaign) {
	g := progressOf(v)
	p.line("delivered\t%d", g.Delivered)
	for _, other := range []struct {
		name string
		jobs int64
	}{{"rejected", g.Rejected}, {"dead", g.Dead}, {"expired", g.Expired}, {"cancelled", g.Cancelled}, {"capped", g.Capped}} {
		if other.jobs > 0 {
			p.line("%s\t%d", other.name, other.jobs)
		}
	}
	p.line("backlog\t%s", formatBacklog(delivery.Backlog{Waiting: g.Backlog - g.Retrying - g.InFlight, Retrying: g.Retrying, InFlight: g.InFlight}))
	eta := formatETA(v)
	if g.DoneAt != nil {
		eta += " (" + instant(g.DoneAt, time.RFC3339) + ")"
	}
	p.line("eta\t%s", eta)
}

// formatBacklog returns how many jobs are not settled, by state if there are any.
func formatBacklog(b delivery.Backlog) string {
	if b.Total() == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%d waiting, %d retrying, %d in flight)", b.Total(), b.Waiting, b.Retrying, b.InFlight)
}

// formatETA rounds the ETA for display, or says what holds the campaign where there is none.
func formatETA(v *view.Campaign) string {
	g := progressOf(v)
	switch {
	case g.ETASeconds != nil:
		return formatSeconds(time.Duration(*g.ETASeconds * float64(time.Second)))
	case v.Held != nil && g.Backlog > 0:
		return "held: " + v.Held.Cause
	}
	return "-"
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

func orUnlimited(n int) string {
	if n == 0 {
		return "unlimited"
	}
	return strconv.Itoa(n)
}
