package app

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/pacer/pacer/internal/bench"
	"github.com/pacer/pacer/internal/delivery"
	"github.com/pacer/pacer/internal/embedded"
)

const (
	// minRateRatio is the share of what it was allowed that every campaign must have used.
	minRateRatio = 0.98
	// notableStall is how long a stall must be to be mentioned: slots are forfeited then.
	notableStall = bench.LateTolerance
	// pauseActs is how soon a pause must have stopped a campaign.
	pauseActs = time.Second
)

// evidence is everything that the report is computed from. Instants are on the receiver's clock.
type evidence struct {
	Span      embedded.Interval // the demo, from the first published job to the order to stop
	Campaigns []campaignEvidence
	Quotas    map[string]*delivery.Quota
	Redis     embedded.Usage
	Stalls    []embedded.Interval // in which the process was kept from running, by their beginning
	Unread    int                 // requests that did not fit the receiver's memory
}

// campaignEvidence is what is known about one campaign.
type campaignEvidence struct {
	demand
	ID        string
	Published []string
	Journal   embedded.Journal
	Records   records
}

// records is what the broker holds of one campaign after the daemons have stopped.
type records struct {
	Waiting map[string]bool // ids in ingress, lanes and timers beyond what is committed or settled
	Dead    map[string]bool // ids among the dead letters, but for the expired ones
	Expired map[string]bool
	Lanes   map[string]int // id -> the most hops that a record of it in a lane states
}

// buildReport counts. It is pure.
func buildReport(e *evidence) *Report {
	r := &Report{DurationS: bench.Round(e.Span.To.Seconds()-e.Span.From.Seconds(), 3)}
	demands := make(map[string]demand, len(e.Campaigns))
	for i := range e.Campaigns {
		demands[e.Campaigns[i].ID] = e.Campaigns[i].demand
	}
	allowances := allowances(demands, e.Quotas)
	blur := blurOf(e.Stalls)
	requests := 0
	for i := range e.Campaigns {
		c := &e.Campaigns[i]
		requests += len(c.Journal.Arrivals)
		report := reportCampaign(c, allowances[c.ID])
		r.Campaigns = append(r.Campaigns, report)
		r.Problems = append(r.Problems, campaignProblems(c, &report, blur)...)
		r.Warnings = append(r.Warnings, campaignWarnings(c, &report)...)
	}
	for _, id := range slices.Sorted(maps.Keys(e.Quotas)) {
		reports, problems := reportQuota(e.Quotas[id], e)
		r.Quotas = append(r.Quotas, reports...)
		r.Problems = append(r.Problems, problems...)
	}
	r.Redis = RedisReport{RoundTrips: e.Redis.RoundTrips}
	if requests > 0 {
		r.Redis.CommandsPerJob = bench.Round(float64(e.Redis.Commands)/float64(requests), 4)
	}
	if e.Unread > 0 {
		r.Problems = append(r.Problems, fmt.Sprintf("%d requests did not fit the receiver's memory", e.Unread))
	}
	if most := longestStall(e.Stalls, e.Span); most >= notableStall {
		r.Warnings = append(r.Warnings, fmt.Sprintf(
			"this machine is busy: it kept the demo from running for up to %s at a time", most.Round(time.Millisecond)))
	}
	r.OK = len(r.Problems) == 0
	return r
}

func longestStall(stalls []embedded.Interval, span embedded.Interval) time.Duration {
	most := time.Duration(0)
	for _, s := range clip(stalls, span) {
		most = max(most, s.To-s.From)
	}
	return most
}

// reportCampaign counts one campaign's jobs and measures its stream.
func reportCampaign(c *campaignEvidence, could allowed) CampaignReport {
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
		r.AchievedRate = bench.Round(float64(r.Delivered)/could.Time.Seconds(), 2)
	}
	if could.Units > 0 {
		r.RateRatio = bench.Round(float64(r.Delivered)/could.Units, 4)
	}
	times := arrivalTimes(&c.Journal)
	r.MaxRolling1s = bench.MaxRolling(times, time.Second)
	late := bench.Percentile(bench.Lateness(times, bench.NewTimeline(c.Rates, bench.ChangeGrace)), 0.99)
	r.LatenessP99MS = bench.Round(float64(late)/float64(time.Millisecond), 3)
	return r
}

// tally counts the accepted requests of each id, and the ids that were sent again after a refusal.
func tally(j *embedded.Journal) (accepted map[string]int, retried int) {
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

// campaignProblems says what is wrong with a campaign's figures.
func campaignProblems(c *campaignEvidence, r *CampaignReport, blur func(time.Duration) time.Duration) []string {
	var problems []string
	add := func(format string, args ...any) {
		problems = append(problems, "campaign "+c.ID+": "+fmt.Sprintf(format, args...))
	}
	if r.Lost > 0 {
		add("%d jobs are lost", r.Lost)
	}
	if n := unpublished(c); n > 0 {
		add("%d ids were received that were never published", n)
	}
	times := arrivalTimes(&c.Journal)
	if over := bench.Excess(times, bench.NewTimeline(c.Rates, bench.ChangeGrace), blur) - 1; over > 1e-6 {
		add("a stretch holds %.1f units more than send_rate allows", over)
	}
	if n := sentWhilePaused(times, c.Paused); n > 0 {
		add("%d requests came more than %s after it was paused", n, pauseActs)
	}
	if r.RateRatio < minRateRatio {
		add("used %.1f %% of what it was allowed, less than %.0f %%", 100*r.RateRatio, 100*minRateRatio)
	}
	return problems
}

// campaignWarnings says what at-least-once delivery permits and a run without crashes should not show.
func campaignWarnings(c *campaignEvidence, r *CampaignReport) []string {
	var warnings []string
	if r.Duplicates > 0 {
		warnings = append(warnings, fmt.Sprintf("campaign %s: %d jobs were delivered more than once", c.ID, r.Duplicates))
	}
	if both := deliveredAndWaiting(c); both > 0 {
		warnings = append(warnings, fmt.Sprintf(
			"campaign %s: %d delivered jobs are still open in the broker and would be sent again", c.ID, both))
	}
	return warnings
}

func unpublished(c *campaignEvidence) int {
	published := make(map[string]bool, len(c.Published))
	for _, id := range c.Published {
		published[id] = true
	}
	n := 0
	for _, id := range c.Journal.Jobs {
		if !published[id] {
			n++
		}
	}
	return n
}

func deliveredAndWaiting(c *campaignEvidence) int {
	accepted, _ := tally(&c.Journal)
	n := 0
	for id := range c.Records.Waiting {
		if accepted[id] > 0 {
			n++
		}
	}
	return n
}

func sentWhilePaused(times []time.Duration, paused []embedded.Interval) int {
	n := 0
	for _, at := range times {
		for _, in := range paused {
			if at >= in.From+pauseActs && at < in.To {
				n++
			}
		}
	}
	return n
}

// reportQuota measures the windows of a quota over the requests of all campaigns that share it.
func reportQuota(q *delivery.Quota, e *evidence) (reports []QuotaReport, problems []string) {
	var times []time.Duration
	for i := range e.Campaigns {
		if c := &e.Campaigns[i]; slices.Contains(c.Quotas, q.ID) {
			times = append(times, arrivalTimes(&c.Journal)...)
		}
	}
	slices.Sort(times)
	for _, w := range q.Windows {
		recent := len(times) - lowerBound(times, e.Span.To-w.Span)
		reports = append(reports, QuotaReport{
			ID: q.ID, SpanS: bench.Round(w.Span.Seconds(), 3), Limit: w.Limit,
			MaxRolling: bench.MaxRolling(times, w.Span), Remaining: max(w.Limit-int64(recent), 0),
		})
		// Requests that left a span apart may arrive a little closer together.
		shortened := time.Duration(float64(w.Span) / bench.ReceiverClock)
		if most := bench.MaxRolling(times, shortened); int64(most) > w.Limit {
			problems = append(problems, fmt.Sprintf("quota %s: %d requests within %s, above its limit of %d",
				q.ID, most, w.Span, w.Limit))
		}
	}
	return reports, problems
}

func lowerBound(times []time.Duration, at time.Duration) int {
	i, _ := slices.BinarySearchFunc(times, at, cmp.Compare[time.Duration])
	return i
}

func arrivalTimes(j *embedded.Journal) []time.Duration {
	times := make([]time.Duration, len(j.Arrivals))
	for i, a := range j.Arrivals {
		times[i] = a.At
	}
	return times
}
