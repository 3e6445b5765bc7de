package demo

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/demo/count"
	"github.com/pacer/pacer/internal/embedded"
)

const (
	// minRateRatio is the least part of its allowance that every campaign should have used.
	minRateRatio = 0.98
	// blur is by how much a busy machine may delay what left in time: everything runs in one process.
	blur = 500 * time.Millisecond
	// pauseActs is the time within which a pause must stop a campaign.
	pauseActs = time.Second + blur
)

// observations are the input of the report. Instants are on the receiver's clock.
type observations struct {
	Span      count.Interval // the demo, from the first published job to the order to stop
	Campaigns []campaignObservations
	Quotas    map[string]*delivery.Quota
	Redis     embedded.Usage
}

// campaignObservations are the observations of one campaign.
type campaignObservations struct {
	demand
	ID        string
	Published []string
	Journal   count.Journal
	Records   count.Records
}

// buildReport computes the report. It is pure.
func buildReport(e *observations) *Report {
	r := &Report{DurationS: count.Round(e.Span.Length().Seconds(), 3)}
	demands := make(map[string]demand, len(e.Campaigns))
	for i := range e.Campaigns {
		demands[e.Campaigns[i].ID] = e.Campaigns[i].demand
	}
	allowances := allowances(demands, e.Quotas, e.Span)
	requests := 0
	for i := range e.Campaigns {
		c := &e.Campaigns[i]
		requests += len(c.Journal.Arrivals)
		report := reportCampaign(c, allowances[c.ID])
		r.Campaigns = append(r.Campaigns, report)
		r.Problems = append(r.Problems, campaignProblems(c, &report)...)
		r.Warnings = append(r.Warnings, campaignWarnings(c, &report)...)
	}
	for _, id := range slices.Sorted(maps.Keys(e.Quotas)) {
		reports, problems := reportQuota(e.Quotas[id], e)
		r.Quotas = append(r.Quotas, reports...)
		r.Problems = append(r.Problems, problems...)
	}
	r.Redis = RedisReport{RoundTrips: e.Redis.RoundTrips}
	if requests > 0 {
		r.Redis.CommandsPerJob = count.Round(float64(e.Redis.Commands)/float64(requests), 4)
	}
	r.OK = len(r.Problems) == 0
	return r
}

// reportCampaign counts one campaign's jobs and measures its stream.
func reportCampaign(c *campaignObservations, could allowed) CampaignReport {
	r := CampaignReport{
		ID: c.ID, SendRate: c.Rates[len(c.Rates)-1].Rate.PerSecond(), Published: len(c.Published), RateRatio: 1,
		Requeued: len(c.Records.Lanes),
	}
	for _, hops := range c.Records.Lanes {
		r.MaxHops = max(r.MaxHops, hops)
	}
	accepted, retried := tally(&c.Journal)
	for _, id := range c.Published {
		n := accepted[id]
		r.Duplicates += max(n-1, 0)
		switch {
		case n > 0:
			r.Delivered++
		case c.Records.Dead[id]:
			r.Dead++
		case c.Records.Expired[id]:
			r.Expired++
		case c.Records.Waiting[id]:
			r.Queued++
		default:
			r.Lost++
		}
	}
	r.Retried = retried
	if could.Time > 0 {
		r.AchievedRate = count.Round(float64(r.Delivered)/could.Time.Seconds(), 2)
	}
	if could.Units > 0 {
		r.RateRatio = count.Round(float64(r.Delivered)/could.Units, 4)
	}
	times := c.Journal.Times()
	r.MaxRolling1s = count.MaxRolling(times, time.Second)
	late := count.Percentile(count.Lateness(times, count.NewTimeline(c.Rates, count.ChangeGrace)), 0.99)
	r.LatenessP99MS = count.Round(float64(late)/float64(time.Millisecond), 3)
	return r
}

// tally counts the accepted requests of each id, and the ids that were sent again after a refusal.
func tally(j *count.Journal) (accepted map[string]int, retried int) {
	accepted = make(map[string]int, len(j.Jobs))
	refused, again := make(map[int32]bool), make(map[int32]bool)
	for _, a := range j.Arrivals {
		if refused[a.Job] {
			again[a.Job] = true
		}
		if a.Accepted() {
			accepted[j.Jobs[a.Job]]++
		} else {
			refused[a.Job] = true
		}
	}
	return accepted, len(again)
}

// campaignProblems returns the errors in a campaign's figures.
func campaignProblems(c *campaignObservations, r *CampaignReport) (problems []string) {
	addIf := func(bad bool, format string, args ...any) {
		if bad {
			problems = append(problems, "campaign "+c.ID+": "+fmt.Sprintf(format, args...))
		}
	}
	addIf(r.Lost > 0, "%d jobs are lost", r.Lost)
	strange := unpublished(c)
	addIf(strange > 0, "%d ids were received that were never published", strange)
	times := c.Journal.Times()
	over := count.Excess(times, count.NewTimeline(c.Rates, count.ChangeGrace), blur) - 1
	addIf(over > 1e-6, "a stretch holds %.1f units more than send_rate allows", over)
	paused := sentWhilePaused(times, c.Paused)
	addIf(paused > 0, "%d requests came more than %s after it was paused", paused, pauseActs)
	return problems
}

// campaignWarnings returns what at-least-once delivery permits and a run without crashes should not show.
func campaignWarnings(c *campaignObservations, r *CampaignReport) (warnings []string) {
	if r.RateRatio < minRateRatio {
		warnings = append(warnings, fmt.Sprintf(
			"campaign %s: used %.1f %% of what it was allowed; a machine that is busy costs slots", c.ID, 100*r.RateRatio))
	}
	if r.Duplicates > 0 {
		warnings = append(warnings, fmt.Sprintf("campaign %s: %d jobs were delivered more than once", c.ID, r.Duplicates))
	}
	accepted, _ := tally(&c.Journal)
	both := 0
	for id := range c.Records.Waiting {
		if accepted[id] > 0 {
			both++
		}
	}
	if both > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"campaign %s: %d delivered jobs are still open in the broker and would be sent again", c.ID, both))
	}
	return warnings
}

func unpublished(c *campaignObservations) int {
	published := make(map[string]bool, len(c.Published))
	for _, id := range c.Published {
		published[id] = true
	}
	return len(slices.DeleteFunc(slices.Clone(c.Journal.Jobs), func(id string) bool { return published[id] }))
}

func sentWhilePaused(times []time.Duration, paused []count.Interval) int {
	n := 0
	for _, at := range times {
		for _, in := range paused {
			if at >= in.From+pauseActs && in.Holds(at) {
				n++
			}
		}
	}
	return n
}

// reportQuota measures the windows of a quota over the requests of all campaigns that share it.
func reportQuota(q *delivery.Quota, e *observations) (reports []QuotaReport, problems []string) {
	var times []time.Duration
	for i := range e.Campaigns {
		if c := &e.Campaigns[i]; slices.Contains(c.Quotas, q.ID) {
			times = append(times, c.Journal.Times()...)
		}
	}
	slices.Sort(times)
	for _, w := range q.Windows {
		before, _ := slices.BinarySearch(times, e.Span.To-w.Span)
		reports = append(reports, QuotaReport{
			ID: q.ID, SpanS: count.Round(w.Span.Seconds(), 3), Limit: w.Limit,
			MaxRolling: count.MaxRolling(times, w.Span), Remaining: max(w.Limit-int64(len(times)-before), 0),
		})
		// Requests sent a span apart may arrive a little closer together.
		shortened := time.Duration(float64(w.Span) / count.ReceiverClock)
		if most := count.MaxRolling(times, shortened); int64(most) > w.Limit {
			problems = append(problems, fmt.Sprintf("quota %s: %d requests within %s, above its limit of %d",
				q.ID, most, w.Span, w.Limit))
		}
	}
	return reports, problems
}
